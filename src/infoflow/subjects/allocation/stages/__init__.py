"""Stages of a study on allocation."""

from ._record import CompareRecordings, Record, is_begun_with, training_hooks
from ._record import compare_recordings as compare_recordings

STAGES = ((90, Record), (110, CompareRecordings))
