"""Data of the attention views for one sentence: weights, values, queries, keys, and each head's contribution."""

# B batch or sequence, H query head, S key token, d head width, D model width

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from infoflow.foundation import shown_by
from infoflow.models import Attention, AttentionCall, Model, Readout, keys_stack, model_inputs, tap, weight_of

from ._sentence_tokens import ReadSentence, Text, read_tokens

_ROWS = 256  # states per readout: bounds rows times vocabulary


def output_weight(model: Model, attention: Attention) -> Float[Tensor, "head width model_width"]:
    """Each head's part of the output projection, W_O^h, such that the head's output is `context @ W_O^h`."""
    weight = weight_of(model.module.get_submodule(attention.output_projection))
    rows = weight if attention.transposed else weight.T
    return rows.unflatten(0, (attention.num_heads, attention.head_dim))


def value_norms(
    value_BHSd: Float[Tensor, "batch head key width"], output_HdD: Float[Tensor, "head width model_width"]
) -> Float[Tensor, "batch head key"]:
    r"""Length of the vector that a head would write if it attended to one key alone.

    $$ \lVert f_h(x_j) \rVert, \qquad f_h(x) = (x W_V^h + b_V^h)\, W_O^h $$

    The bias of the output projection belongs to no head and is left out.

    Source: [@kobayashi2020].

    >>> value_norms(torch.ones(1, 1, 2, 2), torch.eye(2)[None])
    tensor([[[1.4142, 1.4142]]])
    """
    dtype = output_HdD.dtype if output_HdD.dtype.itemsize >= 4 else torch.float32
    values, output = value_BHSd.to(dtype), output_HdD.to(dtype)
    norms = values.new_empty(values.shape[:3])
    for head in range(len(output)):  # all vectors at once would be heads times the model's width
        norms[:, head] = (values[:, head] @ output[head]).norm(dim=-1)
    return norms


def logit_directions(
    readout: Readout, states: Float[Tensor, "row width"], tokens: Int[Tensor, " row"]
) -> Float[Tensor, "row width"]:
    r"""Gradient of a token's logit, minus the vocabulary's mean, with respect to the last block's output.

    $$ g = \nabla_s \Big( \ell_x(s) - \frac{1}{|V|} \sum_v \ell_v(s) \Big) $$

    So $g \cdot u$ is the effect of a vector u, added there, on the logit through the linearised final norm and
    unembedding (and any other part of the model's head).
    """
    parts = []
    for rows, wanted in zip(states.split(_ROWS), tokens.split(_ROWS), strict=True):
        with torch.inference_mode(False), torch.enable_grad():
            given = rows.detach().clone().requires_grad_()
            logits = readout(given)
            score = logits.gather(1, wanted.clone().unsqueeze(1)).squeeze(1) - logits.mean(1)
            parts.append(torch.autograd.grad(score.sum(), given)[0])
    return torch.cat(parts)


def copying_scores(
    values: Float[Tensor, "sequence head place width"],
    output: Float[Tensor, "head width model_width"],
    directions: Float[Tensor, "sequence place model_width"],
) -> Float[Tensor, "sequence head place"]:
    r"""The effect of attending to each token on its own logit: $g_j \cdot v_j W_O^h$, in logits.

    Only the direct path counts: the effect through later blocks is left out, as is the bias of W_O, which belongs to no
    head.

    Source: [@olsson2022], who use the sign and size of this effect as the copying score.
    """
    readers = torch.einsum("bpD,hdD->bhpd", directions, output.to(directions))
    return (values.to(directions) * readers).sum(3)


LEVELS = 255


def quantise(weights: Float[Any, "*shape"]) -> UInt8[np.ndarray, "*shape"]:
    r"""Numbers in 0..1 as bytes, $q = \mathrm{round}(255 \sqrt{a})$; a byte represents $(q / 255)^2$.

    The square root gives more levels to small weights: equal weights on 512 keys are 0.002, which a linear scale would
    round to level 0 or 1. The error is at most 0.004 for weights near 1, and smaller for smaller weights.

    >>> quantise(np.array([0.0, 0.002, 0.25, 1.0])).tolist()
    [0, 11, 128, 255]
    """
    return np.rint(LEVELS * np.sqrt(np.clip(np.asarray(weights, dtype=np.float32), 0, 1))).astype(np.uint8)


