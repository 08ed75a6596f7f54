"""What every working command has in common: threads, and how it reports progress."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from ._options import limited

COMMON = Group("Common options", sort_key=100)

Out = Annotated[Path | None, Parameter(group=COMMON, help="Run folder. Default: a folder under runs/.")]
Device = Annotated[
    str | None,
    Parameter(group=COMMON, converter=limited("Device"), help="cpu, cuda, cuda:1, mps. Default: a GPU if available."),
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
TranslationColumn = Annotated[str | None, Parameter(help="Column of their translations.")]
DocumentColumn = Annotated[
    str | None, Parameter(help="Column of document names; rows of a document must be consecutive.")
]
Documents = Annotated[
    bool,
    Parameter(
        negative=(),
        help="Read documents: separated by blank lines in text files, by # newdoc in CoNLL-U.",
    ),
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
class Session:
    """Options of every command that computes."""

    threads: Annotated[
        int | None,
        Parameter(
            group=COMMON,
            converter=limited("Threads"),
            help="CPU threads. Default: OMP_NUM_THREADS, else all cores.",
        ),
    ] = None
    log: Log = None


@contextmanager
def working(session: Session) -> Iterator[None]:
    """Set the number of threads and the display."""
    from infoflow.foundation import set_threads

    with reporting(session.log):
        set_threads(session.threads)
        yield


@contextmanager
def reporting(log: Log) -> Iterator[None]:
    """Report progress to standard error; under `torchrun` only from the first process."""
    from infoflow.foundation import make_display, thread_budget, use_display

    with use_display(make_display(log if is_first_process() else "silent")):
        if os.environ.get("OMP_NUM_THREADS"):  # libraries take it as it is: thousands of threads end the process
            os.environ["OMP_NUM_THREADS"] = str(thread_budget())
        yield


def is_first_process() -> bool:
    """Whether this process shows results: under `torchrun` one of them does."""
    if not os.environ.get("RANK"):
        return True  # without the import, where no launcher is
    from infoflow.foundation import launched

    return launched()[0] == 0


def run_folder(out: Path | None, name: str) -> Path:
    """`--out`, or `name` under runs/; what it would lie in is checked before hours of work.

    Raises:
        UserError: It is a file, or lies in a folder that may not be written to.
    """
    from infoflow.foundation import check_writable

    folder = out or Path("runs") / name
    check_writable(folder)
    return folder
