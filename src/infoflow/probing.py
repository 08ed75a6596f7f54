"""The public names of the subject probing."""

from infoflow.subjects.probing.measures import *  # noqa: F403
