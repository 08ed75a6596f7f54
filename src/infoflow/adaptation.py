"""The public names of the subject adaptation."""

from infoflow.subjects.adaptation.measures import *  # noqa: F403
