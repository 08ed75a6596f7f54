"""The live explorer: a local page for querying models about any sentence."""

from ._explore import Explorer as Explorer
from ._explore import explore
