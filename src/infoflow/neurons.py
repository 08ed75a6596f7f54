"""The public names of the subject neurons."""

from infoflow.subjects.neurons.measures import *  # noqa: F403
