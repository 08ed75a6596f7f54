"""The functions of a Transformer as nodes of layer-wise relevance propagation, for one sentence."""

# N seed, T token, S memory token, O output, I input, D width, H head, d head width

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow._transformers import Conv1D
from infoflow.foundation import UserError
from infoflow.models import Attention, weight_of

from ._rule import (
    EPSILON,
    Absorbed,
    AttentionCore,
    CoreRelevance,
    Rule,
    core_relevance,
    linear_relevance,
    norm_relevance,
    rescaled_jointly,
    shared_between,
)

Value = int  # a state of the forward pass: the output of a node, or the input of a stack's first block


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AbstractNode:
    """One function of the forward pass."""

    inputs: tuple[Value, ...]
    output: Value

    @abstractmethod
    def relevance(
        self, relevance: Float[Tensor, "seed token output"], rule: Rule, absorbed: Absorbed
    ) -> tuple[Float[Tensor, "seed token input"], ...]:
        """Relevance of each input, given the output's relevance."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LinearNode(AbstractNode):
    """x Wᵀ + b."""

    states: Float[Tensor, "token input"]
    weight: Float[Tensor, "output input"]
    bias: Float[Tensor, " output"] | None

    def relevance(self, relevance: Tensor, rule: Rule, absorbed: Absorbed) -> tuple[Tensor, ...]:
        return (linear_relevance(relevance, self.states, self.weight, self.bias, rule, absorbed),)

    def of_outputs(
        self, positions: Tensor, outputs: Tensor, rule: Rule, absorbed: Absorbed
    ) -> Float[Tensor, "seed token input"]:
        """Relevance of the input when output `outputs[n]` at token `positions[n]` has relevance 1 and all others 0."""
        rows = []
        for position, output in zip(positions.tolist(), outputs.tolist(), strict=True):
            bias = None if self.bias is None else self.bias[output : output + 1]
            one = self.states.new_ones(1, 1, 1)
            states, weight = self.states[position : position + 1], self.weight[output : output + 1]
            rows.append(linear_relevance(one, states, weight, bias, rule, absorbed)[0])
        result = self.states.new_zeros(len(rows), *self.states.shape)
        result[torch.arange(len(rows)), positions] = torch.cat(rows)
        return result


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NormNode(AbstractNode):
    """LayerNorm or RMSNorm."""

    states: Float[Tensor, "token width"]
    norm: "Norm"

    def relevance(self, relevance: Tensor, rule: Rule, absorbed: Absorbed) -> tuple[Tensor, ...]:
        norm = self.norm
        return (
            norm_relevance(relevance, self.states, norm.gain, norm.bias, norm.epsilon, norm.centred, rule, absorbed),
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SharedNode(AbstractNode):
    """A residual sum a + b, or a product a · b; `terms` are the first-order contributions of the inputs."""

    terms: tuple[Float[Tensor, "token width"], Float[Tensor, "token width"]]
    is_sum: bool

    def relevance(self, relevance: Tensor, rule: Rule, absorbed: Absorbed) -> tuple[Tensor, ...]:
        return shared_between(relevance, *self.terms, rule)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PassNode(AbstractNode):
    """A function that passes relevance on unchanged: an activation, an added constant, or scaling by a number."""

    def relevance(self, relevance: Tensor, rule: Rule, absorbed: Absorbed) -> tuple[Tensor, ...]:
        return (relevance,)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SliceNode(AbstractNode):
    """Some of a state's dimensions."""

    start: int
    width: int  # width of the whole state

    def relevance(self, relevance: Tensor, rule: Rule, absorbed: Absorbed) -> tuple[Tensor, ...]:
        behind = self.width - self.start - relevance.shape[2]
        return (nn.functional.pad(relevance, (self.start, behind)),)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LostNode(AbstractNode):
    """A function without a rule for relevance propagation."""

    reason: str

    def relevance(self, relevance: Tensor, rule: Rule, absorbed: Absorbed) -> tuple[Tensor, ...]:
        raise UserError(no_rule(self.reason))


