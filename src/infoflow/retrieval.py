"""The public names of the subject retrieval."""

from infoflow.subjects.retrieval.models import *  # noqa: F403
