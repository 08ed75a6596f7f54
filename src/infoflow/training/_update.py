"""One optimiser step, across micro-batches and processes, the hooks around it, and the loss on held-out sentences."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from infoflow._transformers import Accelerator, PreTrainedModel
from infoflow.flow import processes
from infoflow.foundation import UserError, hash64
from infoflow.models import ParameterSlice, evaluating
from infoflow.objectives import AbstractObjective, Batch

from ._config import Precision, TrainConfig, mixed_precision
from ._data import TrainingData, micro_batches


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Step:
    """One update, as hooks receive it."""

    update: int  # from 1
    total: int  # updates of the whole run
    learning_rate: float
    module: PreTrainedModel  # weights before the update in `on_step_begin`, after it in `on_step_end`
    objective: AbstractObjective
    batches: Sequence[Batch]  # this process's micro-batches


class TrainingHook:
    """A base class for hooks that does nothing. Hooks may draw random numbers, since training has its own seeds."""

    name = "hook"

    @property
    def ended(self) -> bool:
        """Whether training should end now, before its last update."""
        return False

    def on_step_begin(self, step: Step) -> None:
        """Called before the gradients of this update are computed."""

    def on_step_end(self, step: Step) -> None:
        """Called after the weights have changed; `.grad` still holds the (clipped) gradients of the update."""

    def on_train_end(self, module: PreTrainedModel) -> None:
        """Called after the last update of the run (not after an interruption)."""

    def state_dict(self) -> dict[str, Tensor]:
        """State for a checkpoint, so that a resumed run records the same numbers."""
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the state from `state_dict`."""


class FrozenSlices(TrainingHook):
    """Keeps slices of a module's parameters exactly at their initial values; see `frozen_slices`.

    Their gradient is set to 0 before clipping, so that it affects neither the gradient's norm nor the optimiser's
    moments. Changes by weight decay are undone after every update.
    """

    name = "frozen-slices"

    def __init__(self, module: nn.Module, slices: Iterable[ParameterSlice]) -> None:
        self._masks: dict[str, Tensor] = {}
        self._parameters: dict[str, nn.Parameter] = {}
        for piece in slices:
            parameter = self._parameters.setdefault(piece.parameter, module.get_parameter(piece.parameter))
            mask = self._masks.get(piece.parameter, torch.zeros(parameter.shape, dtype=torch.bool))
            self._masks[piece.parameter] = mask | piece.mask(parameter)
        self._kept = {name: self._parameters[name].detach().cpu()[mask].clone() for name, mask in self._masks.items()}
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def on_step_begin(self, step: Step) -> None:
        if not self._handles:  # not earlier, since training first moves the module to its device
            for name, mask in self._masks.items():
                hook = partial(lambda mask, gradient: gradient.masked_fill(mask.to(gradient.device), 0.0), mask)
                self._handles.append(self._parameters[name].register_hook(hook))

    def on_step_end(self, step: Step) -> None:
        with torch.no_grad():
            for name, mask in self._masks.items():
                parameter = self._parameters[name]
                parameter[mask.to(parameter.device)] = self._kept[name].to(parameter.device)

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._kept)

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Check that the run was started with the same frozen slices."""
        same = state.keys() == self._kept.keys()
        if not same or not all(torch.equal(state[name], kept) for name, kept in self._kept.items()):
            have = ", ".join(sorted(state)) or "none"
            raise UserError(
                "Training must continue with the same frozen weights. Got "
                f"{', '.join(sorted(self._kept))}; previously frozen: {have}, or with other values.\n"
                "Give another output folder, or freeze the same weights."
            )


@contextmanager
def frozen_slices(module: nn.Module, slices: Iterable[ParameterSlice]) -> Iterator[FrozenSlices]:
    """Yield a hook for `train` that freezes slices of the module's parameters until the end of the block.

    ```python
    with frozen_slices(model.module, head_slices(model, heads)) as hook:
        train(objective, config, data, model.module, out, hooks=[hook])
    ```
    """
    hook = FrozenSlices(module, slices)
    try:
        yield hook
    finally:
        hook.close()


class TrainingDiverged(UserError):
    """A loss or a gradient is not finite: the learning rate is too high, or the warm-up too short."""


class TrainingInterrupted(KeyboardInterrupt):
    """Training was asked to stop; its state is saved, and the same call continues it."""

    def __init__(self, update: int, folder: Path) -> None:
        super().__init__(f"Stopped after update {update}. Run the same command again to continue from {folder}.")
        self.update = update
        self.folder = folder


def make_accelerator(device: str = "auto") -> Accelerator:
    """An accelerator for `device` ("auto", "cpu", "cuda" or "mps"); our own autocast handles the precision.

    This call joins several processes, which watch each other from then on (`infoflow.flow.processes`).
    """
    on_cpu = usable_device(device) == "cpu"
    if on_cpu:
        processes()  # a group with our timeout; for CUDA devices, accelerate forms the group
    accelerator = Accelerator(cpu=on_cpu)
    processes()
    return accelerator


def usable_device(device: str) -> str:
    """The device to train on, with "auto" resolved."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        device = next(name for name in ("cuda", "mps", "cpu") if available[name])
    if not available.get(device, False):
        usable = ", ".join(name for name, usable in available.items() if usable)
        raise UserError(f'device must be "auto" or a device of this machine: {usable}. Got {device}.')
    return device


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class UpdateResult:
    losses: dict[str, Tensor]  # sum of each term in nats
    counts: dict[str, int]  # items of each term
    source_tokens: int
    target_tokens: int
    gradient_norm: Tensor  # before clipping
    stop: bool  # a process received a stop request


