"""Families of models that a study trains: any layout of each, with matched initialisation."""

from ._build import Match as Match
from ._build import build as build
from ._config import ModelConfig as ModelConfig
from ._encoders import AbstractEncoderFamily as AbstractEncoderFamily
from ._family import AbstractFamily as AbstractFamily
from ._family import EncoderLayout as EncoderLayout
from ._family import Layout as Layout
from ._registry import FAMILIES as FAMILIES
