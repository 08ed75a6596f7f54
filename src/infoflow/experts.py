"""The public names of the subject experts."""

from infoflow.subjects.experts.measures import *  # noqa: F403
