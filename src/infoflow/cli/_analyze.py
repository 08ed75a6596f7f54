"""`infoflow analyze`, `compare` and `merge`, and what they share with `infoflow heads`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ._options import Reading, limited, measuring_settings, names_in
from ._session import (
    Anonymous,
    Device,
    Out,
    Seed,
    Session,
    Settings,
    TextColumn,
    TranslationColumn,
    require_all,
    run_folder,
    show,
    show_path,
    show_table,
    working,
)

if TYPE_CHECKING:
    from infoflow.studies import AnalyzeOptions, Run


CorpusName = Annotated[
    str,
    Parameter(
        help="A file (text, .tsv, .conllu, .tagged, .csv, .jsonl, .json, .parquet; .gz too), two aligned files "
        "(a.en,a.fr), tatoeba-en-fr, grammar, grammar:SIZE, or hf:NAME."
    ),
]
Sentences = Annotated[
    int, Parameter(converter=limited("CountOrNone"), help="Maximum number of sentences, chosen by hash; 0: all.")
]
MaxLength = Annotated[
    int,
    Parameter(
        converter=limited("MaxLength"), help="Maximum tokens of a sentence; longer ones are truncated and counted."
    ),
]
_MAY_BE_EMPTY = ("checkpoint_checks",)  # nothing is odd
_LONGEST_NAME = 150  # bytes; file systems take 255, and what is written beside it needs some


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class Measuring:
    """Which sentences a model is measured on, and how."""

    corpus: CorpusName = "tatoeba-en-fr"
    text_column: TextColumn = None
    translation_column: TranslationColumn = None
    sentences: Sentences = 5000
    control: Annotated[bool, Parameter(help="Also measure the same architecture with random weights.")] = True
    reading: Reading = Reading()  # noqa: RUF009 (frozen)
    max_length: MaxLength = 512
    precision: Annotated[
        Literal["fp32", "bf16"],
        Parameter(help="Numeric precision; bf16 is faster on processors with bfloat16 instructions."),
    ] = "fp32"
    settings: Settings = ()
    seed: Annotated[Seed, Parameter(help="Seed of the token sample, the clusterings and the control.")] = 0
    device: Device = None
    anonymous: Anonymous = False

    def options(self, only: Sequence[str] = ()) -> "AnalyzeOptions":
        """The options of the public function."""
        from infoflow.studies import AnalyzeOptions

        plan = measuring_settings(self.settings, ("analysis", "probing"))
        return AnalyzeOptions(
            corpus=self.corpus,
            text_column=self.text_column or "",
            translation_column=self.translation_column or "",
            only=names_in("--only", only),
            sentences=self.sentences,
            control=self.control,
            seed=self.seed,
            device=self.device or "auto",
            tokenizer=self.reading.tokenizer,
            **self.reading.marks,
            max_length=self.max_length,
            precision=self.precision,
            measures=plan.analysis,
            probing=plan.probing,
            anonymous=self.anonymous,
        )


def run_name(command: str, *models: str, shard: tuple[int, int] | None = None) -> str:
    """The default run folder's name: the command and the models' names."""
    names = [command, *map(_short, models)]
    if shard:
        names.append(f"shard-{shard[0]}-of-{shard[1]}")
    name = "-".join(names)
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    from infoflow.foundation import digest

    return f"{name.encode()[: _LONGEST_NAME - 17].decode(errors='ignore')}-{digest(name)}"


def _short(model: str) -> str:
    """The last part of a path, with its parent where that says too little: masked-lm/seed-0, bert/checkpoint-500."""
    from infoflow.foundation import absolute

    parts = absolute(model).parts
    says_little = re.fullmatch(r"model|(seed|step|checkpoint)-?\d+", parts[-1])
    name = "-".join(parts[-2:] if says_little else parts[-1:])
    return re.sub(r"[^\w.+-]", "_", name.removesuffix(".gguf"))


def parse_shard(text: str) -> tuple[int, int]:
    """`i/n` as two numbers with 0 <= i < n."""
    from infoflow.foundation import UserError

    index, _, num = text.partition("/")
    if not re.fullmatch(r"[0-9]{1,9}/[0-9]{1,9}", text) or int(index) >= int(num):
        raise UserError(f"--shard must be i/n with i from 0 to n-1, such as 0/4. Got {text[:80]}.")
    return int(index), int(num)


def show_run(run: "Run", shard: tuple[int, int] | None = None) -> None:
    """Print what a run folder holds now.

    Raises:
        Incomplete: A measure failed.
    """
    if shard is not None:
        show_path(f"Shard {shard[0]} of {shard[1]}", run.path)
        return
    rows = [[name, f"{len(run.tables[name]):,}", _first_sentence(run, name)] for name in run.tables]
    show_table(["table", "rows", "holds"], rows)
    if any(row[1] == "0" for row in rows if row[0] not in _MAY_BE_EMPTY):
        show("Some tables are empty: too few sentences, or no trees, tags, mentions or translations.")
    show_path("Tables", run.path / "tables")
    show_path("Report", run.path / "report.html")
    require_all([run])


def _first_sentence(run: "Run", table: str) -> str:
    text = run.tables.stored(table).schema.description.split(". ")[0].rstrip(".")
    return text[:1].upper() + text[1:]


def analyze(
    model: str,
    /,
    *,
    only: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    measures: Path | None = None,
    shard: str | None = None,
    measuring: Measuring = Measuring(),
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Measure how information flows through any Hugging Face model; tables and a report.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        only: Tables to compute, separated by commas. Default: all.
        measures: A Python file with your own measures, computed with the others and drawn in the report. Its code is
            executed: name only a file you trust.
        shard: i/n: read only part i (0 to n-1) of the corpus and save its sums for `infoflow merge`.
    """
    with working(session):
        from infoflow.studies import analyze as run_analysis

        part = parse_shard(shard) if shard else None
        folder = run_folder(out, run_name("analyze", model, shard=part))
        show_run(run_analysis([model], measuring.options(only), folder, part, measures), part)


def compare(
    *models: str,
    measuring: Measuring = Measuring(),
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Measure several models on the same words, and how far apart their representations are.

    Args:
        models: Two models or more: folders, .gguf files, or names on the model hub.
    """
    with working(session):
        from infoflow.foundation import UserError

        if len(models) < 2:
            raise UserError(f"compare needs at least two models. Got {len(models)}. For one model: infoflow analyze.")

        from infoflow.studies import analyze

        folder = run_folder(out, run_name("compare", *models))
        show_run(analyze(models, measuring.options(), folder))


def merge(
    *runs: Path,
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Merge the shards of an analysis or of an over-training run: the result equals that of a single process.

    Args:
        runs: All n folders that `infoflow analyze --shard i/n` or `infoflow over-training --shard i/n` wrote.
    """
    with working(session):
        from infoflow.foundation import UserError

        if not runs:
            raise UserError("merge needs the folders that `infoflow analyze --shard i/n` wrote. Got none.")

        from infoflow._subjects import provided
        from infoflow.studies import merge as merge_shards

        joined = next((merge for fits, merge in provided("stages", "MERGING") if fits(runs[0])), merge_shards)
        show_run(joined(runs, run_folder(out, "merged")))
