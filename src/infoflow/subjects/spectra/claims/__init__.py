"""Claims about layers and the measures that choose them, and the table of choices."""

from infoflow.findings._registry import Derived

from ._layer_choice import LAYER_CHOICE, layer_choice

DERIVED = (Derived(schemas=(LAYER_CHOICE,), make=layer_choice),)
