"""The public names of the subject explorer."""

from infoflow.subjects.explorer.server import *  # noqa: F403
