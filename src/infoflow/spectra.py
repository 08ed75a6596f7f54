"""The public names of the subject spectra."""

from infoflow.subjects.spectra.measures import *  # noqa: F403
