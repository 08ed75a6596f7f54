"""The public names of the subject lenses."""

from infoflow.subjects.lenses.measures import *  # noqa: F403
