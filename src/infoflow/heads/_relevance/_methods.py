"""The methods of relevance by name, and the options that each takes."""

# N seed, T token, H head, D width

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from infoflow.foundation import UserError
from infoflow.models import AttentionCall, Model, tap, without_cache

from ._chefer import Output, chefer_relevance, gradient_relevance
from ._lrp import unembedding_of, voita_relevance
from ._mixing import alti_relevance, flow_relevance, rollout_relevance
from ._nodes import (
    CURVES,
    PRODUCTS,
    AbstractNode,
    AttentionNode,
    LinearNode,
    Norm,
    NormNode,
    PassNode,
    SharedNode,
    Tape,
    Value,
    activations,
    is_norm,
)
from ._recorder import recording
from ._request import Place, Request, SentenceRelevance
from ._rule import Rule

Method = Callable[[Request], SentenceRelevance]
MakeMethod = Callable[[Model, dict[str, Any]], Method]
Variant = Literal["cp-lrp", "attn-lrp"]

_TINY = 1e-10  # keeps f(x) / x finite at 0


def _voita(model: Model, options: dict[str, Any]) -> Method:
    _check(options, "voita", tuple(field.name for field in fields(Rule)))
    rule = Rule(**options)
    return lambda request: voita_relevance(request, rule)


def _check(options: dict[str, Any], method: str, known: tuple[str, ...]) -> None:
    if unknown := [name for name in options if name not in known]:
        taken = f"takes {', '.join(known)}" if known else "takes no options"
        raise UserError(f'method="{method}" {taken}. Got {unknown[0]}.')


def _with_output(name: str, run: Callable[[Request, Output | None], SentenceRelevance]) -> MakeMethod:
    """A method that can also explain a number that the user computes from the model's output."""

    def method(model: Model, options: dict[str, Any]) -> Method:
        _check(options, name, ("output",))
        return lambda request: run(request, options.get("output"))

    return method


def _by_gradient(variant: Variant) -> Callable[[Request, Output | None], SentenceRelevance]:
    return lambda request, output: gradient_relevance(request, output, partial(backward_rules, request.model, variant))


def _plain(name: str, run: Method) -> MakeMethod:
    def method(model: Model, options: dict[str, Any]) -> Method:
        _check(options, name, ())
        return run

    return method


