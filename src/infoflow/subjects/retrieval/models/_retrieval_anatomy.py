"""The parts of a `RetrievalModel`: the reader's usual groups, the retriever by layer, and the candidates' weights."""

import re
from collections.abc import Iterator
from dataclasses import replace

from infoflow.models import Anatomy, Attention, ParameterGroup, ParameterSlice, Projection, Stack, discover

from ._reader import RetrievalModel

READER = "reader"  # the attribute's name, and the prefix of its parameters' names
RETRIEVER, PRIOR = "retriever", "prior"
"""Components and stacks: the retriever's weights; the scale a and the null logit b."""


def retrieval_anatomy(model: RetrievalModel) -> Anatomy:
    """The anatomy of all parameters trained with a reader; call it while the model is in evaluation mode.

    Groups of the reader are those of a plain masked LM. All parameters of a block of the retriever form one group, with
    component and stack `retriever`; those outside of its blocks (embeddings, the output map) have no layer.
    """
    own = discover(model.reader)
    groups = tuple(replace(group, slice=_slice_below(group.slice)) for group in own.parameter_groups)
    stacks = tuple(_stack_below(stack) for stack in own.stacks)
    return Anatomy(stacks=stacks, parameter_groups=(*groups, *_beside(model)))


def _beside(model: RetrievalModel) -> Iterator[ParameterGroup]:
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or name.startswith(f"{READER}."):
            continue
        component = RETRIEVER if name.startswith(f"{RETRIEVER}.") else PRIOR
        block = re.search(r"\.layer\.(\d+)\.", name)
        yield ParameterGroup(
            component=component,
            stack=component,
            layer=int(block.group(1)) if block else None,
            kind=None,
            slice=ParameterSlice(parameter=name),
            size=parameter.numel(),
        )


def _below(name: str) -> str:
    return f"{READER}.{name}"


def _slice_below(piece: ParameterSlice) -> ParameterSlice:
    return replace(piece, parameter=_below(piece.parameter))


def _stack_below(stack: Stack) -> Stack:
    layers = tuple(
        replace(
            layer,
            block=_below(layer.block),
            attentions={kind: _attention_below(one) for kind, one in layer.attentions.items()},
        )
        for layer in stack.layers
    )
    return replace(stack, layers=layers)


def _attention_below(one: Attention) -> Attention:
    parts = {
        name: None if (part := getattr(one, name)) is None else _projection_below(part)
        for name in ("query", "key", "value", "output")
    }
    return replace(one, module=_below(one.module), output_projection=_below(one.output_projection), **parts)  # type: ignore[arg-type]


def _projection_below(part: Projection) -> Projection:
    bias = None if part.bias is None else _slice_below(part.bias)
    return replace(part, weight=_slice_below(part.weight), bias=bias)
