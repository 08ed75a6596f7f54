"""Records a forward pass: linear maps, norms, attention, sums and products, in execution order."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from infoflow._transformers import Conv1D
from infoflow.foundation import UserError
from infoflow.models import (
    Attention,
    AttentionCall,
    Model,
    Projection,
    on_several_devices,
    quantisation,
    states_read,
    tap,
    weight_of,
)

from ._nodes import (
    CURVES,
    PRODUCTS,
    AbstractNode,
    AttentionNode,
    LostNode,
    PassNode,
    ProjectedStates,
    Record,
    Rotation,
    SharedNode,
    SliceNode,
    Tape,
    Value,
    close,
    leaf,
    rows,
)
from ._rule import AttentionCore

_SUMS = (torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__)
_PRODUCTS = (*PRODUCTS, Tensor.mul_, Tensor.__imul__)
_QUOTIENTS = (torch.div, Tensor.div, Tensor.__truediv__)
_VIEWS = (Tensor.view, Tensor.reshape, Tensor.contiguous, Tensor.__getitem__, Tensor.to, Tensor.clone)
_SAME = (*_VIEWS, Tensor.float, Tensor.type_as, nn.functional.dropout, torch.reshape, torch.clamp)


@contextmanager
def recording(model: Model) -> Iterator[Tape]:
    """Record the forward pass inside the block: one pass of one sentence."""
    if (dtype := next(model.module.parameters()).dtype) not in (torch.float32, torch.float64):
        raise UserError(f"This method needs a model in float32. {model.name} is in {dtype}: load it with float32.")
    if quantisation(model.module) or on_several_devices(model.module):
        raise UserError(
            "This method needs unquantised weights and all layers on one device. "
            f"{model.name} has quantised weights, or layers on several devices."
        )
    tape = Tape()
    with ExitStack() as stack:
        recorder = _Recorder(model, tape)
        recorder.hook(stack)
        stack.enter_context(tap(model, on_attention=recorder.attention_call))
        stack.enter_context(recorder)
        yield tape


class _Recorder(TorchFunctionMode):
    """Hooks record the modules; the mode records the operations between them: sums, products and views."""

    def __init__(self, model: Model, tape: Tape) -> None:
        super().__init__()
        self.model, self.tape = model, tape
        self._inside = 0  # nesting depth in modules recorded as one node; an attention ends at its output projection
        self._attending: list[nn.Module] = []
        self._call: AttentionCall | None = None
        self._projected: dict[nn.Module, Tensor] = {}  # input of each query, key and value projection
        self._rotary: tuple[Tensor, Tensor] | None = None

    # -- modules

    def hook(self, stack: ExitStack) -> None:
        module, attentions = self.model.module, list(self.model.anatomy.attentions())
        handles = []
        for one in self.model.anatomy.stacks:
            first = module.get_submodule(one.layers[0].block)
            handles.append(first.register_forward_pre_hook(self._source(one.name), with_kwargs=True))
        for attention in attentions:
            projection = module.get_submodule(attention.output_projection)
            handles.append(projection.register_forward_pre_hook(self._heads(attention)))
        for one in {module.get_submodule(attention.module) for attention in attentions}:
            handles.append(one.register_forward_pre_hook(self._enter_attention, with_kwargs=True))
            handles.append(one.register_forward_hook(self._leave_attention))
        for child in module.modules():
            if (record := leaf(child)) is not None:
                handles.append(child.register_forward_pre_hook(self._enter))
                handles.append(child.register_forward_hook(self._recorded(record)))
        for handle in handles:
            stack.callback(handle.remove)

    def _source(self, name: str) -> Callable[..., None]:
        def before(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if name not in self.tape.sources:  # a shared block runs once per layer
                self.tape.sources[name] = self.tape.new(states_read(args, kwargs))

        return before

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        self._inside += 1
        self._projected[module] = args[0]

    def _enter_attention(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._inside += 1
        self._attending.append(module)
        self._rotary = kwargs.get("position_embeddings")

    def _leave_attention(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if module in self._attending:  # its output projection lies outside the module
            self._attending.remove(module)
            self._inside -= 1

    def _recorded(self, record: Record) -> Callable[..., None]:
        def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            value = self.tape.value(args[0])
            if value is not None and isinstance(output, Tensor):
                record(self.tape, module, args[0], output, value)  # still inside, so its operations are not recorded
            elif value is not None:  # a router of experts, which transformers derives from a linear map
                for part in output if isinstance(output, tuple | list) else ():
                    if isinstance(part, Tensor) and part.is_floating_point():
                        self._lost((value,), part, f"the module {type(module).__name__}")
            self._inside -= 1

        return after

    def attention_call(self, call: AttentionCall) -> None:
        self._call = call

    def _heads(self, attention: Attention) -> Callable[..., None]:
        name = attention.stack, attention.kind, attention.layer

        def before(projection: nn.Module, args: tuple[Any, ...]) -> None:
            call, self._inside = self._call, self._inside + 1
            if call is not None and (call.stack, call.kind, call.layer) == name:
                self.tape.nodes.append(self._attention_node(attention, call, args[0]))
            self._inside -= 1 + len(self._attending)  # operations after it are recorded again
            self._attending.clear()

        return before

    # -- attention

    def _attention_node(self, attention: Attention, call: AttentionCall, heads: Tensor) -> AbstractNode:
        parts = {part: getattr(attention, part) for part in ("query", "key", "value")}
        if any(part is None for part in parts.values()):
            return self._lost((), heads, f"the projections of {attention.module}, whose layout is not known")
        if attention.gated:
            return self._lost((), heads, f"the gate behind {attention.module}")
        if call.others is not None:
            return self._lost(
                (), heads, f"the global tokens of {attention.module}, which have projections of their own"
            )
        projections = {part: self._projection(projection) for part, projection in parts.items()}
        sources = [self._projected[self._module(parts[part])] for part in ("query", "key")]
        if not self._read_the_same(attention, sources, self._projected[self._module(parts["value"])]):
            return self._lost((), heads, f"the inputs of {attention.module}: queries, keys and values differ")
        values = [self.tape.value(source) for source in sources]
        if None in values:
            return self._lost((), heads, f"the input of {attention.module}, which is not a block's state")
        seen = {part: getattr(call, part) for part in parts}
        plain = {
            part: _split(
                rows(sources[part != "query"]),
                *projections[part],
                parts[part].num_heads,
                (call.value if used is None else used).shape[-1],
            )
            for part, used in seen.items()
        }
        if call.query is None or call.key is None:  # inputs of the softmax are unknown; the values are exact
            query, key, rotations = plain["query"], plain["key"], False
        else:
            query, key = call.query[0], call.key[0]
            rotations = self._rotations(plain["query"], plain["key"], query, key[:: attention.group_size])
        if not close(plain["value"], call.value[0][:: attention.group_size]):
            return self._lost((), heads, f"what {attention.module} does with its values")
        unknown = rotations is False or call.softcap is not None
        core = AttentionCore(
            query=query, key=key, value=call.value[0], weights=call.weights[0].to(query.dtype), scaling=call.scaling
        )
        fused = ("query", "key", "value") if attention.kind == "self" else None
        groups = [fused] if fused else [("query",), ("key", "value")]
        return AttentionNode(
            inputs=tuple(value for value in values[: len(groups)] if value is not None),
            output=self.tape.new(heads),
            attention=attention,
            core=core,
            unknown=f"what {attention.module} does between its projections and the softmax" if unknown else None,
            rotations=rotations if isinstance(rotations, tuple) else None,
            projections=tuple(
                _fused(rows(source), [projections[part] for part in group])
                for source, group in zip(sources, groups, strict=False)
            ),
        )

    @staticmethod
    def _read_the_same(attention: Attention, sources: list[Tensor], values: Tensor) -> bool:
        """Whether keys and values read the same state; MobileBERT's keys come from a bottleneck, its values do not."""
        query, key = sources
        same = key.shape == values.shape and torch.equal(key, values)
        return same and (attention.kind == "cross" or query is key or torch.equal(query, key))

    def _rotations(
        self, plain_query: Tensor, plain_key: Tensor, query: Tensor, key: Tensor
    ) -> "tuple[Rotation, Rotation] | bool | None":
        """The rotations of queries and keys; None if there are none, False if another operation changes them."""
        factor = (plain_query * query).sum() / plain_query.square().sum()  # OPT scales its queries beforehand
        if close(factor * plain_query, query) and close(plain_key, key):
            return None
        if not isinstance(self._rotary, tuple) or len(self._rotary) != 2:  # Llama 4 rotates by one complex tensor
            return False
        cos, sin = (rows(part) for part in self._rotary)
        if cos.shape[-1] > query.shape[-1]:
            return False
        both = Rotation(states=plain_query, cos=cos, sin=sin), Rotation(states=plain_key, cos=cos, sin=sin)
        matches = (close(torch.add(*one.terms()), rotated) for one, rotated in zip(both, (query, key), strict=True))
        return both if all(matches) else False

    def _module(self, projection: Projection) -> nn.Module:
        return self.model.module.get_submodule(projection.weight.parameter.removesuffix(".weight"))

    def _projection(self, projection: Projection) -> tuple[Tensor, Tensor | None]:
        module = self._module(projection)
        weight = projection.weight.take(weight_of(module))
        bias = None if projection.bias is None else projection.bias.take(weight_of(module, "bias"))
        return (weight.T if isinstance(module, Conv1D) else weight), bias

    # -- functions between modules

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._inside:
            return func(*args, **(kwargs or {}))
        known = [(arg, self.tape.value(arg)) for arg in args if isinstance(arg, Tensor)]
        result = func(*args, **(kwargs or {}))
        found = [(tensor, value) for tensor, value in known if value is not None]
        if not found:
            return result
        if func is Tensor.__setitem__:
            self._lost((found[0][1],), found[0][0], "values written into a state")
        elif isinstance(result, Tensor) and result.is_floating_point():
            self._between(func, found, args, result)
        elif isinstance(result, tuple | list) and (parts := [part for part in result if isinstance(part, Tensor)]):
            self._parts(func, *found[0], parts)
        return result

    def _parts(self, func: Any, states: Tensor, value: Value, parts: list[Tensor]) -> None:
        """Record the parts of a state that is cut along its width, as in fused gated MLPs."""
        cut = all(part.shape[:-1] == states.shape[:-1] for part in parts)
        whole = cut and torch.equal(torch.cat(parts, dim=-1), states)
        start = 0
        for part in parts:
            if whole:
                output, width = self.tape.new(part), states.shape[-1]
                self.tape.nodes.append(SliceNode(inputs=(value,), output=output, start=start, width=width))
                start += part.shape[-1]
            elif part.is_floating_point():
                self._lost((value,), part, f"the operation {getattr(func, '__name__', func)}")

    def _between(self, func: Any, found: list[tuple[Tensor, Value]], args: Any, result: Tensor) -> None:
        states, value = found[0]
        values = tuple(value for _, value in found)
        if func in _SAME or (func in _SUMS + _PRODUCTS + _QUOTIENTS and len(found) == 1) or func in CURVES:
            self._one(func, states, value, args, result)
        elif func in _SUMS and states.shape == found[1][0].shape:
            terms = (rows(states), rows(found[1][0]))
            self.tape.nodes.append(SharedNode(inputs=values, output=self.tape.new(result), terms=terms, is_sum=True))
        elif func in _PRODUCTS and states.shape == found[1][0].shape:
            terms = (rows(result), rows(result))  # J x is the product itself for both factors
            self.tape.nodes.append(SharedNode(inputs=values, output=self.tape.new(result), terms=terms, is_sum=False))
        else:
            self._lost(values, result, f"the operation {getattr(func, '__name__', func)}")

    def _one(self, func: Any, states: Tensor, value: Value, args: Any, result: Tensor) -> None:
        """The node for a function of one state: a view, a constant added or multiplied, or an activation."""
        same_size = states.shape[-1] == result.shape[-1] and states.numel() == result.numel()
        same = func in _SAME and same_size and close(rows(states), rows(result))
        if same or (func not in _SAME and same_size and (func not in _QUOTIENTS or args[0] is states)):
            self.tape.nodes.append(PassNode(inputs=(value,), output=self.tape.new(result)))
        else:
            self._lost((value,), result, f"the operation {getattr(func, '__name__', func)}")

    def _lost(self, inputs: tuple[Value, ...], result: Tensor, reason: str) -> AbstractNode:
        node = LostNode(inputs=inputs, output=self.tape.new(result), reason=f"{reason} ({self.model.name})")
        self.tape.nodes.append(node)
        return node


def _split(states: Tensor, weight: Tensor, bias: Tensor | None, num_heads: int, width: int) -> Tensor:
    """States projected and split into heads: (head, token, width)."""
    return nn.functional.linear(states, weight, bias).unflatten(1, (num_heads, width)).transpose(0, 1)


def _fused(states: Tensor, parts: list[tuple[Tensor, Tensor | None]]) -> ProjectedStates:
    weights = [weight for weight, _ in parts]
    bias = None
    if any(own is not None for _, own in parts):
        bias = torch.cat([weight.new_zeros(len(weight)) if own is None else own for weight, own in parts])
    return ProjectedStates(states=states, weight=torch.cat(weights), bias=bias)
