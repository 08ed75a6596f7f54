"""Commands about Hugging Face models: `infoflow analyze`, `compare`, `merge`, `heads` and `view`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from infoflow._subjects import provided

from . import _session as cli
from ._options import Reading, limited, measuring_settings, names_in

if TYPE_CHECKING:
    import pandas as pd

    from infoflow.models import Model
    from infoflow.studies import AnalyzeOptions

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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True, slots=True)
class Measuring:
    """Which sentences a model is measured on, and how."""

    corpus: CorpusName = "tatoeba-en-fr"
    text_column: cli.TextColumn = None
    translation_column: cli.TranslationColumn = None
    lines: cli.Lines = "sentences"
    chat: Annotated[
        bool,
        Parameter(
            negative=(),
            help="The corpus holds conversations (.json, .jsonl, hf:NAME), read through the model's chat template.",
        ),
    ] = False
    where: Annotated[
        str | None, Parameter(help="TAG=VALUE counts only tokens of words with this tag, such as role=assistant.")
    ] = None
    sentences: Sentences = 5000
    control: Annotated[bool, Parameter(help="Also measure the same architecture with random weights.")] = True
    reading: Reading = Reading()  # noqa: RUF009 (frozen)
    name: cli.Names = ()
    max_length: MaxLength = 512
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"],
        Parameter(help="Precision of weights and states; bfloat16 is faster on processors with such instructions."),
    ] = "float32"
    quantize: Annotated[
        Literal["int8"] | None,
        Parameter(help="Quantise the weights of linear layers while loading: int8, 8 bits (extra torchao)."),
    ] = None
    settings: cli.Settings = ()
    measures: cli.OwnMeasures = None
    seed: Annotated[cli.Seed, Parameter(help="Seed of the token sample, the clusterings and the control.")] = 0
    device: cli.Device = None
    anonymous: cli.Anonymous = False

    def options(self, only: Sequence[str] = ()) -> "AnalyzeOptions":
        from infoflow.studies import AnalyzeOptions

        further = [name for sections in provided("settings", "OPTIONS") for name in sections]
        plan = measuring_settings(self.settings, ("analysis", *further))
        names = (
            *("corpus", "text_column", "translation_column", "lines", "chat", "where", "sentences", "control"),
            *("seed", "device", "max_length", "dtype", "quantize", "anonymous"),
        )
        return AnalyzeOptions(
            **{name: value for name in names if (value := getattr(self, name)) is not None},
            only=names_in("--only", only),
            own=str(self.measures or ""),
            names=self.name,
            tokenizer=self.reading.tokenizer,
            **self.reading.marks,
            measures=plan.analysis,
            **{name: getattr(plan, name) for name in further},
        )


def analyze(
    model: str,
    /,
    *,
    only: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    label_column: str | None = None,
    shard: str | None = None,
    measuring: Measuring = Measuring(),
    out: cli.Out = None,
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Measure how information flows through any Hugging Face model; writes tables and a report.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        only: Tables to compute, separated by commas. Default: all.
        label_column: Column of sentence labels in a table, such as domains that route_importance compares.
        shard: i/n: read only part i (0 to n-1) of the corpus and save its sums for `infoflow merge`.
    """
    with cli.working(session, model):
        from infoflow.studies import analyze as run_analysis

        part = cli.parse_shard(shard) if shard else None
        folder = cli.run_folder(out, cli.run_name("analyze", *measuring.name or [model], shard=part))
        options = replace(measuring.options(only), label_column=label_column or "")
        cli.show_run(run_analysis([model], options, folder, part), part)


