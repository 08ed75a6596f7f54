"""Kinds of attention in the layouts of trained models, and the scopes that choices among their heads are limited to."""

from collections.abc import Mapping
from typing import Literal

from infoflow.foundation import UserError

from ._config import ModelConfig

Scope = Literal["encoder-self", "decoder-self", "decoder-cross", "all"]
KINDS = ("encoder-self", "decoder-self", "decoder-cross")
"""The kinds of attention whose heads are selected separately."""
ALL_HEADS = "all"
"""The scope of a selection among the heads of all kinds of attention."""
TRAINED_ON = ("encoder", "decoder", "encoder-decoder")
"""Layouts of models that a study prunes, retrains with closed attention, or transplants heads from."""
_KINDS = {"decoder": ("decoder-self",), "encoder-decoder": KINDS}  # the other layouts are encoders


def kinds_of(layout: str) -> tuple[str, ...]:
    """Kinds of attention in a model of the layout."""
    return _KINDS.get(layout, ("encoder-self",))


def layers_in(model: ModelConfig, match: str, layout: str, scope: str) -> int:
    """Number of attentions in a scope, each with `model.heads` heads."""
    kinds = kinds_of(layout)
    encoder, decoder = model.layers, model.decoder_depth
    if len(kinds) == 1:
        return encoder + (decoder if match == "depth" else 0)
    layers = {kind: encoder if kind == KINDS[0] else decoder for kind in kinds}
    return sum(layers.values()) if scope == ALL_HEADS else layers[scope]


def check_trained_on(section: str, layouts: Mapping[str, str]) -> None:
    """Raise a UserError unless the objectives of a section, with their layouts, train models without further parts."""
    for name, layout in layouts.items():
        if layout not in TRAINED_ON:
            raise UserError(
                f"{section}.objectives must train a single model ({', '.join(TRAINED_ON)}). Got {name}, "
                f"which has the layout {layout}. Leave it out."
            )
