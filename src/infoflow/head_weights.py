"""The public names of the subject head_weights."""

from infoflow.subjects.head_weights.measures import *  # noqa: F403
