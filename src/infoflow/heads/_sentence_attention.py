"""Everything that attention views show of one sentence: each head's weights, values, queries and keys."""

# H query head, G key/value head, T query token, S key token, d head width

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from infoflow.foundation import UserError, shown_by
from infoflow.models import Attention, AttentionCall, Model, keys_stack, model_inputs, tap

from ._layer_guesses import LayerGuesses, layer_guesses
from ._quantised import quantise
from ._relevance import Place, alti_contributions
from ._sentence_tokens import ReadSentence, Text, read_tokens
from ._value_weighted import output_weight, value_norms


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerAttention:
    """One attention of one layer on one sentence."""

    layer: int
    weights: UInt8[np.ndarray, "head query key"]  # as `quantise` writes them
    value_norms: Float[np.ndarray, "head key"]  # length of what a head would write if it looked at that key alone
    query: Float[np.ndarray, "head query width"]  # zeros of width 1 where scores are no such products (DeBERTa)
    key: Float[np.ndarray, "group key width"]  # one per key/value head
    scaling: float  # of the products of query and key
    biased: bool  # scores are more than these products: a position bias or a cap
    mixing: UInt8[np.ndarray, "query key"] | None = None
    """ALTI's map of the layer, all heads and the residual connection together, as `quantise` writes it; None where the
    model does not allow it."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionOfKind:
    """All layers of one stack and kind."""

    stack: str
    kind: str
    causal: bool
    layers: tuple[LayerAttention, ...]

    @property
    def keys_stack(self) -> str:
        """The stack whose tokens are attended to."""
        return keys_stack(self.stack, self.kind)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SentenceAttention:
    """One sentence, as a model reads it and attends to it."""

    model: str
    task: str
    sentence: ReadSentence
    kinds: tuple[AttentionOfKind, ...]
    guesses: LayerGuesses | None = None  # None: not asked for, or the model predicts nothing

    _repr_html_ = shown_by("infoflow.report", "attention_shown")

    def __repr__(self) -> str:
        kinds = ", ".join(f"{one.stack} {one.kind}: {len(one.layers)} layers" for one in self.kinds)
        text = self.sentence.text
        return f"SentenceAttention({self.model}, {text[:100] + '…' * (len(text) > 100)!r}, {kinds})"


def sentence_attention(
    model: Model,
    sentence: Text,
    translation: Text | None = None,
    *,
    longest: int | None = 512,
    mixing: bool = True,
    guesses: bool = False,
) -> SentenceAttention:
    """Run one sentence and keep what each head does with it.

    Args:
        model: A loaded model of any family that the tap supports.
        sentence: Text, or token ids.
        translation: What the decoder of an encoder–decoder model reads; by default the model's own translation.
        longest: Tokens at most on either side; None for no limit but the model's.
        mixing: Also ALTI's maps. Their time grows with the square of the length: on BERT-base 0.2 s of CPU time for 16
            tokens and 3 s for 128, measured, so some 45 s for 512.
        guesses: Also the token that each layer would predict at each place, by the logit lens.

    Raises:
        UserError: The sentence is empty or too long, or the model cannot read it (see `read_tokens`).
    """
    read = read_tokens(model, sentence, translation, longest)
    watch, inputs = AttentionWatch(model, read), sentence_inputs(model, read)
    with torch.no_grad(), tap(model, on_attention=watch):
        model.module(**inputs)
    seen = watch.seen(_mixing(model, inputs) if mixing else {})
    return replace(seen, guesses=layer_guesses(model, read)) if guesses else seen


class AttentionWatch:
    """Keeps what every attention call of one sentence shows: an `on_attention` of `tap`, around one forward pass."""

    def __init__(self, model: Model, read: ReadSentence) -> None:
        self._model, self._read = model, read
        self._attentions = {(one.stack, one.kind, one.layer): one for one in model.anatomy.attentions()}
        self._calls: dict[tuple[str, str], dict[int, LayerAttention]] = {}

    def __call__(self, call: AttentionCall) -> None:
        attention = self._attentions[call.stack, call.kind, call.layer]
        looked_at = _looked_at(self._model, attention, call)
        self._calls.setdefault((call.stack, call.kind), {})[call.layer] = looked_at

    def seen(self, maps: Mapping[Place, UInt8[np.ndarray, "_ _"]]) -> SentenceAttention:
        """All that was kept, with ALTI's maps where there are some."""
        kinds = tuple(
            AttentionOfKind(
                stack=stack.name,
                kind=kind,
                causal=stack.causal and kind == "self",
                layers=tuple(
                    replace(layer, mixing=maps.get((stack.name, kind, number)))
                    for number, layer in sorted(self._calls[stack.name, kind].items())
                ),
            )
            for stack in self._model.anatomy.stacks
            for kind in stack.kinds
            if (stack.name, kind) in self._calls
        )
        return SentenceAttention(model=self._model.name, task=self._model.task, sentence=self._read, kinds=kinds)


def sentence_inputs(model: Model, read: ReadSentence) -> dict[str, Any]:
    """Keywords of one forward pass of the sentence alone, without padding."""
    ids = [torch.tensor([[token.id for token in tokens]]) for tokens in read.tokens.values()]
    return model_inputs(model, ids[0], decoder_input_ids=ids[1] if len(ids) > 1 else None)


def _mixing(model: Model, inputs: dict[str, Any]) -> dict[Place, UInt8[np.ndarray, "_ _"]]:
    """ALTI's maps as `quantise` writes them; none where it does not know the model's blocks."""
    try:
        (maps,) = alti_contributions(model, inputs)
    except UserError:
        return {}
    return {place: quantise(_array(shares)) for place, shares in maps.items()}


def _looked_at(model: Model, attention: Attention, call: AttentionCall) -> LayerAttention:
    return LayerAttention(
        layer=call.layer,
        weights=quantise(call.weights[0].float().cpu().numpy()),
        value_norms=_array(value_norms(call.value, output_weight(model, attention))[0]),
        query=_array(torch.zeros_like(call.weights[0, :, :, :1]) if call.query is None else call.query[0]),
        key=_array(
            torch.zeros_like(call.value[0, :, :, :1]) if call.key is None else call.key[0, :: attention.group_size]
        ),
        scaling=call.scaling,
        biased=call.position_bias is not None or call.softcap is not None or _adds_to_products(call, attention),
    )


def _adds_to_products(call: AttentionCall, attention: Attention) -> bool:
    """Whether attention code of a family's own adds more to its scores than what hides keys."""
    if attention.own is None or call.mask is None:
        return False
    seen = call.weights > 0
    return call.query is None or bool((call.mask[seen].abs() > 1e-3).any())


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()
