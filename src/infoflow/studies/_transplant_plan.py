"""The table `[transplant]` of a study's plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from infoflow.foundation import Count, CountOrNone, Limits, UserError, as_written, check_settings
from infoflow.objectives import AbstractObjective
from infoflow.over_training import checkpoint_steps
from infoflow.pruning import ALL_HEADS
from infoflow.training import ModelConfig, TrainConfig

from ._plan_checks import TRAINED_ON, one_of
from ._plan_sections import Scope
from ._scopes import kinds_of, layers_in

# What families beside these have in a head is not all in projections that are its own: one set of weights for all
# layers, projections for global tokens.
FITTING = ("bert", "gpt2", "t5")


@dataclass(frozen=True, kw_only=True, slots=True)
class TransplantPlan:
    """How heads of a study's trained models are put into fresh ones; off unless asked for.

    A fresh model of each seed begins from first weights of another seed and is trained once for every arm: with the
    trained model's specialised heads in place of its own, with as many others drawn at random from the same layers,
    with the specialised ones shuffled, and as it is. Each head goes into the same layer, at the same number.

    It costs `updates` of training for each arm, (3 + random_draws) times the length of `frozen`, and a reading of
    `score_sentences` at each point of the learning curves.
    """

    on: bool = False
    objectives: Annotated[tuple[str, ...], Limits(filled=True)] = ("translation",)  # at every seed
    scope: Scope = "encoder-self"  # whose heads
    heads: Annotated[float, Limits(above=0, at_most=10**6)] = 0.25  # a number, or below 1 a share of the scope's
    # In this order: heads with a role (positional, of a relation, rarest token), the most important ones.
    choose: Annotated[tuple[Literal["roles", "importance"], ...], Limits(filled=True)] = ("roles", "importance")
    frozen: Annotated[tuple[bool, ...], Limits(filled=True)] = (False, True)  # do the heads learn on, or stay?
    updates: CountOrNone = 0  # of each fresh model; 0: a third of training.updates
    schedule: str = "log:12"  # points of the learning curves, as in [checkpoints]
    random_draws: Count = 2
    metric: Literal["bleu", "loss"] = "bleu"  # "bleu" beside the loss at the end, for translation
    rank_sentences: CountOrNone = 400  # of the validation part, for importance; 0: all
    role_sentences: CountOrNone = 1000  # likewise, for roles
    score_sentences: CountOrNone = 500  # of the analysed ones, the same at all points; 0: all
    save_every: CountOrNone = 250  # updates between checkpoints

    def __post_init__(self) -> None:
        check_settings(self, "transplant")
        for name in ("objectives", "choose", "frozen"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise UserError(
                    f"transplant.{name} must be a list of different values. Got {as_written(values)}. Leave out one."
                )
        if self.heads > 1 and self.heads != int(self.heads):
            raise UserError(f"transplant.heads must be a number of heads, or a share below 1. Got {self.heads}.")

    def num_updates(self, training: TrainConfig) -> int:
        """Of each fresh model."""
        return self.updates or max(training.updates // 3, 1)

    def steps(self, training: TrainConfig) -> list[int]:
        """Points of the learning curves: 0, the last update, and those of the schedule."""
        updates = self.num_updates(training)
        return checkpoint_steps(self.schedule, updates)

    def num_heads(self, available: int) -> int:
        """How many heads are put in, of so many."""
        return max(round(self.heads * available), 1) if self.heads < 1 else int(self.heads)


@runtime_checkable
class Transplants(Protocol):
    """What of a study's plan the table is checked against."""

    @property
    def objectives(self) -> tuple[str, ...]: ...
    @property
    def architectures(self) -> tuple[str, ...]: ...
    @property
    def model(self) -> ModelConfig: ...
    @property
    def match(self) -> Any: ...
    @property
    def training(self) -> TrainConfig: ...
    @property
    def transplant(self) -> TransplantPlan: ...
    def objective(self, name: str) -> AbstractObjective: ...


def check_transplants(plan: Transplants) -> None:
    """Raise a UserError where heads of the plan's models cannot be put into fresh ones as it asks."""
    asked = plan.transplant
    if asked.on:
        one_of("transplant.objectives", asked.objectives, plan.objectives)
        _check_families(plan.architectures)
        for name in asked.objectives:
            _check_heads(plan, name, plan.objective(name))
    try:
        asked.steps(plan.training)
    except UserError:
        last = asked.num_updates(plan.training)
        raise UserError(
            f"transplant.schedule must be log:K, linear:K or every:M (K and M from 1), powers, or different updates up "
            f"to the last, {last:,}, such as 10,{last}; + joins them. Got {as_written(asked.schedule)}."
        ) from None


def _check_families(families: Sequence[str]) -> None:
    if unfit := [family for family in families if family not in FITTING]:
        raise UserError(
            f"Heads can be put into fresh models of {', '.join(FITTING)}, where each has projections of its own. Got "
            f"the architecture {as_written(unfit[0])}. Leave it out, or set transplant.on to false."
        )


def _check_heads(plan: Transplants, name: str, objective: AbstractObjective) -> None:
    asked, layout = plan.transplant, objective.layout
    if layout not in TRAINED_ON or objective.teacher:
        raise UserError(
            f"transplant.objectives must train a model without further parts ({', '.join(TRAINED_ON)}) and without a "
            f"teacher. Got {name}. Leave it out."
        )
    kinds = kinds_of(layout)
    if asked.scope != ALL_HEADS and asked.scope not in kinds:
        raise UserError(
            f"transplant.scope must be a kind of attention that {name} has ({', '.join(kinds)}), or all. Got "
            f"{asked.scope}. Choose another, or leave {name} out of transplant.objectives."
        )
    layers = layers_in(plan.model, plan.match, layout, asked.scope)
    total, most = layers * plan.model.heads, layers * (plan.model.heads // 2)
    num = asked.num_heads(total)
    if num > most:
        raise UserError(
            f"transplant.heads must be at most half of the heads in each layer, {most} of {total} in {asked.scope} of "
            f"{name}: as many others are drawn at random from the same layers. Got {as_written(asked.heads)}, which is "
            f"{num}. Lower it" + (", or raise model.heads." if most == 0 else ".")
        )
