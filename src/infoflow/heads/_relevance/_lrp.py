"""Layer-wise relevance propagation by Voita and others, for all predictions of one sentence together."""

# N seed, T token, L layer, H head, D width

import torch
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import Model, without_cache

from ._nodes import AttentionNode, LinearNode, LostNode, PassNode, Tape, Value, no_rule
from ._recorder import recording
from ._request import Place, Request, SentenceRelevance, joined
from ._rule import Absorbed, Rule, merged

_SEED_NUMBERS = 1 << 25  # numbers of one relevance tensor


def voita_relevance(request: Request, rule: Rule) -> SentenceRelevance:
    r"""Layer-wise relevance propagation, from 1 at the explained logit of each prediction down to the embeddings.

    | function | rule |
    |---|---|
    | linear map, LayerNorm, RMSNorm | transition of each token, rescaled for the token and then for the sentence |
    | activation, added constant, scaling | passed on unchanged |
    | residual a + b, gated product | transition of two numbers in each dimension, rescaled for each token jointly |
    | softmax attention | transition of q, k and v jointly through the softmax, rescaled for each head, then the layer |
    | q, k, v from states | one fused linear map; in cross-attention q, and k with v, then both rescaled jointly |
    | state with several readers | sum, scaled to the sum of the readers' absolute relevance |

    The encoder's output is such a state, since all decoder layers read it. `Rule` defines the transition. Rescaling
    preserves the absolute sum, so with the default rule the relevance of all source and target tokens sums to 1, up to
    a deficit of order ε.

    Source: [@voita2021], which defines the relevance of heads of [@voita2019heads]. According to lxt's documentation,
    layer-wise relevance propagation is covered by a patent that allows personal and scientific use.
    """
    model, positions = request.model, request.predictions.positions
    with torch.no_grad(), recording(model) as tape:
        output = model.module(**request.predictions.inputs, **without_cache(model.module))
    logits = request.logits(output)
    targets = request.targets(logits[0, positions])
    unembedding, above = unembedding_of(tape, logits)
    _require_whole(model, tape, above)
    tokens, width = unembedding.states.shape
    step = max(1, _SEED_NUMBERS // (tokens * 4 * width))
    parts = [
        _propagate(tape, unembedding, positions[start : start + step], targets[start : start + step], rule)
        for start in range(0, len(positions), step)
    ]
    return joined(parts)


def unembedding_of(tape: Tape, logits: Tensor) -> tuple[LinearNode, set[Value]]:
    """The linear map that produced the logits, and the values above it."""
    producers = {node.output: node for node in tape.nodes}
    value, above = tape.value(logits), set()
    while value is not None:
        node = producers.get(value)
        above.add(value)
        if isinstance(node, LinearNode):
            return node, above
        if isinstance(node, LostNode):
            raise UserError(no_rule(node.reason))
        value = node.inputs[0] if isinstance(node, PassNode) else None
    raise UserError(no_rule("logits that are not a linear map of a state"))


def _require_whole(model: Model, tape: Tape, above: set[Value]) -> None:
    """Check that every attention is connected to the logits, since an unrecorded path would count as a constant."""
    reached = set(above)
    for node in reversed(tape.nodes):
        if node.output in reached:
            reached.update(node.inputs)
    lost = [node for node in tape.nodes if isinstance(node, AttentionNode) and node.output not in reached]
    found = sum(isinstance(node, AttentionNode | LostNode) for node in tape.nodes)
    if lost or found < len(list(model.anatomy.attentions())):
        where = lost[0].attention.output_projection if lost else model.name
        raise UserError(no_rule(f"the path from {where} to the logits, which was not recorded"))


def _propagate(
    tape: Tape, unembedding: LinearNode, positions: Tensor, targets: Tensor, rule: Rule
) -> SentenceRelevance:
    """Propagate from the logits to the embeddings."""
    absorbed = Absorbed()
    start = unembedding.of_outputs(positions, targets, rule, absorbed)
    waiting: dict[Value, list[Tensor]] = {unembedding.inputs[0]: [start]}
    heads: dict[Place, Tensor] = {}
    for node in reversed(tape.nodes):
        if node.output not in waiting:
            continue
        relevance = merged(waiting.pop(node.output))
        if isinstance(node, AttentionNode):
            one = node.attention
            heads[one.stack, one.kind, one.layer] = relevance.unflatten(2, (one.num_heads, one.head_dim)).sum((1, 3))
        for value, part in zip(node.inputs, node.relevance(relevance, rule, absorbed), strict=True):
            waiting.setdefault(value, []).append(part)
    return SentenceRelevance(
        heads=heads,
        tokens={stack: merged(waiting[value]).abs().sum(2) for stack, value in tape.sources.items()},
        absorbed=absorbed.share,
    )
