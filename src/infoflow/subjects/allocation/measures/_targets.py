"""Targets of a recording: terms of losses on sets of sentences, distributed over processes."""

import inspect
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.foundation import UserError
from infoflow.models import Anatomy, Stack
from infoflow.objectives import Batch

from ._gradient import EvaluationSet, FlatParameters, ModelPass, pass_gradients, pass_losses
from ._packing import PACKED, PackReader, packed

# Distribution of examples over processes.


def rank() -> tuple[int, int]:
    """This process's number and the number of processes."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def share() -> slice:
    """The slice of a part's batches that this process handles."""
    number, processes = rank()
    return slice(number, None, processes)


def added_up(losses: dict[str, float]) -> dict[str, float]:
    """Losses summed over processes, float64."""
    if rank()[1] == 1:
        return losses
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    values = torch.tensor(list(losses.values()), dtype=torch.float64, device=device)
    torch.distributed.all_reduce(values)
    return dict(zip(losses, values.tolist(), strict=True))


# Targets of a recording: terms of losses on sets of sentences, with each set in parts.


Channel = tuple[int, str, int]  # set, term of the loss, part
_TRIED = 12  # number of sentences on which packing is tested
_ROUNDING = 1e-3  # relative to the norm of a parameter's gradient; sentences that see each other differ by more


class Targets:
    """Losses and gradients at a module's current weights, as shares of the mean over the whole set.

    A target is a term of the loss on a set; a channel is a target on one of the set's parts. Under `torchrun` every
    process takes its share of the examples, and losses and gradients are summed over processes.
    """

    def __init__(self, sets: Sequence[EvaluationSet]) -> None:
        if not sets or len({one.name for one in sets}) < len(sets) or len({len(one.parts) for one in sets}) > 1:
            raise UserError("The sets of a recording must have different names and the same number of parts.")
        self.sets = tuple(sets)
        self.rows = [(index, term) for index, one in enumerate(sets) for term in one.objective.term_weights]
        self.parts = len(sets[0].parts)
        self.used: set[int] = set()  # indices of the parameters with a gradient
        self._passes: list[tuple[tuple[ModelPass, ...], ...]] = []  # by set and part

    def prepare(self, module: PreTrainedModel, flat: FlatParameters, anatomy: Anatomy) -> None:
        """Prepare the sentences of the sets as input for the module."""
        self._flat = flat
        self._passes = [passes_of(module, flat, anatomy, one) for one in self.sets]

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """(set, part), in execution order."""
        return [(index, part) for index in range(len(self.sets)) for part in range(self.parts)]

    def channels(self, index: int, part: int) -> list[Channel]:
        return [(index, term, part) for term in self.sets[index].objective.term_weights]

    def row(self, channel: Channel) -> int:
        """Index of the channel's target."""
        return self.rows.index(channel[:2])

    def losses(self, module: PreTrainedModel, index: int, part: int) -> dict[str, float]:
        """Loss of each term on a part."""
        return self._divided(index, pass_losses(module, self.sets[index].objective, self._passes[index][part]))

    def gradients(
        self, module: PreTrainedModel, index: int, part: int
    ) -> tuple[dict[str, float], dict[Channel, Tensor]]:
        """Loss and gradient of each term on a part."""
        one, passes = self.sets[index], self._passes[index][part]
        losses, gradients = pass_gradients(module, self._flat, one.objective, passes, self.used)
        for term, gradient in gradients.items():
            gradient.div_(max(one.totals[term], 1))
            if rank()[1] > 1:
                torch.distributed.all_reduce(gradient)
        named = {(index, term, part): gradient for term, gradient in gradients.items()}
        return self._divided(index, losses), named

    def slopes(self, gradients: Mapping[Channel, Tensor], delta: Tensor) -> np.ndarray:
        """Sum over parts of each target's gradient times Δ."""
        slopes = np.zeros(len(self.rows))
        for channel, gradient in gradients.items():
            slopes[self.row(channel)] += float(torch.dot(gradient, delta))
        return slopes

    def _divided(self, index: int, losses: dict[str, float]) -> dict[str, float]:
        totals = self.sets[index].totals
        return {term: loss / max(totals[term], 1) for term, loss in added_up(losses).items()}


def passes_of(
    module: PreTrainedModel, flat: FlatParameters, anatomy: Anatomy, one: EvaluationSet
) -> tuple[tuple[ModelPass, ...], ...]:
    """This process's passes over each part of a set, on the model's device; call it inside `undisturbed`.

    Sentences are packed if the stacks accept positions and masks and packing leaves losses and gradients unchanged,
    which is tested on a few sentences; otherwise the set's own batches are used.
    """
    readers = _readers(module, anatomy)
    packs = not one.objective.draws and _fits(one.parts, readers) and _changes_nothing(module, flat, one, readers)
    parts: tuple[tuple[ModelPass, ...], ...] = tuple(
        packed(batches, readers, one.micro_tokens, share(), flat.dtype) if packs else plain(batches[share()])
        for batches in one.parts
    )
    return tuple(tuple(each.to(module.device) for each in part) for part in parts)


def plain(batches: Sequence[Batch]) -> tuple[ModelPass, ...]:
    """Passes over the batches without packing."""
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
    """Whether packing is possible, which needs readers and a label for every position of the last stack."""
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
    found = [
        pass_gradients(module, flat, one.objective, [each.to(module.device) for each in passes], set())[1]
        for passes in ways
    ]
    for name, apart in found[0].items():
        together, scale = found[1][name], float(apart.norm())
        for a, b in zip(flat.views(apart), flat.views(together), strict=True):
            if not float((a - b).norm()) <= _ROUNDING * max(float(a.norm()), _ROUNDING * scale):
                return False
    return True


def _first_rows(batch: Batch, number: int) -> Batch:
    cut = {name: tensor[:number] for name, tensor in batch.tensors.items()}
    return Batch(tensors=cut, source_tokens=0, target_tokens=0, supervised_tokens=0)
