"""The section `[transplant]` of a study's plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from infoflow.architectures import ALL_HEADS, TRAINED_ON, Scope, kinds_of, layers_in
from infoflow.foundation import Count, CountOrNone, DistinctNames, Limits, UserError, as_written, check_settings, one_of
from infoflow.objectives import AbstractObjective
from infoflow.training import ModelConfig, TrainConfig, checkpoint_steps

Choices = Annotated[tuple[Literal["roles", "importance"], ...], Limits(filled=True, distinct=True)]

# Heads of the other families are not confined to their own projections: all layers share weights, or global tokens have
# projections.
FITTING = ("bert", "gpt2", "t5")


@dataclass(frozen=True, kw_only=True, slots=True)
class TransplantPlan:
    """How heads of a study's trained models are transplanted into fresh models; disabled by default.

    A fresh model of each seed starts from initial weights of another seed and is trained once per variant: with the
    trained model's specialised heads in place of its own, with as many other heads drawn at random from the same
    layers, with the specialised heads shuffled, and unchanged. Each head keeps its layer and number.

    There are (3 + `random_draws`) variants for each entry of `frozen`. Each costs `updates` of training, and reads
    `score_sentences` at each step of the learning curves.
    """

    on: bool = False
    objectives: DistinctNames = ("translation",)  # objectives whose models donate heads, at every seed
    scope: Scope = "encoder-self"  # scope of the heads
    heads: Annotated[float, Limits(above=0, at_most=10**6)] = 0.25  # number of heads, or below 1 a share of the scope's
    # in this order: heads with a role (positional, of a relation, rarest token), most important heads
    choose: Choices = ("roles", "importance")
    frozen: Annotated[tuple[bool, ...], Limits(filled=True, distinct=True)] = (False, True)  # train or freeze heads
    updates: CountOrNone = 0  # updates of each fresh model; 0: a third of training.updates
    schedule: str = "log:12"  # steps of the learning curves, as in [checkpoints]
    random_draws: Count = 2
    metric: Literal["bleu", "loss"] = "bleu"  # "bleu": for translation, BLEU at the end in addition to the loss
    rank_sentences: CountOrNone = 400  # validation sentences for importance; 0: all
    role_sentences: CountOrNone = 1000  # validation sentences for roles; 0: all
    score_sentences: CountOrNone = 500  # analysed sentences for scores, the same at all steps; 0: all
    save_every: CountOrNone = 250  # updates between checkpoints

    def __post_init__(self) -> None:
        check_settings(self, "transplant")
        if self.heads > 1 and self.heads != int(self.heads):
            raise UserError(f"transplant.heads must be a number of heads, or a share below 1. Got {self.heads}.")

    def num_updates(self, training: TrainConfig) -> int:
        """Updates of each fresh model."""
        return self.updates or max(training.updates // 3, 1)

    def steps(self, training: TrainConfig) -> list[int]:
        """Steps of the learning curves: 0, the last update, and those of the schedule."""
        updates = self.num_updates(training)
        return checkpoint_steps(self.schedule, updates)

    def num_heads(self, available: int) -> int:
        """Number of heads to transplant, out of `available`."""
        return max(round(self.heads * available), 1) if self.heads < 1 else int(self.heads)


@runtime_checkable
class Transplants(Protocol):
    """The parts of a study's plan against which the section is checked."""

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
    """Raise a UserError if heads of the plan's models cannot be transplanted as requested."""
    section = plan.transplant
    if section.on:
        one_of("transplant.objectives", section.objectives, plan.objectives)
        _check_families(plan.architectures)
        for name in section.objectives:
            _check_heads(plan, name, plan.objective(name))
    try:
        section.steps(plan.training)
    except UserError:
        last = section.num_updates(plan.training)
        raise UserError(
            f"transplant.schedule must be log:K, linear:K or every:M (K and M from 1), powers, or different updates up "
            f"to the last, {last:,}, such as 10,{last}; join several with +. Got {as_written(section.schedule)}."
        ) from None


def _check_families(families: Sequence[str]) -> None:
    if unfit := [family for family in families if family not in FITTING]:
        raise UserError(
            f"Heads can only be transplanted into {', '.join(FITTING)}, where each has its own projections. Got "
            f"the architecture {as_written(unfit[0])}. Leave it out, or set transplant.on to false."
        )


def _check_heads(plan: Transplants, name: str, objective: AbstractObjective) -> None:
    section, layout = plan.transplant, objective.layout
    if layout not in TRAINED_ON or objective.teacher:
        raise UserError(
            f"transplant.objectives must train a single model ({', '.join(TRAINED_ON)}) without a "
            f"teacher. Got {name}. Leave it out."
        )
    kinds = kinds_of(layout)
    if section.scope != ALL_HEADS and section.scope not in kinds:
        raise UserError(
            f"transplant.scope must be a kind of attention that {name} has ({', '.join(kinds)}), or all. Got "
            f"{section.scope}. Choose another, or leave {name} out of transplant.objectives."
        )
    layers = layers_in(plan.model, plan.match, layout, section.scope)
    total, most = layers * plan.model.heads, layers * (plan.model.heads // 2)
    num = section.num_heads(total)
    if num > most:
        raise UserError(
            f"transplant.heads must be at most half of the heads in each layer, {most} of {total} in {section.scope} "
            f"of {name}: as many others are drawn at random from the same layers. Got {as_written(section.heads)}, "
            f"which is {num}. Lower it" + (", or raise model.heads." if most == 0 else ".")
        )


SECTIONS = {"transplant": TransplantPlan}
CHECKS = (check_transplants,)
