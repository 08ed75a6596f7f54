"""What every command has in common: threads, progress, results, and errors that the user can fix."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from ._options import limited
from ._tables import estimate as estimate
from ._tables import is_first_process, show_path, show_table
from ._tables import show as show
from ._tables import show_text as show_text

if TYPE_CHECKING:
    from infoflow.studies import Run


_ROOMY = 16e9  # bytes of address space in which every library can be loaded


class Incomplete(Exception):
    """Some measures failed; the results of the others are written and shown."""


def require_all(runs: "Sequence[Run]") -> None:
    lines = [f"{failure.table} of {failure.model}: {failure.reason}" for run in runs for failure in run.failures]
    if lines:
        traced = [str(run.path / "run.json") for run in runs if any(failure.traceback for failure in run.failures)]
        lines += [f"Tracebacks: {', '.join(traced)} (failures)"] if traced else []
        raise Incomplete(
            "These measures failed and are left out (run the same command to retry them):\n" + "\n".join(lines)
        )


def _address_space() -> int | None:
    """Limit of this process's address space in bytes; None if every library can be loaded in it."""
    if os.name != "posix":
        return None
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return limit if 0 <= limit < _ROOMY else None


def explain(error: BaseException) -> str | None:
    """The message if the user can do something about `error`; None for our own bugs, which need a traceback."""
    from infoflow.foundation import UserError, plain_fault, said_size

    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, ImportError | SystemError) and (limit := _address_space()):  # a library could not be loaded
        memory = plain_fault(MemoryError())
        return f"{memory}\nThe address space of this process is limited to {said_size(limit)} (ulimit -v)."
    return plain_fault(error)


COMMON = Group("Common options", sort_key=100)

Out = Annotated[Path | None, Parameter(group=COMMON, help="Run folder. Default: a folder under runs/.")]
Device = Annotated[
    str | None,
    Parameter(
        group=COMMON, converter=limited("Device"), help="cpu, cuda, cuda:1, mps. Default: auto, a GPU if available."
    ),
]
Seed = Annotated[int, Parameter(group=COMMON, converter=limited("Seed"))]
Log = Annotated[
    Literal["rich", "plain", "json"] | None,
    Parameter(group=COMMON, help="Progress on standard error. Default: rich on a terminal, plain lines elsewhere."),
]
Anonymous = Annotated[bool, Parameter(negative=(), help="Omit paths and names of local files from all output files.")]
TextColumn = Annotated[
    str | None,
    Parameter(help="Column of the sentences in a table (.csv, .tsv, .jsonl, .json, .parquet) or a dataset (hf:NAME)."),
]
TranslationColumn = Annotated[str | None, Parameter(help="Column of the translations of these sentences.")]
DocumentColumn = Annotated[
    str | None, Parameter(help="Column of document names; rows of a document must be consecutive.")
]
Documents = Annotated[
    bool, Parameter(negative=(), help="Read documents: separated by blank lines in text files, by # newdoc in CoNLL-U.")
]
Lines = Annotated[
    Literal["sentences", "paragraphs"],
    Parameter(
        help="Content of a line of a text file or a cell of the text column; paragraphs are split into sentences."
    ),
]
Settings = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        negative=(),
        show_default=False,
        help="Change a setting of the plan, such as --set analysis.occurrences=5000. May be repeated.",
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """How a corpus is read."""

    text_column: TextColumn = None
    translation_column: TranslationColumn = None
    document_column: DocumentColumn = None
    documents: Documents = False
    lines: Lines = "sentences"


