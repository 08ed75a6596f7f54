"""The live explorer: a page on this computer on which models are asked about any sentence."""

from ._explore import Explorer as Explorer
from ._explore import explore as explore
