"""The public names of the subject retrieval."""

from infoflow.subjects.retrieval.measures import *  # noqa: F403
