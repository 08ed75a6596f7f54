"""The error for a diverged training."""

from infoflow.foundation import UserError


class TrainingDiverged(UserError):
    """A loss or a gradient is not finite: the learning rate is too high, or the warm-up too short."""
