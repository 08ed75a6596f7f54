"""Options of `infoflow tune`, what it tunes, and what it prints."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from infoflow.cli._options import changed, limited, numbers_in
from infoflow.cli._session import TextColumn, estimate, show, show_table

if TYPE_CHECKING:
    import pandas as pd

    from infoflow.models import Model
    from infoflow.objectives import AbstractObjective
    from infoflow.results import Subject

    from ..measures import AbstractTask, AllocationHooks, TaskData, TuneConfig, Tuned


_SHUFFLED, _UNTRAINED = "shuffled labels", "untrained"


@dataclass(frozen=True, kw_only=True, eq=False)
class TuningVariant:
    """One variant: a model, and how it is tuned for the task."""

    label: str  # name of the control; "": the requested model itself
    subject: "Subject"  # the model in tables; as in a study, an untrained one has the name of the trained one
    model: "Model"  # before tuning
    pretrained_for: "AbstractObjective | None"  # None: unknown
    data: "TaskData"
    task: "AbstractTask"
    config: "TuneConfig"
    run: Path  # the run folder

    @property
    def features(self) -> Path:
        """Folder for the features that frozen bodies compute; it is kept until all variants are tuned."""
        return self.run / "features"

    @cached_property
    def hooks(self) -> "AllocationHooks | None":
        """Hooks that record which parts learn the task; None for tuning on shuffled labels."""
        from ..measures import AllocationHooks

        if self.config.control:
            return None
        folder = self.run / "allocation" / self._home / self.data.name / self.config.way
        return AllocationHooks(model=self.model, data=self.data, task=self.task, config=self.config, folder=folder)

    def tuned(self, inside: bool) -> "Tuned":
        """The tuned models of all seeds, read from their folder or trained now, with `hooks` for the inside view."""
        from ..measures import tune

        folder, hooks = self.run / self._home, self.hooks if inside else None
        return tune(self.model, self.data, self.config, folder, task=self.task, hooks=hooks, features=self.features)

    def check(self) -> None:
        """Raise a UserError, before tuning, if the variant's folders contain something else."""
        from infoflow.foundation import UserError, check_own_folder

        check_own_folder(self.run / self._home / self.task.task / self.config.way, "tuning.json", "A tuned model")
        files = (one for one in self.features.rglob("*") if not one.is_dir())
        if others := [one.name for one in files if one.suffix not in (".numbers", ".index")]:
            raise UserError(
                f"{self.features} would be removed, but infoflow did not write {others[0]} there. Move it, or choose "
                "another --out."
            )

    @property
    def _home(self) -> str:
        return "models" if self.subject.trained else _UNTRAINED


def tuning_variants(variant: TuningVariant, *, controls: bool, from_scratch: bool) -> list[TuningVariant]:
    """The variants to tune: the model itself and, with `controls`, on shuffled labels and with random weights."""
    from infoflow.studies import untrained

    found = [variant]
    if controls:
        found.append(replace(variant, label=_SHUFFLED, config=replace(variant.config, control="shuffled-labels")))
    if controls or from_scratch:
        subject = variant.subject.before_training()
        fresh = replace(untrained(variant.model, seed=0), name=subject.label)
        found.append(replace(variant, label=_UNTRAINED, subject=subject, model=fresh))
    return found


# Options of `infoflow tune`: the labelled examples of a task, and how a model is tuned on them.


def _no_default(help: str) -> Parameter:
    """An option whose default is not shown."""
    return Parameter(show_default=False, help=help)


def _switch(help: str) -> Parameter:
    return Parameter(negative=(), help=help)


