"""The live explorer: a local page for exploring what models do with any sentence."""

from ._explore import Explorer as Explorer
from ._explore import explore
