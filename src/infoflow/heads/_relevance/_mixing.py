"""Attention followed from each prediction down to the embeddings: rollout, flow, and ALTI."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import Model, tap, without_cache

from .._attention_rows import Array, Attention, check_attention
from ._nodes import AbstractNode, AttentionNode, LinearNode, Norm, NormNode, PassNode, SharedNode, Tape, Value
from ._recorder import recording
from ._request import Place, Request, SentenceRelevance, sentences

# N seed, T query token, S key token, H head, d head width, D model width

_UNIT = 2**24
"""Capacities are integers for scipy: a weight of 1 becomes this many units, so flows are exact to about 1e-7."""


def attention_rollout(attention: Attention, valid: Array | None = None) -> Float[Tensor, "layer sentence query key"]:
    r"""How much of each input token reaches each position, by multiplying the layers.

    $$ R_l = \hat A_l R_{l-1}, \qquad \hat A_l = \tfrac12 \bar A_l + \tfrac12 I, \qquad R_{-1} = I $$

    $\bar A_l$ is the mean over heads, and the identity represents the residual connection. Rows sum to 1: if tokens are
    excluded, the rows of $\bar A_l + I$ among the valid tokens are normalised. In causal models rollout favours early
    tokens.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query. Default: all valid.

    Returns:
        (layer, batch, query, key); 0 in rows and columns of invalid tokens.

    Raises:
        UserError: A shape is wrong.

    Source: [@abnar2020].
    """
    mixed = _with_residual(attention, valid)
    rolled = [mixed[0]]
    for layer in mixed[1:]:
        rolled.append(layer @ rolled[-1])
    return torch.stack(rolled)


def attention_flow(attention: Attention, valid: Array | None = None) -> Float[Tensor, "sentence query key"]:
    r"""How much of each input token can reach each position of the top layer, as a maximum flow.

    The layered graph has an edge of capacity $\hat A_l[i, j]$ (see `attention_rollout`) from position i above block l
    to position j below it. The flow from the top position i to the input j is normalised over j.

    The cost grows with the fourth power of the sentence length: use it for single sentences.

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query. Default: all valid.

    Returns:
        (batch, query, key), rows sum to 1; 0 in rows and columns of invalid tokens. Exact to about 1e-6.

    Raises:
        UserError: A shape is wrong, or the batch is empty.

    Source: [@abnar2020].
    """
    mixed = _with_residual(attention, valid)
    if mixed.shape[1] == 0:
        raise UserError("attention must hold at least one sentence. Got a batch of 0.")
    flows = [_sentence_flow(mixed[:, sentence].double().numpy()) for sentence in range(mixed.shape[1])]
    flow = torch.from_numpy(np.stack(flows)).to(mixed.dtype)
    return flow / flow.sum(2, keepdim=True).clamp(min=torch.finfo(flow.dtype).tiny)


def _with_residual(attention: Attention, valid: Array | None) -> Float[Tensor, "layer sentence query key"]:
    """Mean over heads plus the identity, for valid tokens, with normalised rows."""
    weights, mask = check_attention(attention, valid)
    pairs = (mask.unsqueeze(1) & mask.unsqueeze(2)).unsqueeze(0)
    # Filled before adding: rows of padding may hold NaN.
    mixed = weights.masked_fill(~pairs.unsqueeze(2), 0).mean(2) + torch.eye(mask.shape[1]).to(weights) * pairs
    return mixed / mixed.sum(3, keepdim=True).where(mask.unsqueeze(2), 1)


def _sentence_flow(mixed: Float[np.ndarray, "layer query key"]) -> Float[np.ndarray, "query key"]:
    """Maximum flow from every top position to every input position."""
    num_layers, n, _ = mixed.shape
    capacity = np.rint(mixed * _UNIT).astype(np.int32)
    layer, query, key = np.nonzero(capacity)
    # Node (state s, position p) is s · n + p; block l leads from state l + 1 down to state l.
    from scipy.sparse import csr_array  # slow imports
    from scipy.sparse.csgraph import maximum_flow

    graph = csr_array(
        (capacity[layer, query, key], ((layer + 1) * n + query, layer * n + key)), shape=((num_layers + 1) * n,) * 2
    )
    flow = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            flow[i, j] = maximum_flow(graph, num_layers * n + i, j).flow_value / _UNIT
    return flow


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Mixing:
    """The shares that form each token after an attention and its residual; `own` and `across` together sum to 1."""

    own: Float[Tensor, "token token"]  # shares of the stack's own tokens at the input of the attention
    across: Float[Tensor, "token memory"] | None  # shares of the encoder's tokens, in cross-attention
    heads: Float[Tensor, "token head"]  # contribution of each head to each token


def follow(model: Model, mixings: Mapping[Place, Mixing], positions: Int[Tensor, " seed"]) -> SentenceRelevance:
    """Product of the mixings from the predictions' states downward.

    A head's relevance is its contribution to each token, weighted by how much of that token reaches the prediction.
    """
    stacks = [stack.name for stack in model.anatomy.stacks]
    reaching: dict[str, Tensor] = {}
    heads: dict[Place, Tensor] = {}
    top = stacks[-1]
    # The decoder comes before the encoder, and a layer's cross-attention before its self-attention.
    order = sorted(mixings, key=lambda place: (-stacks.index(place[0]), -place[2], place[1] == "self"))
    for stack, kind, layer in order:
        mixing = mixings[stack, kind, layer]
        if stack not in reaching:
            start = mixing.own.new_zeros(len(positions), len(mixing.own))
            if stack == top:
                start[torch.arange(len(positions)), positions] = 1
            reaching[stack] = start
        at_NT = reaching[stack]
        heads[stack, kind, layer] = at_NT @ mixing.heads
        reaching[stack] = at_NT @ mixing.own
        if mixing.across is not None:
            before = reaching.get(stacks[0])
            arriving = at_NT @ mixing.across
            reaching[stacks[0]] = arriving if before is None else before + arriving
    return SentenceRelevance(heads=heads, tokens={stack: reaching[stack] for stack in stacks})


def rollout_relevance(request: Request) -> SentenceRelevance:
    r"""Attention averaged over heads, with half of each token taken from its residual, multiplied through the layers.

    $$ \hat A = \tfrac12 \bar A + \tfrac12 I $$

    This is for self-attention; in cross-attention half of a token comes from the encoder. By construction all heads of
    a layer carry the same amount. So a head's relevance is the share that it moves between tokens (j ≠ i) and that then
    reaches the prediction; all heads of a cross-attention have the same relevance.

    Source: [@abnar2020], for tokens; the relevance of heads is ours.
    """
    model, attention = request.model, _attention(request)
    mixings = {}
    for one in model.anatomy.attentions():
        weights_HTS = attention[one.stack, one.kind][one.layer][0]
        mean_TS = weights_HTS.sum(0) / max(1, one.num_heads)
        own_TT = torch.eye(weights_HTS.shape[1]).to(weights_HTS)
        half = own_TT / 2 if one.num_heads else own_TT  # if all heads were pruned, tokens pass unchanged
        carried_HT = weights_HTS.sum(2)
        if one.kind == "self":
            carried_HT = carried_HT - weights_HTS.diagonal(dim1=1, dim2=2)
        mixings[one.stack, one.kind, one.layer] = Mixing(
            own=mean_TS / 2 + half if one.kind == "self" else half,
            across=mean_TS / 2 if one.kind == "cross" else None,
            heads=carried_HT.T / (2 * max(1, one.num_heads)),
        )
    return follow(model, mixings, request.predictions.positions)


def flow_relevance(request: Request) -> SentenceRelevance:
    """Relevance of tokens by `attention_flow`, which defines no relevance of heads."""
    if len(request.model.anatomy.stacks) > 1:
        raise UserError(f'method="flow" is for single stacks; {request.model.name} has two. Use method="rollout".')
    ((key, layers),) = _attention(request).items()
    mask = request.predictions.inputs.get("attention_mask")
    flow_TS = attention_flow([_mean(layer).cpu() for layer in layers], None if mask is None else mask.cpu())[0]
    return SentenceRelevance(heads={}, tokens={key[0]: flow_TS[request.predictions.positions]})


def _mean(weights: Float[Tensor, "sentence head query key"]) -> Float[Tensor, "sentence 1 query key"]:
    """Mean over heads, whose number differs between layers of a pruned model; the identity if none is left."""
    if weights.shape[1]:
        return weights.mean(1, keepdim=True)
    return torch.eye(weights.shape[2]).to(weights).expand(len(weights), 1, -1, -1)


def _attention(request: Request) -> dict[tuple[str, str], list[Tensor]]:
    with torch.no_grad(), tap(request.model, attention=True) as seen:
        request.model.module(**request.predictions.inputs, **without_cache(request.model.module))
    return dict(seen.attention)


_CHUNK = 1 << 24  # numbers of (query, key, width) held at a time


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sublayer:
    """One sentence's attention with its output projection, residual, and the norm after it, if there is one."""

    attention: AttentionNode
    output: LinearNode
    residual: Float[Tensor, "token width"]
    norm: Norm | None  # None: pre-norm

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
        """The norm as a linear map of parts of its input: centre, multiply by the gain, divide by the deviation."""
        if self.norm is None:
            return parts
        _, scale_T1 = self.norm.parts(self.summed[tokens])
        return self.norm.centre(parts) * self.norm.gain * scale_T1.reshape(-1, *[1] * (parts.dim() - 1))

    @property
    def made(self) -> Float[Tensor, "token width"]:
        """The sublayer's output, biases included: the sum of `terms` and the biases."""
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
    r"""The share of each term in an output: $\max(0, \lVert y_i \rVert_1 - \lVert y_i - T_{ij} \rVert_1)$."""
    distance = (made.unsqueeze(1) - terms).abs().sum(2)
    return (made.abs().sum(1, keepdim=True) - distance).clamp(min=0)


def alti_relevance(request: Request) -> SentenceRelevance:
    r"""ALTI: contributions of tokens to each attention's output, multiplied through the layers.

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
    """ALTI's (query, key) map of every attention, by (stack, kind, layer), for each sentence of a batch.

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
    """Every attention of one sentence, with the operations up to the next sublayer."""
    if reason := model.anatomy.outside_attention():
        raise UserError(f"ALTI does not apply to {model.name}: {reason}. Use a gradient method instead.")
    with torch.no_grad(), recording(model) as tape:
        model.module(**inputs, **without_cache(model.module))
    found = list(_sublayers(tape))
    if len(found) < len(list(model.anatomy.attentions())):
        raise UserError(
            "ALTI needs attention modules whose output is added to their input, with a norm before or after. "
            f'{model.name} has another architecture. Use method="rollout" or a gradient method instead.'
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
            norm = after.norm if isinstance(after, NormNode) else None
            yield Sublayer(attention=attention, output=output, residual=residual[0], norm=norm)
