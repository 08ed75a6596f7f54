"""Families by name, as used in plans."""

from ._albert import Albert
from ._bert import Bert
from ._elmo import Elmo
from ._family import AbstractFamily
from ._gpt2 import Gpt2
from ._longformer import Longformer
from ._plain_bert import PlainBert
from ._t5 import T5

_ALL = (Bert(), PlainBert(), Albert(), Longformer(), Gpt2(), T5(), Elmo())
FAMILIES: dict[str, AbstractFamily] = {family.name: family for family in _ALL}
"""The architectures by name, as in plans and `[model] architectures`."""
