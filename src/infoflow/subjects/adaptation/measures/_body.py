"""A model's body: the part that pretraining and tuning share, without prediction heads."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from transformers import EncoderDecoderModel, PreTrainedModel

from infoflow.foundation import UserError
from infoflow.models import FastLinear, Model, ParameterGroup, load_model, without_cache

from ._forward import has_segments
from ._task_part import TaskBatch
from ._task_rows import SEGMENTS

OF_HEADS = ("head", "pooler")  # a pooler is created if the pretrained model lacks one
EMBEDDINGS = ("embeddings", "positions", "segments")


@dataclass(frozen=True, kw_only=True, slots=True)
class BodyGroup:
    """One parameter group of a body, by the name that it has in every model with this body."""

    name: str
    group: ParameterGroup

    @property
    def layer(self) -> int:
        """Block, from 0; -1 outside of the blocks."""
        return -1 if self.group.layer is None else self.group.layer

    @property
    def component(self) -> str:
        """See `component_name`."""
        return component_name(self.group.component, self.group.kind)

    @property
    def of_embeddings(self) -> bool:
        """Whether it lies below the blocks."""
        return self.layer < 0 and (self.group.component in EMBEDDINGS or "emb" in self.name)


def component_name(component: str, kind: str | None) -> str:
    """As in the anatomy; cross-attention has the prefix "cross"."""
    return f"cross {component}" if kind == "cross" else component


def body_groups(model: Model) -> list[BodyGroup]:
    """The parameter groups of a model's body."""
    every = dict(model.module.named_parameters())
    # By identity: a matrix tied to an output matrix may have that matrix's name.
    inside = {parameter: name for name, parameter in model.module.base_model.named_parameters()}
    found = [(inside.get(every[group.slice.parameter]), group) for group in model.anatomy.parameter_groups]
    return [BodyGroup(name=name, group=group) for name, group in found if name and group.component not in OF_HEADS]


def body_parameters(model: Model) -> dict[str, nn.Parameter]:
    """A body's parameters by the names that they have in every model with this body."""
    parameters = dict(model.module.base_model.named_parameters())
    return {one.name: parameters[one.name] for one in body_groups(model)}


def began_as(before: Model, after: Sequence[Model]) -> Model:
    """The model that the tuning started from; it shares its weights with `before`.

    This is `before`, or the encoder of a two-model `EncoderDecoderModel` if only the encoder was tuned.

    Raises:
        UserError: A tuned model has another body.
    """
    start, module = before, before.module
    if isinstance(module, EncoderDecoderModel) and not any(
        isinstance(one.module, EncoderDecoderModel) for one in after
    ):
        start = replace(load_model(module.encoder, tokenizer=before.tokenizer), name=before.name)
    for one in after:
        check_bodies(start, one)
    return start


def check_bodies(before: Model, after: Model) -> None:
    """Refuse models that were not tuned from `before`.

    Raises:
        UserError: Their bodies differ in their parameters, or in the shape of one.
    """
    ours, theirs = ({name: tuple(p.shape) for name, p in body_parameters(one).items()} for one in (before, after))
    if ours == theirs:
        return
    odd = next(name for name in [*ours, *theirs] if ours.get(name) != theirs.get(name))
    raise UserError(
        f"A tuned model is compared with its pretrained model. {odd} has the shape "
        f"{ours.get(odd, 'none')} in {before.name} and {theirs.get(odd, 'none')} in {after.name}. Pass the pretrained "
        "model that was tuned; adapters must be merged into the weights."
    )


def run_body(model: Model, batch: TaskBatch) -> None:
    """Run the stacks without any head on the task's examples; inspect them with a `tap`."""
    body = model.module.base_model
    with FastLinear():
        if len(model.anatomy.stacks) > 1 and "decoder_input_ids" not in batch.inputs:
            encoder = model.module.get_encoder()
            encoder(**_accepted(encoder, batch.inputs))
            return
        body(**_accepted(body, batch.inputs), **without_cache(body))


def _accepted(module: PreTrainedModel, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names = set(inspect.signature(module.forward).parameters) - (set() if has_segments(module) else {SEGMENTS})
    return {name: value for name, value in inputs.items() if name in names}


@contextmanager
def with_weights(model: Model, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Replace some of the body's parameters inside a `with` block.

    The model's own are restored exactly, also after an error.
    """
    parameters = body_parameters(model)
    saved = {name: parameters[name].detach().clone() for name in values}
    try:
        _write(parameters, values)
        yield
    finally:
        _write(parameters, saved)


@torch.no_grad()
def _write(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        parameters[name].copy_(value)
