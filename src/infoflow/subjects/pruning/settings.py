"""The section `[pruning]` of a study's plan."""

from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, runtime_checkable

from infoflow.architectures import Scope, check_trained_on
from infoflow.foundation import (
    Count,
    CountOrNone,
    DistinctNames,
    LearningRate,
    Limits,
    UserError,
    Weight,
    check_settings,
    one_of,
)
from infoflow.objectives import AbstractObjective

from .measures import GREEDY

Heads = Annotated[float, Limits(at_least=0, at_most=10**6)]
Penalties = Annotated[tuple[Weight, ...], Limits(filled=True)]
Scopes = Annotated[tuple[Scope, ...], Limits(filled=True)]


@dataclass(frozen=True, kw_only=True, slots=True)
class PruningPlan:
    """How heads of a study's converged models are pruned; disabled by default.

    A scope is a kind of attention ("encoder-self", "decoder-self", "decoder-cross") or "all", and limits which heads
    may be removed. A model is pruned in the scopes that it has. Numbers of heads below 1 are shares of the scope's
    heads.

    Gates continue training from one penalty to the next, so penalties should rise; 0 is the control that shows whether
    gates become 0 or 1 by themselves. At width 128 on short sentences (250 updates each) 0.003 left 33 of 48 encoder
    heads, 0.01 left 16, and 0.03 left 6 at a loss of half a BLEU. More updates let more gates decide.

    Each sweep step costs `updates` of training if gates are trained; each number in `subset` costs as much again, or
    twice that with `straight_through`. Each step from scratch costs a whole training. Each step that recovers costs
    twice `recover_updates`, and the control with all heads costs them once more. Every step also reads
    `score_sentences`, translates them by beam search unless `metric` is "loss", and with `roles` reads `role_sentences`
    with attention.
    """

    on: bool = False
    objectives: DistinctNames = ("translation",)  # objectives whose models are pruned, at every seed
    scopes: Scopes = ("encoder-self", "all")
    penalties: Penalties = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)  # weights of the mean number of open heads per attention
    updates: Count = 500  # updates of training at each penalty
    learning_rate: LearningRate = 2e-4  # constant
    gate_rate: Annotated[float, Limits(above=0, at_most=1e6)] = 100.0  # multiplies the learning rate of the gates
    greedy: tuple[str, ...] = ("importance", "confidence", "relevance", "random")  # also "iterative" (importance)
    random_draws: Annotated[int, Limits(at_least=0, at_most=1000)] = 3
    keep: tuple[Heads, ...] = ()  # numbers of heads of the greedy choices; empty: as many as the gates kept
    subset: tuple[Heads, ...] = ()  # numbers of heads that are learned exactly
    straight_through: bool = False  # also learn them with gates that are 0 or 1 in every update
    scratch: bool = False  # train from scratch, as long as the model, with the heads of a sweep step
    scratch_scopes: tuple[Scope, ...] = ()  # empty: all
    scratch_points: tuple[CountOrNone, ...] = ()  # sweep steps, from 0; empty: all
    recover: bool = False  # train the heads of a sweep step further; controls: as many random heads, and all heads
    recover_points: tuple[CountOrNone, ...] = ()  # sweep steps, from 0; empty: all steps that removed a head
    recover_updates: CountOrNone = 0  # 0: training.updates
    recover_learning_rate: Annotated[float, Limits(at_least=0, at_most=10)] = 0.0  # its peak; 0: that of training
    roles: bool = True  # measure roles again at each step of learned, random and scratch choices
    metric: Literal["bleu", "loss"] = "bleu"  # "bleu" in addition to the loss, for translation
    score_sentences: CountOrNone = 500  # number of the analysed sentences; 0: all
    rank_sentences: CountOrNone = 400  # sentences of the validation part, for greedy choices; 0: all
    role_sentences: CountOrNone = 1000  # number of the analysed sentences; 0: all
    save_every: CountOrNone = 250  # updates between checkpoints

    def __post_init__(self) -> None:
        check_settings(self, "pruning")
        one_of("pruning.greedy", self.greedy, GREEDY)
        if wrong := [k for k in (*self.keep, *self.subset) if k > 1 and k != int(k)]:
            raise UserError(
                f"pruning.keep and pruning.subset must be numbers of heads, or shares below 1. Got {wrong[0]}."
            )
        for name, points in (("scratch_points", self.scratch_points), ("recover_points", self.recover_points)):
            if wrong := [point for point in points if not 0 <= point < len(self.penalties)]:
                last = len(self.penalties) - 1
                raise UserError(f"pruning.{name} must lie in 0..{last}, one for each penalty. Got {wrong[0]}.")


@runtime_checkable
class _Prunes(Protocol):
    """The parts of a study's plan against which the section is checked."""

    @property
    def objectives(self) -> tuple[str, ...]: ...
    @property
    def pruning(self) -> PruningPlan: ...
    def objective(self, name: str) -> AbstractObjective: ...


def _check(plan: _Prunes) -> None:
    """Raise a UserError if the section names objectives that the plan does not train, or whose models have parts."""
    if plan.pruning.on:
        one_of("pruning.objectives", plan.pruning.objectives, plan.objectives)
        check_trained_on("pruning", {name: plan.objective(name).layout for name in plan.pruning.objectives})


SECTIONS = {"pruning": PruningPlan}
CHECKS = (_check,)
