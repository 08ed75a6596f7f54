"""The public names of the subject routes."""

from infoflow.subjects.routes.measures import *  # noqa: F403
