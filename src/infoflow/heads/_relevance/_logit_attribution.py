"""The direct contribution of each head to a logit, bypassing all later layers."""

# N seed, T token, H head, D width

import torch
from torch import Tensor

from infoflow.foundation import UserError

from ._lrp import unembedding_of
from ._nodes import AbstractNode, AttentionNode, LinearNode, NormNode, PassNode, SharedNode, Tape, Value
from ._recorder import recording
from ._request import Place, Request, SentenceRelevance, without_cache


def logit_attribution(request: Request) -> SentenceRelevance:
    r"""A head's output at the prediction's token, through the linearised final norm, on the target's unembedding.

    $$ R_h = \mathrm{LN_{lin}}(c^h_p W_O^h) \cdot u_y $$

    where the norm's deviation is that of its actual input. The parts of all heads, feed-forward layers, embeddings and
    biases add up to the logit. Heads write directly into the final norm's input only in pre-norm models, and only in
    the predicting stack.

    Raises:
        UserError: The model is not pre-norm, or its head is more than a norm and a linear map.
    """
    model, positions = request.model, request.predictions.positions
    with torch.no_grad(), recording(model) as tape:
        output = model.module(**request.predictions.inputs, **without_cache(model))
        logits = request.logits(output)
    targets = request.targets(logits[0, positions])
    unembedding, _ = unembedding_of(tape, logits)
    producers: dict[Value, AbstractNode] = {node.output: node for node in tape.nodes}
    norm = producers.get(_past_passes(unembedding.inputs[0], producers))
    written = _writers(tape, norm.inputs[0], producers) if isinstance(norm, NormNode) else []
    if not isinstance(norm, NormNode) or not written:
        raise UserError(
            f"Direct logit attribution needs heads that add to what the final norm reads, as in pre-norm models. "
            f'{model.name} is built in another way. Use method="alti" or a gradient method instead.'
        )
    direction_ND = _direction(norm, unembedding.weight[targets], positions)
    heads: dict[Place, Tensor] = {}
    for attention, projection in written:
        one = attention.attention
        by_head_HdD = projection.weight.T.unflatten(0, (one.num_heads, one.head_dim))
        at_NHd = projection.states[positions].unflatten(1, (one.num_heads, one.head_dim))
        heads[one.stack, one.kind, one.layer] = torch.einsum("nhd,hdD,nD->nh", at_NHd, by_head_HdD, direction_ND)
    return SentenceRelevance(heads=heads, tokens={})


def _direction(norm: NormNode, unembedding_ND: Tensor, positions: Tensor) -> Tensor:
    """The gradient of the logit with respect to the final norm's input, with constant deviation."""
    states_ND = norm.states[positions]
    moved = states_ND - states_ND.mean(1, keepdim=True) if norm.centred else states_ND
    scale_N1 = (moved.square().mean(1, keepdim=True) + norm.epsilon).rsqrt()
    direction_ND = unembedding_ND * norm.gain * scale_N1
    return direction_ND - direction_ND.mean(1, keepdim=True) if norm.centred else direction_ND


def _past_passes(value: Value, producers: dict[Value, AbstractNode]) -> Value:
    while isinstance(producers.get(value), PassNode):
        value = producers[value].inputs[0]
    return value


def _writers(tape: Tape, stream: Value, producers: dict[Value, AbstractNode]) -> list[tuple[AttentionNode, LinearNode]]:
    """Attentions whose projected output is a summand of the stream."""
    waiting, found = [stream], []
    while waiting:
        node = producers.get(_past_passes(waiting.pop(), producers))
        if isinstance(node, SharedNode) and node.is_sum:
            waiting += node.inputs
        elif isinstance(node, LinearNode) and isinstance(writer := producers.get(node.inputs[0]), AttentionNode):
            found.append((writer, node))
    return found
