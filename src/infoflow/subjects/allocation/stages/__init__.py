"""Stages of a study on allocation."""

from ._corpora import compare_recordings as compare_recordings
from ._record import CompareRecordings, Record, is_begun_with, training_hooks

STAGES = (
    (90, Record),
    (110, CompareRecordings),
)