def _several(help: str) -> Parameter:
    return Parameter(negative=(), show_default=False, help=help)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class TaskFiles:
    """The files with labelled examples, and the task that they define."""

    train: Annotated[
        str,
        Parameter(
            help="Labelled examples: label and text (and second text) separated by tabs, a word and its tag per line, "
            ".jsonl, .csv, .parquet, SQuAD's .json; .gz too; or hf:NAME:SPLIT."
        ),
    ]
    dev: Annotated[str | None, _no_default("Examples for choosing the learning rate. Default: split off training.")] = (
        None
    )
    test: Annotated[str | None, _no_default("Examples for the reported scores. Default: split off training.")] = None
    task: Annotated[
        str | None, Parameter(help="Name of the task in tables and folders. Default: that of the folder.")
    ] = None
    shape: Annotated[
        Literal["classification", "regression", "tagging", "span", "choice", "generation"] | None,
        Parameter(help="Kind of task. Default: inferred from the file."),
    ] = None
    as_text: Annotated[
        bool, _switch("Generate the answer as words, as T5 does: every shape except tagging becomes generation.")
    ] = False
    text_column: TextColumn = None
    second_column: Annotated[str | None, _no_default("Column of the second text of a pair.")] = None
    label_column: Annotated[
        str | None,
        _no_default(
            "Column of the label (its number from 1 in a tab-separated file without header); with --shape "
            "generation, of the target text."
        ),
    ] = None
    question_column: Annotated[
        str | None,
        _no_default("Column of the question about the text; with a label, the first text of a pair."),
    ] = None
    choices_column: Annotated[str | None, _no_default("Column of the lists of answers to choose from.")] = None
    answers_column: Annotated[str | None, _no_default("Column of the lists of answers found in the text.")] = None
    answer_starts_column: Annotated[
        str | None,
        _no_default("Column of the lists of character offsets of the answers. Default: found by common names."),
    ] = None
    words_column: Annotated[
        str | None,
        _no_default("Column of the lists of words in a dataset (hf:NAME); --tags names the column of their tags."),
    ] = None
    tags: Annotated[str | None, _no_default("Column of the words' tags, if there are several.")] = None
    multi: Annotated[bool, _switch("An example may have several labels, joined by |, or none.")] = False

    @property
    def named_by(self) -> str | None:
        """The local file or folder after which the task is named, if no name was given."""
        return None if self.task or self.train.startswith("hf:") else self.train

    def load(self) -> "TaskData":
        """The task."""
        from ..measures import as_text, load_task

        names = ("text", "second", "label", "question", "choices", "answers", "answer_starts", "words")
        columns = {name: getattr(self, f"{name}_column") for name in names}
        data = load_task(
            self.task or _name(self.train),
            train=self.train,
            dev=self.dev,
            test=self.test,
            shape=self.shape,
            tags=self.tags,
            multi=self.multi,
            **{name: column for name, column in columns.items() if column},
        )
        return as_text(data) if self.as_text else data


def _name(train: str) -> str:
    path = Path(train)
    stem = path.name.split(".")[0] if not train.startswith("hf:") else train.split(":")[1].rpartition("/")[2]
    return path.absolute().parent.name if stem in ("train", "training") else stem or path.absolute().name


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    """How a model is tuned."""

    method: Annotated[
        Literal["full", "frozen", "mix", "top", "decay", "lora"],
        Parameter(
            help="All weights; only the head, on a frozen body; only the head, on a mix of frozen layers; head and top "
            "layers; all weights, with lower rates in lower layers; low-rank adapters."
        ),
    ] = "full"
    rates: Annotated[
        tuple[str, ...],
        _several("Learning rates to choose among, separated by commas. Default: four suited to the method."),
    ] = ()
    seeds: Annotated[
        tuple[str, ...], _several("Seeds of head, data order and dropout, separated by commas. Default: 0,1,2.")
    ] = ()
    examples: Annotated[
        int,
        Parameter(
            converter=limited("CountOrNone"),
            help="Number of training examples, stratified by class and the same for every model; 0: all.",
        ),
    ] = 0
    epochs: Annotated[
        int,
        Parameter(
            converter=limited("Count"),
            help="Passes over the training examples (with frozen features: --set tune.head_epochs, 40).",
        ),
    ] = 4

    def config(self, settings: Sequence[str], device: str | None) -> "TuneConfig":
        """The settings for the public function `tune`, including those of `--set`."""
        from ..measures import TuneConfig

        config = TuneConfig(
            method=self.method,
            learning_rates=numbers_in("--rates", self.rates, float),
            seeds=numbers_in("--seeds", self.seeds or ("0,1,2",), int),
            examples=self.examples,
            epochs=self.epochs,
            device=device or "auto",
        )
        return changed(config, "tune", settings)


