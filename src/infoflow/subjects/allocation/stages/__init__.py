"""Stages of a study on allocation."""

from ._corpora import compare_recordings as compare_recordings
from ._record import CompareRecordings as CompareRecordings
from ._record import Record as Record
from ._record import is_begun_with
from ._record import training_hooks as training_hooks

STAGES = (
    (90, Record),
    (110, CompareRecordings),
)
