"""What is said of a training whose numbers are none any more."""

from infoflow.foundation import UserError


class TrainingDiverged(UserError):
    """A loss or a gradient is not finite: the learning rate is too high, or the warm-up too short."""