def compare(
    *models: str,
    measuring: Measuring = Measuring(),
    out: cli.Out = None,
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Measure several models on the same words, and the distances between their representations.

    Args:
        models: Two models or more: folders, .gguf files, or names on the model hub.
    """
    with cli.working(session, *models):
        from infoflow.foundation import UserError

        if len(models) < 2:
            raise UserError(f"compare needs at least two models. Got {len(models)}. For one model: infoflow analyze.")

        from infoflow.studies import analyze

        folder = cli.run_folder(out, cli.run_name("compare", *measuring.name or models))
        cli.show_run(analyze(models, measuring.options(), folder))


def merge(
    *runs: Path,
    measures: cli.OwnMeasures = None,
    out: cli.Out = None,
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Merge the shards of an analysis or of an over-training run; the result is the same as from a single process.

    Args:
        runs: All n folders that `infoflow analyze --shard i/n` or `infoflow over-training --shard i/n` wrote.
    """
    with cli.working(session):
        from infoflow.foundation import UserError

        if not runs:
            raise UserError("merge needs the folders that `infoflow analyze --shard i/n` wrote. Got none.")

        from infoflow.studies import merge as merge_shards

        joined = next((merge for fits, merge in provided("stages", "MERGING") if fits(runs[0])), None)
        folder = cli.run_folder(out, "merged")
        cli.show_run(joined(runs, folder) if joined else merge_shards(runs, folder, measures))


_KEYS = ["stack", "kind", "layer", "head"]
_TABLES = (
    *("head_confidence", "head_entropy", "head_positional", "head_surface", "head_relations", "head_rare_token"),
    *("head_patterns", "head_by_distance", "head_retrieval"),
)


def heads(
    model: str,
    /,
    *,
    top: Annotated[int, Parameter(converter=limited("Count"))] = 10,
    parse: Annotated[bool, Parameter(negative=(), help="Parse a corpus without trees with spaCy (--parser).")] = False,
    parser: Annotated[str, Parameter(help="Name or folder of a spaCy pipeline.")] = "en_core_web_sm",
    measuring: Measuring = Measuring(),
    out: cli.Out = None,
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Show the roles of each attention head: positional, syntactic, rare tokens, induction, copying...

    Syntactic roles need trees: a CoNLL-U file, the corpus grammar, or --parse.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        top: Heads to list for each role and statistic; the tables hold all of them.
    """
    with cli.working(session, model):
        from infoflow.heads import HEAD_ROLES, head_roles
        from infoflow.studies import analyze

        options = replace(measuring.options(_TABLES), parser=parser if parse else "")
        run = analyze([model], options, cli.run_folder(out, cli.run_name("heads", *measuring.name or [model])))
        frames = {name: run.tables[name] for name in _TABLES if name in run.tables}
        roles = head_roles({name: frame[frame["trained"]] for name, frame in frames.items()})
        untrained = head_roles({name: frame[~frame["trained"]] for name, frame in frames.items()})
        run.tables.write(roles, HEAD_ROLES)
        _show_roles(roles, untrained, top)
        for title, unit, table, offset in (
            ("Previous token", "share of queries", "head_positional", -1),
            ("Next token", "share of queries", "head_positional", 1),
            ("Confidence", "mean of the largest weight", "head_confidence", None),
        ):
            if (frame := frames.get(table)) is not None:
                _show_top(f"{title} ({unit})", frame if offset is None else frame[frame["offset"] == offset], top)
        if "head_relations" in frames and frames["head_relations"].empty:
            cli.show(
                "No relation has enough edges (or the corpus has no trees): use a .conllu file, grammar, or --parse."
            )
        cli.show_path("All heads", run.path / "tables")
        cli.show_path("Report", run.path / "report.html")
        cli.require_all([run])


def _held_title(roles: "pd.DataFrame", held: "pd.DataFrame") -> str:
    """Title of the roles: heads are chosen on one half of the sentences and listed with their values on the other."""
    from infoflow.heads import by_chance

    num = len(held.groupby(_KEYS))
    return (
        f"Roles held ({num:,} {'head holds' if num == 1 else 'heads hold'} one; {int(roles['chosen'].sum()):,} of "
        f"{len(roles):,} scores reach their limit on one half of the sentences, {len(held):,} also exceed it on the "
        f"other, at most {by_chance(roles):.1f} by chance)"
    )


def _show_roles(roles: "pd.DataFrame", untrained: "pd.DataFrame", top: int) -> None:
    control = untrained.set_index([*_KEYS, "role"])["value"]
    held = roles[roles["holds"]].sort_values([*_KEYS[:2], "layer", "head"], kind="stable")
    columns = [*_KEYS, "role", "other half [95%]", "baseline", "needed", "untrained"]
    cli.show_table(columns, _role_rows(held, control), _held_title(roles, held))
    cli.show()
    best = roles.groupby("role", sort=False).head(min(top, 3))
    cli.show_table(
        ["role", "held by", *_KEYS, "other half [95%]", "baseline", "needed", "untrained"],
        [
            [row[4], str(int(roles.loc[roles["role"] == row[4], "holds"].sum())), *row[:4], *row[5:]]
            for row in _role_rows(best, control)
        ],
        "Best heads of each role",
    )
    cli.show()


def _role_rows(roles: "pd.DataFrame", control: "pd.Series") -> list[list[str]]:
    rows = []
    for row in roles.to_dict("records"):
        key = (*(row[name] for name in _KEYS), row["role"])
        rows.append(
            [
                *(str(row[name]) for name in _KEYS),
                row["role"],
                cli.estimate(row["held_out"], row["held_out_low"], row["held_out_high"]),
                f"{row['baseline']:.3f}",
                f"{row['limit']:.3f}",
                f"{control[key]:.3f}" if key in control.index else "–",
            ]
        )
    return rows


def _show_top(title: str, frame: "pd.DataFrame", top: int) -> None:
    """Print the heads with the largest values, with chance and the same head's value before training."""
    trained = frame[frame["trained"]].dropna(subset="value")
    untrained = frame[~frame["trained"]].set_index(_KEYS)["value"]
    rows = []
    for row in trained.nlargest(top, "value").to_dict("records"):
        key = tuple(row[name] for name in _KEYS)
        control = f"{untrained[key]:.3f}" if key in untrained.index else "–"
        rows.append(
            [*map(str, key), cli.estimate(row["value"], row["low"], row["high"]), f"{row['baseline']:.3f}", control]
        )
    cli.show_table([*_KEYS, "value [95%]", "chance", "untrained"], rows, title)
    cli.show()


_OCCURRENCES = 12  # occurrences drawn of each word


def view(
    model: str,
    sentence: str,
    translation: str | None = None,
    /,
    *,
    pair: Annotated[
        str | None,
        Parameter(help="A second sentence that an encoder reads after the first: [CLS] first [SEP] second [SEP]."),
    ] = None,
    chat: Annotated[
        bool,
        Parameter(
            negative=(),
            help="SENTENCE is a user's message, or a .json or .jsonl file whose first conversation is drawn; the model "
            "reads it through its chat template.",
        ),
    ] = False,
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    name: cli.Names = (),
    words: Annotated[
        str | None,
        Parameter(help="Corpus in which to draw the neighbours of the words in SENTENCE, instead of attention."),
    ] = None,
    text_column: cli.TextColumn = None,
    device: cli.Device = None,
    out: Annotated[Path | None, Parameter(group=cli.COMMON, help="HTML file. Default: view-MODEL.html.")] = None,
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Draw how a model attends to one sentence, or with --words the neighbours of words: one HTML file that opens
    offline.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        sentence: Text between quotes; for a model without tokenizer, token ids such as "5 6 7".
        translation: Input for the decoder of an encoder–decoder model. Default: the model's own translation.
    """
    with cli.working(session, model):
        from infoflow.foundation import UserError
        from infoflow.heads import sentence_attention
        from infoflow.report import check_view_path, further_answers, write_view

        if text_column and words is None:
            raise UserError("--text-column names a column of the corpus of --words. Got no --words. Add it.")
        if pair is not None and words is not None:
            raise UserError(
                "--pair is drawn as attention, and --words as neighbours of words. Got both. Leave one out."
            )
        if chat and (pair is not None or words is not None or translation is not None):
            raise UserError("--chat draws one conversation. Leave out the translation, --pair and --words.")
        path = check_view_path(out or Path(f"{cli.run_name('view', *name or [model])}.html"))
        loaded = reading.load(model, device, *cli.names_of([model], name))
        if words is not None:
            cli.show_path("View", _draw_words(loaded, sentence, words, text_column, path))
            return
        if lacking := loaded.anatomy.lacks():
            raise UserError(
                f"{loaded.name} has no attention to draw: {lacking}. Use --words CORPUS to see neighbours of words."
            )
        seen = sentence_attention(loaded, sentence, translation, pair=pair, chat=chat)
        cli.show_path("View", write_view(seen, path, further_answers(loaded, seen.sentence)))


def _draw_words(model: "Model", named: str, name: str, text_column: str | None, path: Path) -> Path:
    from infoflow.corpus import load_corpus
    from infoflow.flow import measure
    from infoflow.report import write_word_view
    from infoflow.representations import WORD_NEIGHBOURS, WordNeighbours

    wanted = WordNeighbours(named=tuple(named.split()), occurrences=_OCCURRENCES)
    corpus = load_corpus(name, text_column=text_column)
    return write_word_view(measure(model, corpus, [wanted])[WORD_NEIGHBOURS.name], model.name, path)
