"""Probes: what can be read from each layer, and how hard it is to read."""

from ._codelength import Codelength as Codelength
from ._codelength_online import online_codelength as online_codelength
from ._codelength_variational import VariationalTraining as VariationalTraining
from ._codelength_variational import variational_codelength as variational_codelength
from ._depth_statistics import center_of_gravity as center_of_gravity
from ._depth_statistics import contextual_headroom as contextual_headroom
from ._depth_statistics import depth_warnings as depth_warnings
from ._depth_statistics import differential_scores as differential_scores
from ._depth_statistics import expected_layer as expected_layer
from ._depth_statistics import kl_from_uniform as kl_from_uniform
from ._depth_statistics import kl_of_differences as kl_of_differences
from ._depth_statistics import mixing_entropy as mixing_entropy
from ._depth_statistics import negative_mass as negative_mass
from ._examples import Examples as Examples
from ._examples import Part as Part
from ._examples import ProbeTask as ProbeTask
from ._examples import Unit as Unit
from ._features import WordFeatures as WordFeatures
from ._features import collect_features as collect_features
from ._stacked import Schedule as Schedule
from ._tasks import MOST_CLASSES as MOST_CLASSES
from ._tasks import TaskDescription as TaskDescription
from ._tasks import build_task as build_task
from ._tasks import tasks as tasks
