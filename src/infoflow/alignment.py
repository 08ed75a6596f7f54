"""The public names of the subject alignment."""

from infoflow.subjects.alignment.measures import *  # noqa: F403