_EXECUTED = "Its code is executed: name only a file you trust."
OwnMeasures = Annotated[
    Path | None, Parameter(help=f"A Python file with your own measures, which the report draws. {_EXECUTED}")
]
OwnObjectives = Annotated[Path | None, Parameter(help=f"A Python file with your own objectives. {_EXECUTED}")]
OwnClaims = Annotated[Path | None, Parameter(help=f"A Python file with your own claims to judge as well. {_EXECUTED}")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """Options of every command that computes."""

    threads: Annotated[
        int | None,
        Parameter(
            group=COMMON, converter=limited("Threads"), help="CPU threads. Default: OMP_NUM_THREADS, else all cores."
        ),
    ] = None
    log: Log = None


@contextmanager
def working(session: Session, *models: str) -> Iterator[None]:
    """Set the display and the number of threads; name the models first, since importing torch takes seconds."""
    from infoflow.foundation import current_display, set_threads

    with reporting(session.log):
        if models:
            current_display().note(f"Loading {', '.join(models)}")
        set_threads(session.threads)
        yield


@contextmanager
def reporting(log: Log) -> Iterator[None]:
    """Report progress to standard error; under `torchrun` only from the first process."""
    from infoflow.foundation import make_display, thread_budget, use_display

    with use_display(make_display(log if is_first_process() else "silent")):
        if os.environ.get("OMP_NUM_THREADS"):  # libraries do not check it, and thousands of threads kill the process
            os.environ["OMP_NUM_THREADS"] = str(thread_budget())
        yield


def run_folder(out: Path | None, name: str) -> Path:
    """The folder `--out`, or `name` under runs/, once it is known to be writable, before hours of work."""
    from infoflow.foundation import check_writable

    folder = out or Path("runs") / name
    check_writable(folder)
    return folder


_MAY_BE_EMPTY = ("checkpoint_checks",)  # empty if all checks pass
_LONGEST_NAME = 150  # bytes; file systems allow 255, and files next to it have longer names


Names = Annotated[
    tuple[str, ...],
    Parameter(
        name="--name",
        negative=(),
        show_default=False,
        help="Name of the model in tables and figures; once for each model. Default: from its path.",
    ),
]


def names_of(models: Sequence[str], names: Sequence[str] = (), anonymous: bool = False) -> list[str]:
    from infoflow.studies import distinct_names

    return distinct_names(models, anonymous, names)


def run_name(command: str, *models: str, shard: tuple[int, int] | None = None) -> str:
    names = [command, *map(_short, models)]
    if shard:
        names.append(f"shard-{shard[0]}-of-{shard[1]}")
    name = "-".join(names)
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    from infoflow.foundation import digest

    return f"{name.encode()[: _LONGEST_NAME - 17].decode(errors='ignore')}-{digest(name)}"


def _short(model: str) -> str:
    """A model's name as part of a file name: masked-lm-seed-0, bert-checkpoint-500."""
    from infoflow.foundation import model_name_of

    return re.sub(r"[^\w.+-]", "_", model_name_of(model).replace("/", "-"))


def parse_shard(text: str) -> tuple[int, int]:
    """`i/n` as two numbers with 0 <= i < n."""
    from infoflow.foundation import UserError

    index, _, num = text.partition("/")
    if not re.fullmatch(r"[0-9]{1,9}/[0-9]{1,9}", text) or int(index) >= int(num):
        raise UserError(f"--shard must be i/n with i from 0 to n-1, such as 0/4. Got {text[:80]}.")
    return int(index), int(num)


def show_run(run: "Run", shard: tuple[int, int] | None = None) -> None:
    if shard is not None:
        show_path(f"Shard {shard[0]} of {shard[1]}", run.path)
        return
    full = [name for name in run.tables if len(run.tables[name])]
    rows = [[name, f"{len(run.tables[name]):,}", _first_sentence(run, name)] for name in full]
    if rows:
        show_table(["table", "rows", "holds"], rows)
    if empty := [name for name in run.tables if name not in full and name not in _MAY_BE_EMPTY]:
        show_text(
            "No rows, for reasons above or because the corpus has too few sentences or no trees, tags, mentions or "
            f"translations: {', '.join(empty)}."
        )
    show_path("Tables", run.path / "tables")
    show_path("Report", run.path / "report.html")
    require_all([run])


def _first_sentence(run: "Run", table: str) -> str:
    text = run.tables.stored(table).schema.description.split(". ")[0].rstrip(".")
    return text[:1].upper() + text[1:]
