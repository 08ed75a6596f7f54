"""The tables `[[tune]]` and `[domain]` of a study's plan: what its models are tuned for, and trained on before."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Protocol, get_args, runtime_checkable

from infoflow.adaptation import BUILT_IN_TASKS, SHAPES, TuneConfig
from infoflow.foundation import (
    Count,
    CountOrNone,
    LearningRate,
    Limits,
    MaxLength,
    Name,
    Seed,
    Share,
    UserError,
    as_written,
    check_settings,
)
from infoflow.objectives import AbstractObjective

from ._plan_checks import TRAINED_ON, one_of

Method = Literal["full", "frozen", "top", "decay", "lora"]
Methods = Annotated[tuple[Method, ...], Limits(filled=True)]
Control = Literal["untrained", "shuffled-labels"]
Strategy = Literal["continued", "scratch"]
Strategies = Annotated[tuple[Strategy, ...], Limits(filled=True)]
Phase = Literal["domain", "task"]
Phases = Annotated[tuple[Phase, ...], Limits(filled=True)]
Sizes = Annotated[tuple[CountOrNone, ...], Limits(filled=True)]
Seeds = Annotated[tuple[Seed, ...], Limits(filled=True)]
Shapes = Literal["", "classification", "regression", "tagging", "span", "choice", "generation"]
Size = Annotated[int, Limits(at_least=20, at_most=10**6)]
FROZEN = "frozen"  # the method of a head on features that stay
# Settings that a plan shares with `TuneConfig`.
_SHARED = {
    *("epochs", "patience", "batch_examples", "max_length", "max_target", "seeds", "learning_rates", "layers", "rank")
}


@dataclass(frozen=True, kw_only=True, slots=True)
class TunePlan:
    """One task that every model of a study is tuned for; a plan has as many as it has tables `[[tune]]`.

    Without `train` it is a built-in task of that name, else what `load_task` reads: files, or `hf:NAME:SPLIT`, from the
    folder that the study is started in. Understanding tasks are for every model with an encoder or a decoder,
    generation for those that write text, by all methods but frozen features; which do not fit is told once.

    Each model costs `methods` times `examples` times (`seeds` + the further `learning_rates`), each `epochs` over the
    examples (40 for a head on frozen features, which are computed once); controls are tuned in full alone.
    """

    name: Name = ""  # built in: grammar-tags, grammar-agreement, grammar-pairs, grammar-span, grammar-summary
    train: str = ""
    dev: str = ""  # on which learning rates are chosen; "": a tenth of the texts of `train`
    test: str = ""  # "": a fifth of them
    as_text: bool = False  # the answer is written in words, as T5 does: for models that write, all shapes but tagging
    shape: Shapes = ""  # "": as the columns of `train` say
    columns: tuple[str, ...] = ()  # "text=COLUMN", "second=COLUMN", "label=COLUMN", "tags=COLUMN", ...
    multi: bool = False  # an example may have several labels, joined by "|", or none
    size: Size = 1000  # examples of a built-in task
    methods: Methods = ("full", "frozen")  # and top, decay, lora
    examples: Sizes = (0,)  # labelled examples that a model is tuned on, nested; 0: all
    learning_rates: tuple[LearningRate, ...] = ()  # peaks, chosen on dev; empty: the methods' own grids
    frozen_rates: tuple[LearningRate, ...] = ()  # of the method "frozen"; empty: as learning_rates
    epochs: Count = 4
    patience: CountOrNone = 0  # passes without gain on dev that end a training, whose best weights stay; 0: never
    batch_examples: Count = 32
    max_length: MaxLength = 128  # tokens of an input
    max_target: CountOrNone = 0  # tokens of a text to write, its end included; 0: 64
    layers: Count = 2  # of the method "top"
    rank: Annotated[int, Limits(at_least=1, at_most=4096)] = 8  # of the method "lora"
    seeds: Seeds = (0, 1, 2)  # of head, data order and dropout
    objectives: tuple[str, ...] = ()  # whose models; empty: all that fit
    controls: tuple[Control, ...] = ("untrained", "shuffled-labels")
    inside: bool = True  # what full tuning on all examples does to layers and heads
    inside_objectives: tuple[str, ...] = ()  # of whose models; empty: of all that are tuned

    def __post_init__(self) -> None:
        check_settings(self, "tune")
        if not self.train and self.name not in BUILT_IN_TASKS:
            known = ", ".join(BUILT_IN_TASKS)
            raise UserError(
                f"tune.name must be a built-in task ({known}) where no train file is named. "
                f"Got {as_written(self.name)}."
            )
        if not self.train and (given := [part for part in ("dev", "test") if getattr(self, part)]):
            raise UserError(
                f"tune.{given[0]} must go with tune.train. Got {as_written(getattr(self, given[0]))} alone."
            )
        if self.patience and self.inside and "full" in self.methods:
            raise UserError(
                "tune.patience must be 0 where tune.inside is true: who learned the task is followed to the end. "
                f"Got {self.patience}. Set inside = false."
            )
        if wrong := [column for column in self.columns if not all(column.partition("=")[::2])]:
            raise UserError(f'tune.columns must be written "text=COLUMN". Got {as_written(wrong[0])}.')
        for name in ("methods", "examples", "learning_rates", "frozen_rates", "seeds", "controls"):
            if len(set(values := getattr(self, name))) < len(values):
                raise UserError(f"tune.{name} must be a list of different values. Got {as_written(values)}.")

    @property
    def named_columns(self) -> dict[str, str]:
        """What `load_task` is told of columns; digits are the numbers of a file without names."""
        pairs = (column.partition("=") for column in self.columns)
        return {name.strip(): value.strip() for name, _, value in pairs}

    def config(self, method: str, examples: int, control: str, device: str) -> TuneConfig:
        """What one tuning is told."""
        shared: dict[str, Any] = {name: getattr(self, name) for name in _SHARED}
        if method == "frozen" and self.frozen_rates:
            shared["learning_rates"] = self.frozen_rates
        return TuneConfig(method=method, examples=examples, control=control, device=device, **shared)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True, slots=True)
class DomainPlan:
    """Another corpus that models are trained on before they are tuned; off unless `corpus` is named.

    "continued" trains a study's model on, with its own tokenizer: in the phase "domain" on the corpus, in the phase
    "task" on the unlabelled texts of a task's training part, one model a task. "scratch" trains a new model on the
    corpus alone, with a tokenizer of its own, as the study's models are trained.
    """

    corpus: str = ""  # anything that `load_corpus` takes
    text_column: str = ""
    translation_column: str = ""
    document_column: str = ""
    documents: bool = False
    sentences: CountOrNone = 0  # training sentences at most; 0: all
    objectives: tuple[str, ...] = ()  # whose models; empty: all
    strategies: Strategies = ("continued", "scratch")  # beside "as-is"
    phases: Phases = ("domain",)  # of "continued", in this order
    updates: CountOrNone = 0  # of each phase; 0: a third of training.updates
    learning_rate: LearningRate = 5e-4  # of "continued", at its peak
    warmup: Share = 0.1
    scratch_updates: CountOrNone = 0  # 0: as many as general training and one phase together: equal compute
    vocabulary: CountOrNone = 0  # subwords of "scratch"; 0: as corpus.vocabulary
    extend_vocabulary: CountOrNone = 0  # tokens that "continued" learns on the corpus and adds
    loss_sentences: CountOrNone = 1000  # of each text, whose loss is taken; 0: all

    def __post_init__(self) -> None:
        check_settings(self, "domain")
        for name in ("strategies", "phases"):
            if len(set(values := getattr(self, name))) < len(values):
                raise UserError(f"domain.{name} must be a list of different values. Got {as_written(values)}.")
        if self.phases[::-1] == ("domain", "task"):
            raise UserError('domain.phases must be in order: ["domain", "task"]. Got ["task", "domain"].')

    @property
    def on(self) -> bool:
        """Whether a corpus is named, or the texts of tasks are all that is read."""
        return bool(self.corpus) or self.phases == ("task",)

    def num_updates(self, training: int) -> int:
        """Of each phase, where general training has so many."""
        return self.updates or max(training // 3, 1)

    def num_scratch_updates(self, training: int) -> int:
        """Of a model from scratch."""
        return self.scratch_updates or training + self.num_updates(training)


@runtime_checkable
class Adapts(Protocol):
    """What of a study's plan the tables are checked against."""

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
    """Raise a UserError where tables for tuning and for the domain do not go with the rest of the plan."""
    for number, asked in enumerate(plan.tune):
        for field in ("objectives", "inside_objectives"):
            if named := getattr(asked, field):
                one_of(f"tune[{number}].{field}", named, plan.objectives)
    names = [asked.name for asked in plan.tune]
    if repeated := _repeated(names):
        raise UserError(f"tune must be tables of different names. Got {as_written(repeated)} twice. Rename one.")
    if plan.domain.objectives:
        one_of("domain.objectives", plan.domain.objectives, plan.objectives)
    if plan.domain.phases == ("task",) and not plan.tune:
        raise UserError('domain.phases must hold "domain" where nothing is tuned. Got ["task"]. Add [[tune]].')
    if plan.domain.on and plan.domain.extend_vocabulary:
        _check_extended(plan)


def _check_extended(plan: Adapts) -> None:
    for name in plan.domain.objectives or plan.objectives:
        if (layout := plan.objective(name).layout) not in TRAINED_ON and layout != "static":
            raise UserError(
                f"domain.extend_vocabulary must be 0 where a model has further parts. Got {name}, which trains one of "
                f"the layout {layout}. Name the others in domain.objectives."
            )


def _repeated(names: Sequence[str]) -> str:
    return next((name for index, name in enumerate(names) if name in names[:index]), "")


assert set(get_args(Shapes)) == {"", *SHAPES}
assert {one.name for one in fields(TuneConfig)} >= _SHARED
