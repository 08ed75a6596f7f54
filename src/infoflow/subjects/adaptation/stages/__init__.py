"""Stages of a study on adaptation."""

from ._specialise import CountLeakage, MeasureDomain, Specialise, train_further
from ._study_tasks import StudyTasks, prepared
from ._tune import InsideTuned, Tune

STAGES = (
    (160, Specialise),
    (170, MeasureDomain),
    (180, CountLeakage),
    (190, Tune),
    (200, InsideTuned),
)