def logit_attribution(request: Request) -> SentenceRelevance:
    r"""A head's direct contribution to the logit: its output, through the linearised final norm, times the unembedding.

    $$ R_h = \mathrm{LN_{lin}}(c^h_p W_O^h) \cdot u_y $$

    c is the head's output at the prediction's token p, and the norm's deviation is that of its actual input. The
    contributions of all heads, feed-forward layers, embeddings and biases add up to the logit. Heads write directly
    into the final norm's input only in pre-norm models, and only in the predicting stack.
    """
    model, positions = request.model, request.predictions.positions
    with torch.no_grad(), recording(model) as tape:
        output = model.module(**request.predictions.inputs, **without_cache(model.module))
        logits = request.logits(output)
    targets = request.targets(logits[0, positions])
    unembedding, _ = unembedding_of(tape, logits)
    producers: dict[Value, AbstractNode] = {node.output: node for node in tape.nodes}
    norm = producers.get(_past_passes(unembedding.inputs[0], producers))
    written = _writers(tape, norm.inputs[0], producers) if isinstance(norm, NormNode) else []
    if not isinstance(norm, NormNode) or not written:
        raise UserError(
            f"Direct logit attribution needs heads that add to what the final norm reads, as in pre-norm models. "
            f'{model.name} has another architecture. Use method="alti" or a gradient method instead.'
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
    _, scale_N1 = norm.norm.parts(norm.states[positions])
    return norm.norm.centre(unembedding_ND * norm.norm.gain * scale_N1)


def _past_passes(value: Value, producers: dict[Value, AbstractNode]) -> Value:
    while isinstance(producers.get(value), PassNode):
        value = producers[value].inputs[0]
    return value


def _writers(tape: Tape, stream: Value, producers: dict[Value, AbstractNode]) -> list[tuple[AttentionNode, LinearNode]]:
    """Attentions whose projected output is added to the residual stream."""
    waiting, found = [stream], []
    while waiting:
        node = producers.get(_past_passes(waiting.pop(), producers))
        if isinstance(node, SharedNode) and node.is_sum:
            waiting += node.inputs
        elif isinstance(node, LinearNode) and isinstance(writer := producers.get(node.inputs[0]), AttentionNode):
            found.append((writer, node))
    return found


@contextmanager
def backward_rules(model: Model, variant: Variant) -> Iterator[None]:
    r"""Let gradients follow the rules below inside the `with` block; forward passes are unchanged.

    | function | `"cp-lrp"` [@ali2022] | `"attn-lrp"` [@achtibat2024] |
    |---|---|---|
    | softmax attention | weights are constants | gradients of queries and keys ÷ 4, of values ÷ 2 |
    | LayerNorm, RMSNorm | deviation is a constant | the same |
    | activation | $x \cdot f(x)/x$, the quotient a constant | the same |
    | gated product $f(g) \cdot u$ | $f(g)$ is a constant | both factors get half |

    The rules are those of lxt, whose documentation says that layer-wise relevance propagation is covered by a patent
    that allows personal and scientific use.
    """
    with ExitStack() as stack:
        mode = _Rules(variant)
        for module in model.module.modules():
            if is_norm(module):
                stack.callback(module.register_forward_hook(_constant_deviation).remove)
            elif isinstance(module, activations()):
                stack.callback(module.register_forward_pre_hook(mode.enter).remove)
                stack.callback(module.register_forward_hook(mode.leave).remove)
        stack.enter_context(tap(model, on_attention=_ATTENTION[variant]))
        stack.enter_context(mode)
        yield


def _halved_products(call: AttentionCall) -> AttentionCall:
    if call.query is None or call.key is None or call.others is not None:
        raise UserError(
            'method="attn-lrp" shares relevance between queries and keys, but the scores of '
            f"{type(call.module).__name__} are not made of their products alone: they also depend on position, or on "
            'several projections. Use method="gradient-x-input", "cp-lrp" or "chefer".'
        )
    return call.edited(
        query=_scaled_gradient(call.query, 0.25),
        key=_scaled_gradient(call.key, 0.25),
        value=_scaled_gradient(call.value, 0.5),
    )


_ATTENTION: dict[str, Callable[[AttentionCall], AttentionCall]] = {
    "cp-lrp": lambda call: call.edited(weights=call.weights.detach()),
    "attn-lrp": _halved_products,
}


class _Rules(TorchFunctionMode):
    """The rules for activations and gated products, whether these are modules or functions."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self._variant, self._inside = variant, 0
        self._activated: Tensor | None = None  # output of the latest activation

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._inside += 1

    def leave(self, module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        self._inside -= 1
        if not self._inside:
            self._activated = _quotient(args[0], output)
            return self._activated
        return output

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._inside:
            return func(*args, **(kwargs or {}))
        if func in PRODUCTS and any(arg is self._activated for arg in args) and self._activated is not None:
            return self._gated(func, args)
        result = func(*args, **(kwargs or {}))
        if func in CURVES:
            self._activated = result = _quotient(args[0], result)
        return result

    def _gated(self, func: Any, args: tuple[Any, ...]) -> Tensor:
        if not all(isinstance(arg, Tensor) and arg.requires_grad for arg in args):
            return func(*args)
        if self._variant == "attn-lrp":
            return _scaled_gradient(func(*args), 0.5)
        return func(*(arg.detach() if arg is self._activated else arg for arg in args))


def _constant_deviation(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
    norm = Norm.of(module, args[0], output)
    return output if norm is None else _with_gradient_of(norm(args[0], constant_scale=True), output)


def _quotient(states: Tensor, output: Tensor) -> Tensor:
    """f(x) as a constant times x."""
    away = states.detach() + torch.where(states.detach() < 0, -_TINY, _TINY)
    return _with_gradient_of(states * (output.detach() / away), output)


def _with_gradient_of(surrogate: Tensor, output: Tensor) -> Tensor:
    """The value of `output`, exactly, with the gradient of `surrogate`."""
    return output.detach() + (surrogate - surrogate.detach())


def _scaled_gradient(tensor: Tensor, factor: float) -> Tensor:
    """The same value, with a scaled gradient."""
    return tensor.detach() + (tensor - tensor.detach()) * factor


METHODS: dict[str, MakeMethod] = {
    "voita": _voita,
    "gradient-x-input": _with_output("gradient-x-input", gradient_relevance),
    "cp-lrp": _with_output("cp-lrp", _by_gradient("cp-lrp")),
    "attn-lrp": _with_output("attn-lrp", _by_gradient("attn-lrp")),
    "chefer": _with_output("chefer", chefer_relevance),
    "alti": _plain("alti", alti_relevance),
    "rollout": _plain("rollout", rollout_relevance),
    "flow": _plain("flow", flow_relevance),
    "logit-attribution": _plain("logit-attribution", logit_attribution),
}

ATTENTION_ONLY = ("chefer", "alti", "rollout", "flow")
"""Methods that follow only attention between layers and ignore other paths to a token."""