def no_rule(what: str) -> str:
    """The error message for a function without a propagation rule."""
    return (
        f"Layer-wise relevance propagation has no rule for {what}. "
        'Use a gradient method instead: method="gradient-x-input", "attn-lrp" or "chefer".'
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProjectedStates:
    """The projection of states to queries, keys or values: x Wᵀ + b of the named parts, fused."""

    states: Float[Tensor, "token input"]
    weight: Float[Tensor, "output input"]
    bias: Float[Tensor, " output"] | None

    def relevance(self, relevance: list[Tensor], rule: Rule, absorbed: Absorbed) -> Tensor:
        """Relevance of the states, given the relevance of each part's outputs by head, a list of (N, H, T, d)."""
        outputs = torch.cat([part.transpose(1, 2).flatten(2) for part in relevance], dim=2)
        return linear_relevance(outputs, self.states, self.weight, self.bias, rule, absorbed)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionNode(AbstractNode):
    """Attention, from the states of queries and memory to the heads' outputs before the output projection.

    `projections`: one fused map for queries, keys and values, or two maps: one for queries, one for keys and values.
    """

    attention: Attention
    core: AttentionCore
    unknown: str | None = None  # an operation without a rule on queries and keys before the softmax
    rotations: "tuple[Rotation, Rotation] | None" = None  # rotation of the queries and that of the keys
    projections: tuple[ProjectedStates, ...]

    def relevance(self, relevance: Tensor, rule: Rule, absorbed: Absorbed) -> tuple[Tensor, ...]:
        if self.unknown is not None:
            raise UserError(no_rule(self.unknown))
        if self.attention.num_heads == 0:  # pruned: it reads nothing
            return tuple(each.states.new_zeros(len(relevance), *each.states.shape) for each in self.projections)
        heads_NHTd = relevance.unflatten(2, (self.attention.num_heads, self.attention.head_dim)).transpose(1, 2)
        core = self._ungrouped(core_relevance(heads_NHTd, self.core, rule))
        if self.rotations is not None:
            of_query, of_key = self.rotations
            core = core._replace(query=of_query.relevance(core.query, rule), key=of_key.relevance(core.key, rule))
        if len(self.projections) == 1:
            return (self.projections[0].relevance(list(core), rule, absorbed),)
        parts = (
            self.projections[0].relevance([core.query], rule, absorbed),
            self.projections[1].relevance([core.key, core.value], rule, absorbed),
        )
        return rescaled_jointly(parts, relevance.abs().sum((1, 2), keepdim=True))

    def _ungrouped(self, core: CoreRelevance) -> CoreRelevance:
        """Grouped key/value heads collect the relevance of their query heads."""
        group = self.attention.group_size
        if group == 1:
            return core
        wanted_N111 = core.absolute().sum(1, keepdim=True)
        key, value = (part.unflatten(1, (-1, group)).sum(2) for part in (core.key, core.value))
        total = sum(part.abs().sum((1, 2, 3), keepdim=True) for part in (core.query, key, value))
        collected = CoreRelevance(query=core.query, key=key, value=value)
        return collected.scaled(wanted_N111 / (total + EPSILON))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rotation:
    """Rotary positions: x · cos + rotate_half(x) · sin in every head's first dimensions (all of them, or some)."""

    states: Float[Tensor, "head token width"]  # before the rotation
    cos: Float[Tensor, "token rotated"]
    sin: Float[Tensor, "token rotated"]

    @property
    def rotated(self) -> int:
        return self.cos.shape[-1]

    def terms(self) -> tuple[Tensor, Tensor]:
        """Contributions of each dimension, and of its partner in the rotation, to each output."""
        turned, rest = self.states[..., : self.rotated], self.states[..., self.rotated :]
        half = self.rotated // 2
        partner = torch.cat([-turned[..., half:], turned[..., :half]], dim=-1) * self.sin
        return torch.cat([turned * self.cos, rest], dim=-1), torch.cat([partner, torch.zeros_like(rest)], dim=-1)

    def relevance(self, relevance: Float[Tensor, "seed head token width"], rule: Rule) -> Tensor:
        heads = relevance.flatten(1, 2)
        own, partner = (term.flatten(0, 1) for term in self.terms())
        result, partner_R = shared_between(heads, own, partner, rule)
        half = self.rotated // 2
        result[..., :half] += partner_R[..., half : self.rotated]
        result[..., half : self.rotated] += partner_R[..., :half]
        return result.unflatten(1, relevance.shape[1:3])


class Tape:
    """The nodes of one forward pass of one sentence."""

    def __init__(self) -> None:
        self.nodes: list[AbstractNode] = []
        self.sources: dict[str, Value] = {}  # by stack: the input of its first block
        self._values: dict[int, tuple[Tensor, Value]] = {}  # tensors are held, so that their ids stay valid
        self._next = 0

    def new(self, tensor: Tensor) -> Value:
        """A new value for this tensor."""
        self._next += 1
        self._values[id(tensor)] = (tensor, self._next)
        return self._next

    def value(self, tensor: Any) -> Value | None:
        """The value of a tensor, or None if it does not depend on any block's input."""
        held = self._values.get(id(tensor))
        return None if held is None else held[1]


def rows(states: Tensor) -> Tensor:
    """The states of one sentence as a matrix (token, width)."""
    return states.detach().reshape(math.prod(states.shape[:-1]), states.shape[-1])


def close(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are equal up to the rounding of the second one's precision."""
    if first.shape != second.shape:
        return False
    error = 1e-4 if second.dtype.itemsize >= 4 else 2e-2
    return first.numel() == 0 or bool((first - second).abs().max() <= error * (1 + second.abs().max()))


@cache
def activations() -> tuple[type[nn.Module], ...]:
    """Modules that apply a nonlinear function elementwise."""
    from transformers.activations import ACT2CLS  # slow import

    return tuple({cls[0] if isinstance(cls, tuple) else cls for cls in ACT2CLS.values()} | {nn.GELU})


CURVES = (nn.functional.gelu, nn.functional.relu, nn.functional.silu, torch.tanh, torch.relu, Tensor.tanh)
PRODUCTS = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
_UNCHANGED = (nn.Dropout, nn.Identity)
Record = Callable[[Tape, nn.Module, Tensor, Tensor, Value], None]


def leaf(module: nn.Module) -> Record | None:
    """How to record a module that is a single function; None for other modules."""
    if isinstance(module, nn.Linear | Conv1D):
        return _record_linear
    if is_norm(module):
        return _record_norm
    return _record_pass if isinstance(module, activations() + _UNCHANGED) else None


def is_norm(module: nn.Module) -> bool:
    """Whether a module is LayerNorm or RMSNorm (which every family defines itself)."""
    name = type(module).__name__
    return isinstance(module, nn.LayerNorm) or "RMSNorm" in name or name == "T5LayerNorm"


def _record_linear(tape: Tape, module: nn.Module, states: Tensor, output: Tensor, value: Value) -> None:
    weight, bias = _of(module, "weight"), _of(module, "bias")
    assert weight is not None, "linear modules have weights"
    node = LinearNode(
        inputs=(value,),
        output=tape.new(output),
        states=rows(states),
        weight=weight.T if isinstance(module, Conv1D) else weight,
        bias=bias,
    )
    tape.nodes.append(node)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Norm:
    """LayerNorm (centred) or RMSNorm: (x − mean) / sqrt(mean square + ε) · gain + bias."""

    gain: Float[Tensor, " width"]
    bias: Float[Tensor, " width"] | None
    epsilon: float
    centred: bool

    @classmethod
    def of(cls, module: nn.Module, states: Float[Tensor, "*rows width"], output: Tensor) -> "Norm | None":
        """The norm that `module` applied to `states`; None if computing it does not give `output`."""
        centred = isinstance(module, nn.LayerNorm)
        names = [name for name in ("eps", "variance_epsilon") if hasattr(module, name)]
        weight, bias = (_of(module, name) for name in ("weight", "bias"))
        gains = [states.new_ones(states.shape[-1])] if weight is None else [weight, 1 + weight]  # Gemma: 1 + weight
        for gain in gains:
            norm = cls(
                gain=gain, bias=bias, epsilon=float(getattr(module, names[0])) if names else 0.0, centred=centred
            )
            if close(norm(states.detach()), output.detach()):
                return norm
        return None

    def parts(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """The states, centred if this norm does so, and 1 divided by their deviation."""
        moved = self.centre(states)
        return moved, (moved.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()

    def centre(self, states: Tensor) -> Tensor:
        return states - states.mean(-1, keepdim=True) if self.centred else states

    def __call__(self, states: Tensor, constant_scale: bool = False) -> Tensor:
        """Apply the norm; with `constant_scale` the gradient treats the deviation, but not the mean, as a constant."""
        moved, scale = self.parts(states)
        output = moved * (scale.detach() if constant_scale else scale) * self.gain
        return output if self.bias is None else output + self.bias


def _record_norm(tape: Tape, module: nn.Module, states: Tensor, output: Tensor, value: Value) -> None:
    x, name = rows(states), type(module).__name__
    norm = Norm.of(module, x, rows(output))
    if norm is None:
        tape.nodes.append(LostNode(inputs=(value,), output=tape.new(output), reason=f"the norm {name}"))
        return
    tape.nodes.append(NormNode(inputs=(value,), output=tape.new(output), states=x, norm=norm))


def _record_pass(tape: Tape, module: nn.Module, states: Tensor, output: Tensor, value: Value) -> None:
    if output is not states:
        tape.nodes.append(PassNode(inputs=(value,), output=tape.new(output)))


def _of(module: nn.Module, name: str) -> Tensor | None:
    """A module's own weight or bias, if it has one."""
    return weight_of(module, name) if isinstance(getattr(module, name, None), Tensor) else None
