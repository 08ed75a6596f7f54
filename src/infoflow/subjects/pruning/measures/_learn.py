"""Learn which heads a converged model needs, by a sweep of penalties or with exactly k heads, or train it further."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from infoflow._transformers import PreTrainedModel
from infoflow.architectures import Layout
from infoflow.foundation import UserError, as_written, current_display, digest
from infoflow.heads import Head, HeadSet, ablate
from infoflow.models import Model
from infoflow.objectives import AbstractObjective, Batch, Corrupted, Example, LossTerm, Noise, Vocabulary
from infoflow.training import TrainConfig, TrainingData, train

from ._curve import scope_of
from ._head_gates import ATTRIBUTE, AbstractHeadGates, HardConcreteGates, SubsetHeadGates, attached


@contextmanager
def only_training(model: Model, stacks: Collection[str], rest: str) -> Iterator[None]:
    """Freeze parts of the model while heads of these stacks are pruned; afterwards everything is trainable as before.

    Args:
        stacks: Stacks whose heads are pruned.
        rest: `"auto"` freezes the decoder of an encoder–decoder if only its encoder is pruned, so that functions cannot
            move there; `"train"` freezes nothing, `"freeze"` the whole model.
    """
    if rest not in ("auto", "train", "freeze"):
        raise UserError(f'rest must be "auto", "train" or "freeze". Got {rest}.')
    decoder = rest == "auto" and len(model.anatomy.stacks) > 1 and set(stacks) == {"encoder"}
    encoder_only: set[torch.nn.Parameter] = set(model.module.get_encoder().parameters()) if decoder else set()
    frozen = [
        parameter
        for parameter in model.module.parameters()
        if parameter.requires_grad and (rest == "freeze" or (decoder and parameter not in encoder_only))
    ]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)


def recover(
    model: Model,
    objective: AbstractObjective,
    data: TrainingData,
    config: TrainConfig,
    out: Path | str,
    *,
    removed: HeadSet,
    freeze_decoder: bool = False,
) -> Path:
    """Continue training a model without the removed heads, with the original loss: no gates, no penalty.

    After an interruption, another call with the same arguments and initial weights continues; a finished run is read
    from disk.

    Args:
        model: The model with its initial weights, which change. Its heads stay in the weights: ablate them to use it.
        objective: Its training objective.
        data: Training data.
        config: Settings of this training. A learning rate that starts as high as in the first training and falls again
            ("learning-rate rewinding") recovers more than the low constant rate for learned gates.
        out: Folder that holds one run for each choice of heads and of frozen parts.
        removed: Heads whose output is 0 throughout.
        freeze_decoder: Train only the encoder of an encoder–decoder, as `learn_gates` does for encoder heads.

    Returns:
        The folder of the run.

    Raises:
        UserError: The folder holds a training with other settings or initial weights; or there is no decoder to freeze.

    Source: [@renda2020], who compare rates and initial weights for pruned single weights and channels of convolutions;
    we know of no published result for heads.
    """
    if freeze_decoder and len(model.anatomy.stacks) == 1:
        raise UserError(f"freeze_decoder needs an encoder-decoder. Got {model.name}, which has a single stack.")
    kept = digest([sorted(removed), freeze_decoder])[:8]
    folder = Path(out) / f"without-{len(removed)}-{kept}"
    with only_training(model, ["encoder"], "auto" if freeze_decoder else "train"), ablate(model, sorted(removed)):
        train(objective, config, data, model.module, folder)
    model.module.eval()
    return folder


TERM = "gates"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GatedPoint:
    """One point of a sweep, with its trained gates.

    The model has this point's weights until the next one is requested.
    """

    method: str  # "hard-concrete", "subset" or "straight-through"
    scope: str  # "all", or the kinds of attention with gated heads
    setting: float  # weight of the penalty, or k
    heads: tuple[Head, ...]  # gated heads
    values: tuple[float, ...]  # log α, or logits
    gates: tuple[float, ...]  # values in evaluation
    alive: tuple[bool, ...]  # whether the gate is not 0 in evaluation; undecided gates are included
    alive_paper: tuple[bool, ...]  # log α above 0: the paper's rule; both rules agree once all gates are decided
    undecided: int  # gates that evaluate to neither 0 nor 1
    folder: Path  # folder of this point's training run

    @property
    def removed(self) -> HeadSet:
        """Heads whose gate is 0 in evaluation."""
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
    """Continue training a converged model with Hard Concrete gates, through a sequence of penalties.

    Each point starts with the weights and gates of the previous one. An interrupted sweep continues when called again
    with the same arguments and the same converged model: finished points are read from `out`. Further penalties may be
    appended.

    Args:
        model: The converged model; its weights change.
        objective: Its training objective.
        data: Training data.
        config: Settings of the training at each penalty. Gates need `weight_decay=0` and a constant rate.
        out: Folder of the sweep: one run for each penalty.
        penalties: Weights of the penalty, usually increasing.
        kinds: Kinds of attention with gated heads; None: all.
        convention: `"module_mean"` or `"sum"`; see `HardConcreteGates`.
        gate_rate: Factor on the learning rate of the gates: at a converged model's rates, log α would need thousands of
            steps to leave the undecided range.
        rest: `"auto"` freezes the decoder of an encoder–decoder if only its encoder has gates, so that functions cannot
            move there; `"train"` trains all weights, `"freeze"` only the gates.
        seed: Seeds the gates' initial values.

    Yields:
        One point per penalty.

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
            before = digest(list(map(float, penalties[: index + 1])))[:8]  # the points from which this one continues
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
    """Continue training a converged model with gates that let exactly k heads pass; arguments as in `learn_gates`.

    Args:
        k: Number of gated heads to keep.
        straight_through: See `SubsetHeadGates`.
        rest: `"freeze"` is the "pipelined" variant: only the logits learn.

    Source: [@li2021subset], who use a rate of .5 for the logits and 2e-5 for the weights.
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
        alive=tuple(gates.alive("code").tolist()),
        alive_paper=tuple(gates.alive("paper").tolist()),
        undecided=int(gates.undecided().sum()),
        folder=folder,
    )


def _tell(point: GatedPoint) -> None:
    display, kept = current_display(), sum(point.alive)
    stay = f"{kept} of {len(point.heads)} gated heads stay"
    display.note(f"penalty {point.setting:g}: {stay}, {point.undecided} of them undecided")
    if point.undecided:
        gates = "1 gate is" if point.undecided == 1 else f"{point.undecided} gates are"
        display.warn(
            f"{gates} still between 0 and 1 at penalty {point.setting:g}, and an undecided head counts as kept: {kept} "
            f"are kept, or {sum(point.alive_paper)} by the sign of log α. Train longer, or raise gate_rate."
        )
    if kept == 0:
        display.warn(
            f"penalty {point.setting:g} closed every gate: only the biases of these attention modules are left."
        )


@dataclass(frozen=True, kw_only=True)
class GatedObjective(AbstractObjective):
    """The model's training objective, with new gates for each batch, plus `weight` times their penalty.

    Use it while gates are attached to the module (`attached`). Held-out sentences are scored by the plain objective
    with evaluation gates.
    """

    name: ClassVar[str] = "gated"
    layout: ClassVar[Layout] = "encoder"
    term_weights: ClassVar[dict[str, float]] = {}

    inner: InitVar[AbstractObjective]
    weight: float  # weight of the gates' penalty
    settings: str  # settings of the gates and the inner objective, part of a run's key

    def __post_init__(self, inner: AbstractObjective) -> None:
        facts: dict[str, Any] = {
            "_inner": inner,
            "name": inner.name,
            "layout": inner.layout,
            "needs_translation": inner.needs_translation,
            "draws": inner.draws,
            "reads": inner.reads,
            "writes": inner.writes,
            "term_weights": {**inner.term_weights, TERM: self.weight},
        }
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    @property
    def plain(self) -> AbstractObjective:
        """The objective without gates."""
        return getattr(self, "_inner")  # noqa: B009 (set past the frozen dataclass)

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        return self.plain.corrupt(example, generator, vocabulary)

    def noise_epoch(self, epoch: int) -> int:
        return self.plain.noise_epoch(epoch)

    def for_evaluation(self) -> AbstractObjective:
        return self.plain.for_evaluation()

    def collate(
        self,
        examples: Sequence[Corrupted],
        vocabulary: Vocabulary,
        target: Vocabulary | None = None,
        noise: Noise | None = None,
    ) -> Batch:
        return self.plain.collate(examples, vocabulary, target, noise)

    def exported(self, module: PreTrainedModel) -> PreTrainedModel:
        return self.plain.exported(module)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {**self.plain.counts(batch), TERM: 1}

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        gates = getattr(module, ATTRIBUTE)
        assert isinstance(gates, AbstractHeadGates)
        gates.draw()
        terms = self.plain.loss(module, batch, noise, label_smoothing)
        return {**terms, TERM: LossTerm(total=gates.penalty(), count=1)}
