"""The public names of the subject detached."""

from infoflow.subjects.detached.measures import *  # noqa: F403
