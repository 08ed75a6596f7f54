"""Stages of a study on adaptation."""

from ._specialise import CountLeakage as CountLeakage
from ._specialise import MeasureDomain as MeasureDomain
from ._specialise import Specialise as Specialise
from ._study_domain import prepared as prepared
from ._train_further import train_further
from ._tune import InsideTuned as InsideTuned
from ._tune import Tune as Tune

STAGES = (
    (160, Specialise),
    (170, MeasureDomain),
    (180, CountLeakage),
    (190, Tune),
    (200, InsideTuned),
)
