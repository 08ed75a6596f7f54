"""Stages of a study on allocation."""

from ._corpora import compare_recordings as compare_recordings
from ._record import CompareRecordings as CompareRecordings
from ._record import Record as Record
