"""Learn which heads a converged model needs: a sweep of penalties, or exactly k heads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from infoflow.foundation import UserError, as_written, current_display, digest
from infoflow.heads import Head, HeadSet
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.training import TrainConfig, TrainingData, train

from ._curve import scope_of
from ._freezing import only_training
from ._gated_objective import GatedObjective
from ._head_gates import HardConcreteGates, SubsetHeadGates, attached


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GatedPoint:
    """One point of a sweep: the gates as training left them. The model's weights are those of this point until the
    next one is asked for."""

    method: str  # "hard-concrete", "subset" or "straight-through"
    scope: str  # "all", or the kinds of attention whose heads have a gate
    setting: float  # weight of the penalty, or k
    heads: tuple[Head, ...]  # that have a gate
    values: tuple[float, ...]  # log α, or logits
    gates: tuple[float, ...]  # in evaluation
    alive: tuple[bool, ...]  # by the paper's rule
    alive_code: tuple[bool, ...]  # by the released code's
    undecided: int  # gates that evaluate to neither 0 nor 1
    folder: Path  # of this point's training run

    @property
    def removed(self) -> HeadSet:
        """Heads that the paper's rule counts as dead."""
        return frozenset(head for head, lives in zip(self.heads, self.alive, strict=True) if not lives)


def learn_gates(
    model: Model,
    objective: AbstractObjective,
    data: TrainingData,
    config: TrainConfig,
    out: Path | str,
    *,
    penalties: Sequence[float],
    kinds: Sequence[str] | None = ("encoder-self",),
    convention: str = "module_mean",
    gate_rate: float = 10.0,
    rest: str = "auto",
    seed: int = 0,
) -> Iterator[GatedPoint]:
    """Train a converged model on with Hard Concrete gates, from one penalty to the next.

    Each point continues with the weights and gates of the one before. A sweep that was interrupted anywhere continues
    when it is called again with the same arguments and the same converged model: finished points are read from `out`.
    With other penalties behind those it began with, it goes on from there.

    Args:
        model: The converged model; its weights change.
        objective: What it was trained for.
        data: To train on.
        config: Of the training at each penalty. `weight_decay=0` and a constant rate suit gates.
        out: Folder of the sweep: one run for each penalty.
        penalties: Weights of the penalty, usually rising.
        kinds: Attention whose heads have gates; all kinds for None.
        convention: `"module_mean"` or `"sum"`; see `HardConcreteGates`.
        gate_rate: Multiple of the learning rate for the gates: at the rates that suit a converged model's weights,
            log α would need thousands of steps to leave the range where a gate is undecided.
        rest: `"auto"` freezes the decoder of an encoder–decoder whose encoder alone has gates, so that functions
            cannot move there; `"train"` trains all weights, `"freeze"` the gates alone.
        seed: Of the gates' first values.

    Yields:
        A point per penalty.

    Raises:
        UserError: A penalty is negative, a kind is unknown, or `out` holds another sweep.

    Source: [@voita2019heads].
    """
    if not penalties or min(penalties) < 0:
        raise UserError(f"penalties must be one or more weights, 0 or larger. Got {as_written(list(penalties))}.")
    gates = HardConcreteGates(model, kinds, convention=convention, rate_scale=gate_rate, seed=seed)
    described = f"{gates.heads} {convention} rate {gate_rate} seed {seed} rest {rest} {objective!r}"
    with only_training(model, {head[0] for head in gates.heads}, rest), attached(model, gates):
        for index, penalty in enumerate(penalties):
            weighed = GatedObjective(inner=objective, weight=float(penalty), settings=described)
            before = digest(list(map(float, penalties[: index + 1])))[:8]  # what this point continues
            folder = Path(out) / f"penalty-{index:02}-{penalty:g}-{before}"
            train(weighed, config, data, model.module, folder)
            model.module.eval()
            point = _point("hard-concrete", kinds, float(penalty), gates, gates.log_alpha, folder)
            _tell(point)
            yield point


def learn_subset(
    model: Model,
    objective: AbstractObjective,
    data: TrainingData,
    config: TrainConfig,
    out: Path | str,
    *,
    k: int,
    kinds: Sequence[str] | None = None,
    straight_through: bool = False,
    gate_rate: float = 100.0,
    rest: str = "train",
    seed: int = 0,
) -> GatedPoint:
    """Train a converged model on with gates that let exactly k heads pass; see `learn_gates` for the arguments.

    Args:
        k: Heads to keep among those with a gate.
        straight_through: See `SubsetHeadGates`.
        rest: `"freeze"` is the "pipelined" variant: the logits learn, the model stays.

    Source: [@li2021subset], who give the logits a rate of .5 and the weights 2e-5.
    """
    gates = SubsetHeadGates(
        model, k, kinds, steps=config.updates, straight_through=straight_through, rate_scale=gate_rate, seed=seed
    )
    described = f"{gates.heads} k {k} {straight_through} rate {gate_rate} seed {seed} rest {rest} {objective!r}"
    weighed = GatedObjective(inner=objective, weight=0.0, settings=described)
    with only_training(model, {head[0] for head in gates.heads}, rest), attached(model, gates):
        folder = Path(out) / f"keep-{k:03}"
        train(weighed, config, data, model.module, folder)
        model.module.eval()
    method = "straight-through" if straight_through else "subset"
    return _point(method, kinds, float(k), gates, gates.logits, folder)


def _point(
    method: str,
    kinds: Sequence[str] | None,
    setting: float,
    gates: HardConcreteGates | SubsetHeadGates,
    values: torch.Tensor,
    folder: Path,
) -> GatedPoint:
    return GatedPoint(
        method=method,
        scope=scope_of(kinds),
        setting=setting,
        heads=tuple(gates.heads),
        values=tuple(values.detach().tolist()),
        gates=tuple(gates.evaluation_gates().detach().tolist()),
        alive=tuple(gates.alive("paper").tolist()),
        alive_code=tuple(gates.alive("code").tolist()),
        undecided=int(gates.undecided().sum()),
        folder=folder,
    )


def _tell(point: GatedPoint) -> None:
    display, kept = current_display(), sum(point.alive)
    display.note(f"penalty {point.setting:g}: {kept} of {len(point.heads)} heads stay, {point.undecided} undecided")
    if point.undecided:
        gates = "1 gate is" if point.undecided == 1 else f"{point.undecided} gates are"
        display.warn(
            f"{gates} still between 0 and 1 at penalty {point.setting:g}: the two rules for what "
            f"is alive give {kept} and {sum(point.alive_code)} heads. Train longer, or raise gate_rate."
        )
    if kept == 0:
        display.warn(f"penalty {point.setting:g} closed every gate: only the biases of these attentions are left.")
