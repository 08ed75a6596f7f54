"""Which heads a scope of a plan means: the kinds of attention that a model has, and in how many layers."""

from infoflow.pruning import ALL_HEADS, KINDS
from infoflow.training import ModelConfig

_KINDS = {"decoder": ("decoder-self",), "encoder-decoder": KINDS}  # other layouts are encoders


def kinds_of(layout: str) -> tuple[str, ...]:
    """Kinds of attention of a model of the layout."""
    return _KINDS.get(layout, ("encoder-self",))


def layers_in(model: ModelConfig, match: str, layout: str, scope: str) -> int:
    """Attentions of a scope, each with `model.heads` heads."""
    kinds = kinds_of(layout)
    encoder, decoder = model.layers, model.decoder_depth
    if len(kinds) == 1:
        return encoder + (decoder if match == "depth" else 0)
    layers = {kind: encoder if kind == KINDS[0] else decoder for kind in kinds}
    return sum(layers.values()) if scope == ALL_HEADS else layers[scope]
