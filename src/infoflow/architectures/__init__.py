"""Families of models that a study trains, in any of their layouts and with matched initialisation."""

from ._build import Match
from ._build import build as build
from ._family import (
    ALL_HEADS,
    KINDS,
    TRAINED_ON,
    AbstractFamily,
    EncoderLayout,
    Layout,
    Scope,
    check_trained_on,
    kinds_of,
    layers_in,
)
from ._family import ModelConfig as ModelConfig
from ._registry import FAMILIES
