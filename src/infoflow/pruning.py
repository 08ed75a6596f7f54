"""The public names of the subject pruning."""

from infoflow.subjects.pruning.measures import *  # noqa: F403
