"""The sections `[[tune]]` and `[domain]` of a study's plan: tasks for tuning, and further pretraining before it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Protocol, get_args, runtime_checkable

from infoflow.architectures import TRAINED_ON
from infoflow.corpus import TextColumns
from infoflow.foundation import (
    CountOrNone,
    File,
    LearningRate,
    Limits,
    Name,
    OwnWords,
    Share,
    UserError,
    as_written,
    check_settings,
    one_of,
)
from infoflow.objectives import AbstractObjective

from .measures import BUILT_IN_TASKS, FROZEN_METHODS, SHAPES, Method, Rates, TuneConfig, TuneSettings

Methods = Annotated[tuple[Method, ...], Limits(filled=True, distinct=True)]
Controls = Annotated[tuple[Literal["untrained", "shuffled-labels"], ...], Limits(distinct=True)]
Strategy = Literal["continued", "scratch"]
Strategies = Annotated[tuple[Strategy, ...], Limits(filled=True, distinct=True)]
Phase = Literal["domain", "task"]
Phases = Annotated[tuple[Phase, ...], Limits(filled=True, distinct=True)]
Sizes = Annotated[tuple[CountOrNone, ...], Limits(filled=True, distinct=True)]
Shapes = Literal["", "classification", "regression", "tagging", "span", "choice", "generation"]
Size = Annotated[int, Limits(at_least=20, at_most=10**6)]


@dataclass(frozen=True, kw_only=True, slots=True)
class TunePlan(TuneSettings):
    """One task for which every model of a study is tuned; each table `[[tune]]` of a plan defines one.

    Without `train`, `name` is that of a built-in task; otherwise `load_task` reads files or `hf:NAME:SPLIT`. Paths are
    relative to the folder in which the study starts. Understanding tasks suit every model with an encoder or a decoder;
    generation suits models that generate text, with all methods except those on frozen features. Unsuitable models and
    methods are reported once.

    Each model has `methods` × `examples` × (`seeds` + the additional `learning_rates`) training runs, each of `epochs`
    epochs (40 for a head on frozen features, which are computed once). Controls are tuned only by the method "full".
    """

    name: Name = ""  # built in: grammar-tags, grammar-agreement, grammar-pairs, grammar-span, grammar-summary
    train: File = ""
    dev: File = ""  # examples for choosing learning rates; "": a tenth of the texts of `train`
    test: File = ""  # "": a fifth of the texts of `train`
    as_text: bool = False  # generate the answer as words, as T5 does; for generating models, all shapes except tagging
    shape: Shapes = ""  # "": inferred from the columns of `train`
    columns: OwnWords = ()  # "text=COLUMN", "second=COLUMN", "label=COLUMN", "tags=COLUMN", ...
    multi: bool = False  # an example may have several labels, joined by "|", or none
    size: Size = 1000  # number of examples of a built-in task
    methods: Methods = ("full", "frozen")  # also possible: mix, top, decay, lora
    examples: Sizes = (0,)  # numbers of labelled examples for tuning, nested; 0: all
    frozen_rates: Rates = ()  # learning rates for the methods "frozen" and "mix"; empty: learning_rates
    objectives: tuple[str, ...] = ()  # objectives whose models are tuned; empty: all that fit
    controls: Controls = ("untrained", "shuffled-labels")
    inside: bool = True  # measure how full tuning on all examples changes layers and heads
    inside_objectives: tuple[str, ...] = ()  # objectives whose models are measured; empty: all that are tuned

    def __post_init__(self) -> None:
        check_settings(self, "tune")
        if not self.train and self.name not in BUILT_IN_TASKS:
            known = ", ".join(BUILT_IN_TASKS)
            raise UserError(
                f"tune.name must be a built-in task ({known}) if no train file is named. Got {as_written(self.name)}."
            )
        if not self.train and (given := [part for part in ("dev", "test") if getattr(self, part)]):
            raise UserError(f"tune.{given[0]} must go with tune.train. Got {as_written(getattr(self, given[0]))}.")
        if self.patience and self.inside and "full" in self.methods:
            raise UserError(
                "tune.patience must be 0 if tune.inside is true, since loss changes are recorded to the end. "
                f"Got {self.patience}. Set inside = false."
            )
        if wrong := [column for column in self.columns if not all(column.partition("=")[::2])]:
            raise UserError(f'tune.columns must be written "text=COLUMN". Got {as_written(wrong[0])}.')

    @property
    def named_columns(self) -> dict[str, str]:
        """The columns for `load_task` by name; digits are column numbers of a file without column names."""
        pairs = (column.partition("=") for column in self.columns)
        return {name.strip(): value.strip() for name, _, value in pairs}

    def config(self, method: str, examples: int, control: str, device: str) -> TuneConfig:
        """The settings for one tuning."""
        shared: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(TuneSettings)}
        if method in FROZEN_METHODS and self.frozen_rates:
            shared["learning_rates"] = self.frozen_rates
        return TuneConfig(method=method, examples=examples, control=control, device=device, **shared)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainPlan(TextColumns):
    """Pretraining on another corpus before tuning; disabled unless `corpus` is set or "task" is the only phase.

    "continued" trains a study's model further with its own tokenizer: in the phase "domain" on the corpus, in the phase
    "task" on the unlabelled texts of a task's training part, one model per task. "scratch" trains a new model only on
    the corpus, with its own tokenizer and the training settings of the study.
    """

    corpus: File = ""  # anything that `load_corpus` accepts
    sentences: CountOrNone = 0  # maximum number of training sentences; 0: all
    objectives: tuple[str, ...] = ()  # objectives whose models are trained; empty: all
    strategies: Strategies = ("continued", "scratch")  # in addition to "as-is"
    phases: Phases = ("domain",)  # phases of "continued", in this order
    updates: CountOrNone = 0  # updates of each phase; 0: a third of training.updates
    learning_rate: LearningRate = 5e-4  # peak rate of "continued"
    warmup: Share = 0.1
    scratch_updates: CountOrNone = 0  # 0: as many as general training and one phase together, for equal compute
    vocabulary: CountOrNone = 0  # number of subwords for "scratch"; 0: corpus.vocabulary
    extend_vocabulary: CountOrNone = 0  # number of tokens that "continued" learns on the corpus and adds
    loss_sentences: CountOrNone = 1000  # sentences of domain and of general text for the loss; 0: all

    def __post_init__(self) -> None:
        check_settings(self, "domain")
        if self.phases[::-1] == ("domain", "task"):
            raise UserError('domain.phases must be in order: ["domain", "task"]. Got ["task", "domain"].')

    @property
    def on(self) -> bool:
        """Whether a corpus is named, or "task" is the only phase."""
        return bool(self.corpus) or self.phases == ("task",)

    def num_updates(self, training: int) -> int:
        """Updates of each phase if general training has `training` updates."""
        return self.updates or max(training // 3, 1)

    def num_scratch_updates(self, training: int) -> int:
        """Updates of a model from scratch if general training has `training` updates."""
        return self.scratch_updates or training + self.num_updates(training)


@runtime_checkable
class Adapts(Protocol):
    """The parts of a study's plan with which the sections must agree."""

    @property
    def objectives(self) -> tuple[str, ...]: ...
    @property
    def variants(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def tune(self) -> tuple[TunePlan, ...]: ...
    @property
    def domain(self) -> DomainPlan: ...
    def objective(self, name: str) -> AbstractObjective: ...


def check_adaptation(plan: Adapts) -> None:
    """Raise a UserError if the tuning and domain sections contradict the rest of the plan."""
    for number, entry in enumerate(plan.tune):
        for field in ("objectives", "inside_objectives"):
            if named := getattr(entry, field):
                one_of(f"tune[{number}].{field}", named, plan.objectives)
    names = [entry.name for entry in plan.tune]
    if repeated := next((name for index, name in enumerate(names) if name in names[:index]), ""):
        raise UserError(f"Tables [[tune]] must have unique names. Got {as_written(repeated)} twice. Rename one.")
    if plan.domain.objectives:
        one_of("domain.objectives", plan.domain.objectives, plan.objectives)
    if plan.domain.phases == ("task",) and not plan.tune:
        raise UserError('domain.phases must contain "domain" if there is no task. Got ["task"]. Add [[tune]].')
    if plan.domain.on and plan.domain.extend_vocabulary:
        _check_extended(plan)


def _check_extended(plan: Adapts) -> None:
    for name in plan.domain.objectives or plan.objectives:
        if (layout := plan.objective(name).layout) not in TRAINED_ON and layout != "static":
            raise UserError(
                f"domain.extend_vocabulary must be 0 unless all objectives train a single model. Got {name}, which has "
                f"the layout {layout}. Name the others in domain.objectives."
            )


assert set(get_args(Shapes)) == {"", *SHAPES}

SECTIONS = {"domain": DomainPlan, "tune": tuple[TunePlan, ...]}
CHECKS = (check_adaptation,)