# What `infoflow tune` prints.


def show_tuned(tuned: "Mapping[TuningVariant, Tuned]") -> None:
    """Print the scores on test, the mean over seeds, and each seed's main metric."""
    variant, first = next(iter(tuned.items()))
    data = variant.data
    sizes = f"{len(first.train):,} to train, {len(data.dev):,} to choose, {len(data.test):,} to test"
    columns = ["metric", *(["tuned"] if len(tuned) > 1 else []), "test [95%]", "baseline", "dev", "rate"]
    metrics = list(dict.fromkeys(first.scores["metric"]))
    rows = [
        [metric, *([variant.label or "model"] if len(tuned) > 1 else []), *_cells(one.scores, metric)]
        for metric in metrics
        for variant, one in tuned.items()
    ]
    num = len(first.models)
    seeds = "one seed" if num == 1 else f"mean over {num} seeds"
    show_table(columns, rows, f"{data.name} ({data.shape}), {seeds}: {sizes}")
    show()
    chosen = first.scores[first.scores["main"]]
    listed = [
        [str(row["tuning_seed"]), row["part"], row["metric"], estimate(row["value"], row["low"], row["high"])]
        for row in chosen.to_dict("records")
    ]
    show_table(["seed", "part", "metric", "value [95%]"], listed, "Each seed")
    show()
    _tell_of_guesses(first.scores, variant.config.method)


def tell_of_leakage(leaks: "pd.DataFrame") -> None:
    """Print how many test texts also occur in training, identical or nearly identical."""
    texts, same, near = (int(leaks[name].iloc[0]) for name in ("texts", "same", "near"))
    stand = "occurs" if same == 1 else "occur"
    show(f"{same:,} of {texts:,} test texts also {stand} in training, {near - same:,} more differ by one word.")


def _tell_of_guesses(scores: "pd.DataFrame", method: str) -> None:
    """Print a hint if the main metric on test is not above the best guess without a model."""
    from infoflow.foundation import bounds_of
    from infoflow.results import scale_of
    from infoflow.subjects.adaptation.measures import FROZEN_METHODS

    longer = "--set tune.head_epochs" if method in FROZEN_METHODS else "--epochs"
    metric = scores[scores["main"]]["metric"].iloc[0]
    value, low, high, guess = _on_test(scores, metric)
    if low <= guess < bounds_of(scale_of(metric))[1]:  # nothing is better than a guess that is always right
        show(
            f"No better than the best guess without a model: {metric} {estimate(value, low, high)}, guess "
            f"{guess:.3f}.\nTune longer ({longer}), at other rates (--rates), or on more examples."
        )
        show()


def _cells(scores: "pd.DataFrame", metric: str) -> list[str]:
    value, low, high, guess = _on_test(scores, metric)
    own = scores[scores["metric"] == metric]
    rates = ", ".join(f"{rate:g}" for rate in dict.fromkeys(own["learning_rate"]))
    dev = own[own["part"] == "dev"]["value"].mean()
    return [estimate(value, low, high), f"{guess:.3f}", f"{dev:.3f}", rates]


def _on_test(scores: "pd.DataFrame", metric: str) -> tuple[float, float, float, float]:
    """The mean of a metric over seeds, both ends of its interval, and the guess with which it is compared."""
    from infoflow.results import scale_of

    from ..measures import mean_estimate

    test = scores[(scores["metric"] == metric) & (scores["part"] == "test")]
    found = mean_estimate(test.to_dict("records"), scale_of(metric))
    return found["value"], found["low"], found["high"], found["baseline"]