def restore(bytes_: UInt8[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """The weights that `quantise` encoded, up to rounding."""
    return (bytes_.astype(np.float32) / LEVELS) ** 2


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerAttention:
    """Attention of one kind in one layer on one sentence."""

    layer: int
    weights: UInt8[np.ndarray, "head query key"]  # encoded by `quantise`
    value_norms: Float[np.ndarray, "head key"]  # length of a head's output if it attended to that key alone
    query: Float[np.ndarray, "head query width"]  # zeros of width 1 if scores are not such products (DeBERTa)
    key: Float[np.ndarray, "group key width"]  # one per key/value head
    scaling: float  # factor on the products of query and key
    biased: bool  # scores have more terms than these products: a position bias or a cap


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionOfKind:
    """All layers of one stack and kind."""

    stack: str
    kind: str
    causal: bool
    layers: tuple[LayerAttention, ...]

    @property
    def keys_stack(self) -> str:
        """The stack of the keys' tokens."""
        return keys_stack(self.stack, self.kind)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SentenceAttention:
    """One sentence with a model's tokens and attention."""

    model: str
    task: str
    sentence: ReadSentence
    kinds: tuple[AttentionOfKind, ...]

    _repr_html_ = shown_by("attention_shown")

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
    pair: str | None = None,
    chat: bool = False,
) -> SentenceAttention:
    """Run one sentence and keep each head's attention.

    Args:
        model: A loaded model of any family that the tap supports.
        sentence: Text, or token ids.
        translation: Input of an encoder–decoder model's decoder; default: the model's own translation.
        longest: Maximum number of tokens on either side; None: only the model's limit.
        pair: A second sentence that an encoder reads after the first: [CLS] first [SEP] second [SEP].
        chat: Whether to apply the model's chat template. `sentence` is then a user's message, or a file of
            conversations, of which the first is read.

    Raises:
        UserError: The sentence is empty or too long, or the model cannot read it (see `read_tokens`).
    """
    read = read_tokens(model, sentence, translation, longest, pair, chat)
    watch = AttentionWatch(model, read)
    with torch.no_grad(), tap(model, on_attention=watch):
        model.module(**sentence_inputs(model, read))
    return watch.seen()


class AttentionWatch:
    """Records every attention call of one sentence: an `on_attention` of `tap`, around one forward pass."""

    def __init__(self, model: Model, read: ReadSentence) -> None:
        self._model, self._read = model, read
        self._attentions = {(one.stack, one.kind, one.layer): one for one in model.anatomy.attentions()}
        self._calls: dict[tuple[str, str], dict[int, LayerAttention]] = {}

    def __call__(self, call: AttentionCall) -> None:
        attention = self._attentions[call.stack, call.kind, call.layer]
        looked_at = _looked_at(self._model, attention, call)
        self._calls.setdefault((call.stack, call.kind), {})[call.layer] = looked_at

    def seen(self) -> SentenceAttention:
        """All recorded data."""
        kinds = tuple(
            AttentionOfKind(
                stack=stack.name,
                kind=kind,
                causal=stack.causal and kind == "self",
                layers=tuple(layer for _, layer in sorted(self._calls[stack.name, kind].items())),
            )
            for stack in self._model.anatomy.stacks
            for kind in stack.kinds
            if (stack.name, kind) in self._calls
        )
        return SentenceAttention(model=self._model.name, task=self._model.task, sentence=self._read, kinds=kinds)


def sentence_inputs(model: Model, read: ReadSentence) -> dict[str, Any]:
    """Arguments of one forward pass of the sentence alone, without padding."""
    ids = [torch.tensor([[token.id for token in tokens]]) for tokens in read.tokens.values()]
    inputs = model_inputs(model, ids[0], decoder_input_ids=ids[1] if len(ids) > 1 else None)
    types = [token.type_id for token in next(iter(read.tokens.values()))]
    if None in types:
        return inputs
    return inputs | {"token_type_ids": torch.tensor([types], device=model.device)}


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
        biased=any(one is not None for one in (call.position_bias, call.softcap, call.sinks))
        or _adds_to_products(call, attention),
    )


def _adds_to_products(call: AttentionCall, attention: Attention) -> bool:
    """Whether a family's own attention code adds more to its scores than a mask."""
    if attention.own is None or call.mask is None:
        return False
    seen = call.weights > 0
    return call.query is None or bool((call.mask[seen].abs() > 1e-3).any())


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.float().cpu().numpy()
