"""Options of `infoflow tune`: the labelled examples of a task, and how a model is tuned on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from infoflow.cli._options import limited, numbers_in
from infoflow.cli._session import TextColumn
from infoflow.cli._settings import changed

if TYPE_CHECKING:
    from ..measures import TaskData, TuneConfig


def _told(help: str) -> Parameter:
    """Of an option without a default that is worth showing."""
    return Parameter(show_default=False, help=help)


def _switch(help: str) -> Parameter:
    return Parameter(negative=(), help=help)


def _several(help: str) -> Parameter:
    return Parameter(negative=(), show_default=False, help=help)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class TaskFiles:
    """Where the labelled examples are, and what is asked of them."""

    train: Annotated[
        str,
        Parameter(
            help="Labelled examples: label and text (and second text) with tabs, a word and its tag per line, .jsonl, "
            ".csv, .parquet, SQuAD's .json; .gz too; or hf:NAME:SPLIT."
        ),
    ]
    dev: Annotated[str | None, _told("Examples for choosing the learning rate. Default: split off training.")] = None
    test: Annotated[str | None, _told("Examples for the reported scores. Default: split off training.")] = None
    task: Annotated[
        str | None, Parameter(help="Name of the task in tables and folders. Default: that of the folder.")
    ] = None
    shape: Annotated[
        Literal["classification", "regression", "tagging", "span", "choice", "generation"] | None,
        Parameter(help="Kind of task. Default: inferred from the file."),
    ] = None
    as_text: Annotated[
        bool,
        _switch(
            "Generate the answer as words, as T5 does: every shape except tagging becomes generation.",
        ),
    ] = False
    text_column: TextColumn = None
    second_column: Annotated[str | None, _told("Column of the second text of a pair.")] = None
    label_column: Annotated[
        str | None,
        _told(
            "Column of the label (its number from 1 in a tab-separated file without header); with --shape "
            "generation, of the target text."
        ),
    ] = None
    question_column: Annotated[
        str | None,
        _told("Column of the question about the text; with a label, the first text of a pair."),
    ] = None
    choices_column: Annotated[str | None, _told("Column of the lists of answers to choose from.")] = None
    answers_column: Annotated[str | None, _told("Column of the lists of answers found in the text.")] = None
    answer_starts_column: Annotated[
        str | None,
        _told("Column of the lists of character offsets of the answers. Default: found by common names."),
    ] = None
    words_column: Annotated[
        str | None,
        _told("Column of the lists of words in a dataset (hf:NAME); --tags names that of their tags."),
    ] = None
    tags: Annotated[str | None, _told("Column of the words' tags, if there are several.")] = None
    multi: Annotated[bool, _switch("An example may have several labels, joined by |, or none.")] = False

    @property
    def named_by(self) -> str | None:
        """The local file or folder that the task has its name from, where none was given."""
        return None if self.task or self.train.startswith("hf:") else self.train

    def load(self) -> "TaskData":
        """The task."""
        from ..measures import as_text, load_task

        columns = {"text": self.text_column, "second": self.second_column, "label": self.label_column}
        columns |= {"question": self.question_column, "choices": self.choices_column, "answers": self.answers_column}
        columns |= {"answer_starts": self.answer_starts_column, "words": self.words_column}
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
    """The task's name: that of the folder of a file called train, else of the file."""
    path = Path(train)
    stem = path.name.split(".")[0] if not train.startswith("hf:") else train.split(":")[1].rpartition("/")[2]
    return path.absolute().parent.name if stem in ("train", "training") else stem or path.absolute().name


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class TuneOptions:
    """How a model is tuned."""

    method: Annotated[
        Literal["full", "frozen", "top", "decay", "lora"],
        Parameter(
            help="All weights; the head on a frozen body; head and top layers; lower rates in lower layers; low-rank "
            "adapters."
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
        """The settings of the public function, with those of `--set`."""
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
