"""Forward passes for a set: packed if the model can separate the sentences of a row."""

import inspect
from collections.abc import Sequence
from itertools import islice

from torch import Tensor
from transformers import PreTrainedModel

from infoflow.models import Anatomy, Stack
from infoflow.objectives import AbstractObjective, Batch

from ._evaluation_set import EvaluationSet
from ._gradient import FlatParameters, pass_gradients
from ._packing import PACKED, PackReader, packed
from ._pass import ModelPass
from ._sharing import share

_TRIED = 12  # sentences for testing packing
_ROUNDING = 1e-3  # relative to the norm of a parameter's gradient; sentences that see each other differ by more


def passes_of(
    module: PreTrainedModel, flat: FlatParameters, anatomy: Anatomy, one: EvaluationSet
) -> tuple[tuple[ModelPass, ...], ...]:
    """This process's passes over each part of a set, on the model's device; call it while training is undisturbed.

    Sentences are packed if the stacks accept positions and masks and packing leaves losses and gradients unchanged,
    which is tested on a few sentences; otherwise the set's own batches are used.
    """
    readers = _readers(module, anatomy)
    packs = (
        not (one.moving or one.objective.draws)
        and _fits(one.parts, readers)
        and _changes_nothing(module, flat, one, readers)
    )
    parts: tuple[tuple[ModelPass, ...], ...] = tuple(
        packed(batches, readers, one.micro_tokens, share(), flat.dtype) if packs else plain(batches[share()])
        for batches in one.parts
    )
    return tuple(tuple(each.to(module.device) for each in part) for part in parts)


def plain(batches: Sequence[Batch]) -> tuple[ModelPass, ...]:
    """Passes over batches as they are."""
    return tuple(ModelPass(batch=batch) for batch in batches)


def _readers(module: PreTrainedModel, anatomy: Anatomy) -> list[PackReader]:
    """The stacks that read the input and the decoder's input; empty if one of them accepts no positions or masks."""
    if not all(stack.layers for stack in anatomy.stacks):  # static vectors
        return []
    readers = [PackReader(module=_module_of(module, stack), causal=stack.causal) for stack in anatomy.stacks]
    for number, reader in enumerate(readers):
        accepted = inspect.signature(module.get_submodule(reader.module).forward).parameters
        needed = {"position_ids", "attention_mask", *(["encoder_attention_mask"] if number else [])}
        if not needed <= accepted.keys() or "global_attention_mask" in accepted:  # Longformer masks tokens, not pairs
            return []
    return readers


def _module_of(module: PreTrainedModel, stack: Stack) -> str:
    """The innermost model around a stack's blocks."""
    name = stack.layers[0].block
    while name:
        name = name.rpartition(".")[0]
        if isinstance(module.get_submodule(name), PreTrainedModel):
            break
    return name


def _fits(parts: tuple[tuple[Batch, ...], ...], readers: list[PackReader]) -> bool:
    """Whether packing arguments exist, and every position of the last stack has a label."""
    if not readers:
        return False
    for batch in (batch for part in parts for batch in part):
        if not {"input_ids", "labels"} <= batch.tensors.keys() <= PACKED:
            return False
        read = batch.input_ids if len(readers) == 1 else batch.decoder_input_ids
        if read is None or batch.labels.shape != read.shape or (len(readers) == 1) != (batch.decoder_input_ids is None):
            return False
    return True


def _changes_nothing(
    module: PreTrainedModel, flat: FlatParameters, one: EvaluationSet, readers: list[PackReader]
) -> bool:
    """Whether packing leaves losses and gradients unchanged, up to rounding, on a few sentences of all lengths."""
    few = [_first_rows(batch, 1 + _TRIED // len(one.parts[0])) for batch in islice(one.parts[0], _TRIED)]
    ways = plain(few), packed(few, readers, one.micro_tokens, slice(None), flat.dtype)
    found = [_gradients(module, flat, one.objective, passes) for passes in ways]
    for name, apart in found[0].items():
        together, scale = found[1][name], float(apart.norm())
        for a, b in zip(flat.views(apart), flat.views(together), strict=True):
            if not float((a - b).norm()) <= _ROUNDING * max(float(a.norm()), _ROUNDING * scale):
                return False
    return True


def _gradients(
    module: PreTrainedModel, flat: FlatParameters, objective: AbstractObjective, passes: Sequence[ModelPass]
) -> dict[str, Tensor]:
    passes = [each.to(module.device) for each in passes]
    return pass_gradients(module, flat, objective, passes, set())[1]


def _first_rows(batch: Batch, number: int) -> Batch:
    cut = {name: tensor[:number] for name, tensor in batch.tensors.items()}
    return Batch(tensors=cut, source_tokens=0, target_tokens=0, supervised_tokens=0)
