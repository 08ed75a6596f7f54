"""The public names of the subject sinks."""

from infoflow.subjects.sinks.measures import *  # noqa: F403
