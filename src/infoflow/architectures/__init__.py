"""Families of models that a study trains: any layout of each, with matched initialisation."""

from ._attention_kinds import ALL_HEADS, KINDS, TRAINED_ON, Scope, check_trained_on, kinds_of, layers_in
from ._build import Match
from ._build import build as build
from ._config import ModelConfig as ModelConfig
from ._family import AbstractFamily, EncoderLayout, Layout
from ._registry import FAMILIES
