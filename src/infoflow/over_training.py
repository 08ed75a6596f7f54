"""The public names of the subject over training."""

from infoflow.subjects.over_training.measures import *  # noqa: F403
