"""Stages of a study on adaptation."""

from ._specialise import CountLeakage as CountLeakage
from ._specialise import MeasureDomain as MeasureDomain
from ._specialise import Specialise as Specialise
from ._train_further import train_further
from ._tune import InsideTuned as InsideTuned
from ._tune import Tune as Tune
