"""ALTI: decomposition of an attention's output into contributions through values, output projection and norm."""

# H head, T query token, S key token, d head width, D model width

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import Model

from ._mixing import Mixing, follow
from ._nodes import AbstractNode, AttentionNode, LinearNode, NormNode, PassNode, SharedNode, Tape, Value
from ._recorder import recording
from ._request import Place, Request, SentenceRelevance, sentences, without_cache

_CHUNK = 1 << 24  # numbers of (query, key, width) held at a time


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sublayer:
    """One sentence's attention with its output projection, residual, and the norm after it, if there is one."""

    attention: AttentionNode
    output: LinearNode
    residual: Float[Tensor, "token width"]
    norm: NormNode | None  # None: pre-norm

    @property
    def place(self) -> Place:
        one = self.attention.attention
        return one.stack, one.kind, one.layer

    @property
    def summed(self) -> Float[Tensor, "token width"]:
        """Attention's output plus residual."""
        attended = torch.nn.functional.linear(self.output.states, self.output.weight, self.output.bias)
        return attended + self.residual

    @property
    def written(self) -> Float[Tensor, "head key width"]:
        r"""Each head's output for each key at weight 1: $f_h(x_j) = (x_j W_V^h + b_V^h) W_O^h$."""
        core = self.attention.core
        return core.value @ self.output.weight.T.unflatten(0, (len(core.value), core.value.shape[-1]))

    def linearised(
        self, parts: Float[Tensor, "part_of_tokens *part width"], tokens: slice = slice(None)
    ) -> Float[Tensor, "part_of_tokens *part width"]:
        """The norm as a linear map of parts of its input: centre, times gain, divided by each token's deviation."""
        if self.norm is None:
            return parts
        states = self.summed[tokens]
        moved = states - states.mean(1, keepdim=True) if self.norm.centred else states
        scale_T1 = (moved.square().mean(1, keepdim=True) + self.norm.epsilon).rsqrt()
        if self.norm.centred:
            parts = parts - parts.mean(-1, keepdim=True)
        return parts * self.norm.gain * scale_T1.reshape(-1, *[1] * (parts.dim() - 1))

    @property
    def made(self) -> Float[Tensor, "token width"]:
        """The sublayer's output, biases included: the sum of `terms` and of the biases."""
        output = self.linearised(self.summed)
        return output if self.norm is None or self.norm.bias is None else output + self.norm.bias

    def terms(self, queries: slice) -> Float[Tensor, "token key width"]:
        """Contribution of each key to the outputs of some queries; in cross-attention the residual is the last term."""
        core = self.attention.core
        parts_TSD = torch.einsum("hts,hsd->tsd", core.weights[:, queries], self.written)
        residual_TD = self.residual[queries]
        if self.attention.attention.kind == "cross":
            parts_TSD = torch.cat([parts_TSD, residual_TD.unsqueeze(1)], dim=1)
        else:
            query = torch.arange(len(self.residual))[queries]
            parts_TSD[torch.arange(len(query)), query] += residual_TD
        return self.linearised(parts_TSD, queries)

    def head_terms(self) -> Float[Tensor, "token head width"]:
        """Contribution of each head to the output."""
        core = self.attention.core
        return self.linearised(torch.einsum("hts,hsd->thd", core.weights, self.written))

    def mixing(self) -> Mixing:
        """Shares of the terms in the output."""
        made_TD = self.made
        width = made_TD.shape[1]
        step = max(1, _CHUNK // (self.attention.core.weights.shape[2] * width))
        chunks = [slice(start, start + step) for start in range(0, len(made_TD), step)]
        shares_TS = torch.cat([_shares(made_TD[queries], self.terms(queries)) for queries in chunks])
        total_T1 = shares_TS.sum(1, keepdim=True)
        # A token that no term moves towards its output is unchanged.
        shares_TS = torch.where(total_T1 > 0, shares_TS / total_T1, 0.0)
        heads_TH = _shares(made_TD, self.head_terms()) / torch.where(total_T1 > 0, total_T1, 1.0)
        lost_T = (total_T1 <= 0).squeeze(1).to(shares_TS)
        if self.attention.attention.kind == "cross":
            return Mixing(own=torch.diag(shares_TS[:, -1] + lost_T), across=shares_TS[:, :-1], heads=heads_TH)
        return Mixing(own=shares_TS + torch.diag(lost_T), across=None, heads=heads_TH)


def _shares(made: Float[Tensor, "token width"], terms: Float[Tensor, "token part width"]) -> Tensor:
    r"""$\max(0, \lVert y_i \rVert_1 - \lVert y_i - T_{ij} \rVert_1)$."""
    distance = (made.unsqueeze(1) - terms).abs().sum(2)
    return (made.abs().sum(1, keepdim=True) - distance).clamp(min=0)


def alti_relevance(request: Request) -> SentenceRelevance:
    r"""Contributions of tokens to each attention's output, multiplied through the layers.

    $$ c_{ij} = \max(0, \lVert y_i \rVert_1 - \lVert y_i - T_i(x_j) \rVert_1), \qquad
    T_i(x_j) = \mathrm{LN_{lin}}\Big(\sum_h A^h_{ij} f_h(x_j) + δ_{ij} x_i\Big) $$

    with rows normalised. $\mathrm{LN_{lin}}$ centres, multiplies by the gain and divides by the deviation at token i;
    it is absent in pre-norm models. The terms of a token, $\mathrm{LN_{lin}}(b_O)$ and the norm's bias add up to its
    output $y_i$. Feed-forward layers are skipped. In cross-attention the residual is one term, and each source token is
    another. A head's relevance is its own $c$, weighted by how much of token i reaches the prediction.

    Source: [@ferrando2022] for encoders; [@ferrando2022plus] for encoder and decoder; the relevance of heads is ours.
    """
    mixings = {sublayer.place: sublayer.mixing() for sublayer in sublayers(request.model, request.predictions.inputs)}
    return follow(request.model, mixings, request.predictions.positions)


def alti_contributions(model: Model, batch: Mapping[str, Any] | str) -> list[dict[Place, Tensor]]:
    """ALTI's map of every attention, for each sentence of a batch: by (stack, kind, layer), (query, key).

    Rows of self-attention sum to 1; those of cross-attention to 1 minus the residual's share.

    Raises:
        UserError: An input is missing, or the blocks are neither pre-norm nor post-norm.
    """
    found = []
    for predictions in sentences(model, batch, None):
        parts = {one.place: one.mixing() for one in sublayers(model, predictions.inputs)}
        found.append({place: one.own if one.across is None else one.across for place, one in parts.items()})
    return found


def sublayers(model: Model, inputs: dict[str, Any]) -> list[Sublayer]:
    """Every attention of one sentence, with the operations up to the next sublayer.

    Raises:
        UserError: The blocks are neither pre-norm nor post-norm, or tokens interact outside attention.
    """
    if reason := model.anatomy.beside_attention():
        raise UserError(f"ALTI does not hold for {model.name}: {reason}. Use a gradient method instead.")
    with torch.no_grad(), recording(model) as tape:
        model.module(**inputs, **without_cache(model))
    found = list(_sublayers(tape))
    if len(found) < len(list(model.anatomy.attentions())):
        raise UserError(
            f"ALTI knows attentions whose output is added to what they read, with a norm before or after. {model.name} "
            'is built in another way. Use method="rollout" or a gradient method instead.'
        )
    return found


def _sublayers(tape: Tape) -> Iterator[Sublayer]:
    readers: dict[Value, list[AbstractNode]] = {}
    producers: dict[Value, AbstractNode] = {node.output: node for node in tape.nodes}
    for node in tape.nodes:
        for value in node.inputs:
            readers.setdefault(value, []).append(node)

    def only_reader(value: Value) -> AbstractNode | None:
        """The only node that reads a value, ignoring nodes that do not change it."""
        found = readers.get(value, [])
        while len(found) == 1 and isinstance(found[0], PassNode):
            found = readers.get(found[0].output, [])
        return found[0] if len(found) == 1 else None

    for attention in tape.nodes:
        if not isinstance(attention, AttentionNode):
            continue
        output = only_reader(attention.output)
        added = only_reader(output.output) if isinstance(output, LinearNode) else None
        if not isinstance(output, LinearNode) or not isinstance(added, SharedNode):
            continue
        reads = producers.get(attention.inputs[0])
        sources = {attention.inputs[0], *(reads.inputs if isinstance(reads, NormNode) else ())}
        residual = [term for value, term in zip(added.inputs, added.terms, strict=True) if value in sources]
        if len(residual) == 1:
            after = only_reader(added.output)
            norm = after if isinstance(after, NormNode) else None
            yield Sublayer(attention=attention, output=output, residual=residual[0], norm=norm)
