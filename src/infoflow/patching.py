"""The public names of the subject patching."""

from infoflow.subjects.patching.measures import *  # noqa: F403
