"""Families by the name that plans use."""

from ._bert import Bert
from ._family import AbstractFamily

FAMILIES: dict[str, AbstractFamily] = {family.name: family for family in (Bert(),)}
