"""The public names of the subject allocation."""

from infoflow.subjects.allocation.measures import *  # noqa: F403