class LossModule(nn.Module):
    """The objective's loss as a module's forward pass, which data parallelism needs."""

    def __init__(self, module: PreTrainedModel, objective: AbstractObjective, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.module = module
        self._objective = objective
        self._label_smoothing = label_smoothing

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        terms = self._objective.loss(self.module, batch, batch.noise, self._label_smoothing)
        return {name: term.total for name, term in terms.items()}


class Updater:
    """Computes gradients and takes steps; holds everything that stays the same across updates."""

    def __init__(
        self,
        objective: AbstractObjective,
        module: PreTrainedModel,
        data: TrainingData,
        config: TrainConfig,
        accelerator: Accelerator,
    ) -> None:
        self._objective, self._data, self._config = objective, data, config
        self._accelerator = accelerator
        several, whole = accelerator.num_processes > 1, objective.compares_examples
        self._place, self._parts = (0, 1) if whole else (accelerator.process_index, accelerator.num_processes)
        self._exchanges = several and (whole or not objective.uses_all_parameters)
        loss = LossModule(module, objective, config.label_smoothing)
        # The module for evaluation: on its device and in its precision, without the gradient-exchange wrapper.
        self._loss = (
            accelerator.prepare_model(loss, evaluation_mode=True) if self._exchanges else accelerator.prepare(loss)
        )
        self._parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if self._exchanges:  # otherwise the wrapper does so
            for tensor in module.state_dict().values():
                torch.distributed.broadcast(tensor.detach(), src=0)
        self._source_lengths = np.asarray(data.source.lengths)
        uses_target = objective.needs_translation and data.target is not None
        self._target_lengths = np.asarray(data.target.lengths) if uses_target and data.target else None

    def batches(self, rows: np.ndarray, epoch: int) -> list[Batch]:
        """This process's micro-batches of an update: its share, or all of them if the loss compares examples."""
        share = rows[self._place :: self._parts]
        if len(share) == 0:
            return []
        pieces = micro_batches(share, self._source_lengths, self._target_lengths, self._config.micro_tokens)
        noise = ("training-noise", self._config.seed)
        return [self._data.batch(self._objective, piece, noise, epoch) for piece in pieces]

    def accumulate(self, batches: list[Batch], rows: np.ndarray, update: int, stop: bool) -> UpdateResult:
        """Put the clipped gradient of the loss, a mean over the whole update's tokens, into `.grad`."""
        totals = self._agree(batches, stop)
        scales = {
            name: weight * self._parts / max(totals[name], 1) for name, weight in self._objective.term_weights.items()
        }
        losses = {name: torch.zeros((), device=self._accelerator.device) for name in scales}
        # A process without sentences takes part in the wrapper's exchange by computing one sentence with weight 0.
        idle = not batches and not self._exchanges
        work = [self._data.batch(self._objective, rows[:1], ("idle",), 0)] if idle else batches
        for index, batch in enumerate(work):
            # Dropout depends on the seed and this forward pass, so a resumed run repeats it.
            _seed(hash64("dropout", self._config.seed, update, index, self._place), self._accelerator.device)
            last = index == len(work) - 1
            with nullcontext() if last else self._accelerator.no_sync(self._loss):
                terms = self._loss(batch.to(self._accelerator.device))
                terms_scaled = [terms[name] * (0.0 if idle else scale) for name, scale in scales.items()]
                torch.stack(terms_scaled).sum().backward()
            if not idle:
                losses = {name: losses[name] + terms[name].detach() for name in losses}
        if self._exchanges:
            mean_gradients(self._parameters, self._accelerator.num_processes)
        return UpdateResult(
            losses=self._sum(losses),
            counts={name: totals[name] for name in scales},
            source_tokens=totals["source tokens"],
            target_tokens=totals["target tokens"],
            gradient_norm=self._clip(),
            stop=totals["stop"] > 0,
        )

    def _agree(self, batches: list[Batch], stop: bool) -> dict[str, int]:
        """Sum the update's denominators over processes, before any backward pass."""
        counts: dict[str, int] = dict.fromkeys(self._objective.term_weights, 0)
        for batch in batches:
            for name, count in self._objective.counts(batch).items():
                counts[name] += count
        counts["source tokens"] = sum(batch.source_tokens for batch in batches)
        counts["target tokens"] = sum(batch.target_tokens for batch in batches)
        counts["stop"] = int(stop)
        if self._accelerator.num_processes == 1:
            return counts
        values = torch.tensor(list(counts.values()), dtype=torch.int64, device=self._accelerator.device)
        torch.distributed.all_reduce(values)
        copies = self._accelerator.num_processes // self._parts  # the processes compute the same examples
        totals = dict(zip(counts, values.tolist(), strict=True))
        return {name: total if name == "stop" else total // copies for name, total in totals.items()}

    def _sum(self, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        if self._parts > 1:
            values = torch.stack(list(losses.values()))
            torch.distributed.all_reduce(values)
            return dict(zip(losses, values.unbind(), strict=True))
        return losses

    def _clip(self) -> Tensor:
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if self._config.clip:
            nn.utils.clip_grads_with_norm_(self._parameters, self._config.clip, norm)
        return norm


def _seed(seed: int, device: torch.device) -> None:
    """Do what `torch.manual_seed` does, but without its .4 ms for two stack traces on a machine without GPUs."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


def mean_gradients(parameters: Sequence[nn.Parameter], processes: int) -> None:
    r"""Put \(\frac{1}{P} \sum_p g_p\) into `.grad` of every process; a missing gradient counts as 0.

    A parameter that has no gradient in any process gets none, so that an optimiser leaves it unchanged.
    `DistributedDataParallel` cannot be used instead, because it expects every parameter to be used in an update's last
    forward pass; the gradient of a parameter used only in an earlier pass would stay in one process.
    """
    if not parameters:
        return
    device = parameters[0].device
    present = torch.tensor([parameter.grad is not None for parameter in parameters], dtype=torch.int32, device=device)
    torch.distributed.all_reduce(present, op=torch.distributed.ReduceOp.MAX)
    used = [one for one, anywhere in zip(parameters, present.tolist(), strict=True) if anywhere]
    if not used:
        return
    own = [torch.zeros_like(one) if one.grad is None else one.grad for one in used]
    summed = torch.cat([gradient.reshape(-1) for gradient in own])
    torch.distributed.all_reduce(summed)
    parts = (summed / processes).split([one.numel() for one in used])
    for parameter, gradient, mean in zip(used, own, parts, strict=True):
        gradient.copy_(mean.view_as(gradient))
        parameter.grad = gradient


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    losses: dict[str, float]  # nats per supervised item
    counts: dict[str, int]
    loss: float  # weighted sum of the terms: what training minimises, without label smoothing

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))


def evaluate(
    objective: AbstractObjective,
    module: PreTrainedModel,
    data: TrainingData,
    seed: int = 0,
    micro_tokens: int = 4096,
    precision: Precision = "fp32",
) -> Evaluation:
    """The loss of `module` on `data`, without dropout of units or tokens.

    A sentence's noise, both for its corruption and for a stochastic loss, is keyed only by (seed, sentence id), so it
    is the same at every evaluation. `module` keeps its mode, and random states are not touched.
    """
    objective = objective.for_evaluation()
    rows = np.arange(len(data.source.lengths))
    targets = np.asarray(data.target.lengths) if objective.needs_translation and data.target is not None else None
    pieces = micro_batches(rows, np.asarray(data.source.lengths), targets, micro_tokens)
    totals = dict.fromkeys(objective.term_weights, 0.0)
    counts = dict.fromkeys(objective.term_weights, 0)
    device = next(module.parameters()).device
    with evaluating(module), mixed_precision(module, precision, device):
        for piece in pieces:
            batch = data.batch(objective, piece, ("evaluation-noise", seed), 0).to(device)
            for name, term in objective.loss(module, batch, batch.noise).items():
                totals[name] += float(term.total)
                counts[name] += term.count
    means = {name: totals[name] / max(counts[name], 1) for name in totals}
    return Evaluation(losses=means, counts=counts, loss=objective.weighted(means))
