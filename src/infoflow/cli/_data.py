"""`infoflow data get | describe | show`, and `infoflow list`."""

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from cyclopts import Parameter

from . import _session as cli
from ._options import names_in

if TYPE_CHECKING:
    from infoflow.corpus import CorpusDescription, SplitDescription

_LONG = 40  # mean number of words per line above which lines may be paragraphs


def get(
    name: str,
    /,
    *,
    columns: cli.Columns = cli.Columns(),  # noqa: B008 (frozen)
    log: cli.Log = None,
) -> None:
    """Fetch a corpus now, so that later commands need no network.

    Args:
        name: hf:NAME, or a built-in corpus.
    """
    with cli.reporting(log):
        from infoflow.corpus import list_corpora, load_corpus

        corpus = load_corpus(name, **asdict(columns))
        location = next((entry.location for entry in list_corpora() if entry.name == name), "")
        cli.show(f"{corpus.name}: {len(corpus):,} sentences{f' in {location}' if location else ''}")


def describe(
    name: str,
    /,
    *,
    columns: cli.Columns = cli.Columns(),  # noqa: B008 (frozen)
    log: cli.Log = None,
) -> None:
    """Show what a corpus holds: sizes, columns, tags, first sentences.

    Args:
        name: A built-in corpus, a file, or hf:NAME.
    """
    with cli.reporting(log):
        from infoflow.corpus import describe_corpus, load_corpus

        corpus = load_corpus(name, **asdict(columns))
        facts = describe_corpus(corpus)
        lengths = ", ".join(f"{share} {value:g}" for share, value in facts.words_per_sentence.items())
        rows = [
            ["name", facts.name],
            ["sentences", f"{facts.sentences:,} ({facts.distinct_sources:,} distinct)"],
            *_documents(facts),
            ["words", f"{facts.words:,} ({facts.distinct_words:,} distinct)"],
            ["words per sentence", lengths],
            ["columns", ", ".join(facts.columns)],
            *(
                [tag, ", ".join(f"{one or '(none)'} {count:,}" for one, count in counts.items())]
                for tag, counts in facts.tag_counts.items()
            ),
            *([f"split by {split.rule}", _split(split)] for split in facts.splits),
            ["digest", facts.digest],
        ]
        cli.show_table(["fact", "value"], rows)
        if columns.lines == "sentences" and tuple(facts.columns) == ("text",) and facts.words > _LONG * facts.sentences:
            cli.show_text("If these lines are paragraphs, --lines paragraphs splits them into sentences.")
        cli.show()
        cli.show_table(["column", "example"], [list(pair) for example in facts.examples for pair in example.items()])


def show_example(
    text: str,
    /,
    *,
    objective: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    translation: str | None = None,
    objectives: cli.OwnObjectives = None,
    seed: cli.Seed = 0,
) -> None:
    """Show what each objective makes of a text: the inputs of its model and the targets of its loss.

    Args:
        text: A sentence, or several; objectives that need a pair of segments take its two halves.
        objective: Objectives, separated by commas. Default: all, or those of --objectives.
        translation: The text in another language, for objectives that translate.
        seed: Seed of the noise.
    """
    from infoflow.objectives import load_objectives, show_text

    own = load_objectives(objectives) if objectives else {}
    names = names_in("--objective", objective) or tuple(own)
    shown = show_text(text, () if names == ("all",) else names, translation, seed)
    rows = [
        [name if index == 0 else "", *line]
        for name, made in shown.items()
        for index, line in enumerate(zip_longest(_lines(made.inputs), _lines(made.targets), fillvalue=""))
    ]
    cli.show_table(["objective", "inputs", "targets"], rows)


def _lines(part: Mapping[str, Sequence[str]]) -> list[str]:
    """Lines of tokens with their names; lines that describe the tokens follow below, aligned with them."""
    from infoflow.objectives import stacks

    wide = 0 if len(part) == 1 else max(map(len, part)) + 2
    lines = []
    for stack in stacks(part):
        widths = [max(map(len, column)) for column in zip(*stack.values(), strict=True)]
        for name, tokens in stack.items():
            line = " ".join(token.ljust(width) for token, width in zip(tokens, widths, strict=True))
            lines.append(f"{name if wide else '':{wide}}{line.rstrip()}")
    return lines


def _documents(facts: "CorpusDescription") -> list[list[str]]:
    if facts.documents is None:
        return []
    return [["documents", f"{facts.documents:,} ({facts.sentences_per_document:.1f} sentences each on average)"]]


def _split(split: "SplitDescription") -> str:
    """Sizes of the parts, and how much of the test part occurs in training."""
    lost, leaks = sum(count for reasons in split.left_out.values() for count in reasons.values()), split.leakage
    sizes = f"{split.train:,} train, {split.validation:,} validation, {split.test:,} test, {lost:,} left out"
    used = "" if split.used == split.rule else f" (split by {split.used}: the requested rule would leave too few rows)"
    sides = {"sources": (leaks.sources, leaks.near_sources), "targets": (leaks.targets, leaks.near_targets)}
    repeated = [
        f"{equal:.1%} of test {side} occur in training, {near:.1%} with at most one word changed"
        for side, (equal, near) in sides.items()
        if equal is not None and near is not None
    ]
    return "; ".join([f"{sizes}{used}", *repeated])


# `infoflow list`: the names that commands and plans accept, from the registries.
Kind = Literal["tables", "tasks", "objectives", "presets", "claims", "settings", "corpora"]
_DEFAULT = 24


def list_names(what: Kind, /) -> None:
    """List the names of tables, probing tasks, objectives, presets, claims, settings of a plan, or corpora.

    Args:
        what: tables (for --only), tasks (for --task), objectives, presets, claims, settings (for --set) or corpora.
    """
    cli.show_table(*_LISTS[what]())


Listed = tuple[list[str], list[list[str]]]


def _tables() -> Listed:
    import infoflow.studies  # noqa: F401 (declares them)
    from infoflow.results import TABLES

    found = sorted(TABLES.values(), key=lambda table: table.name)
    return ["table", "holds"], [[table.name, table.description.partition(". ")[0].rstrip(".")] for table in found]


def _tasks() -> Listed:
    from infoflow._subjects import provided

    found = [task for tasks in provided("measures", "tasks") for task in tasks()]
    return ["task", "of", "asks"], [[task.name, task.unit, task.about] for task in found]


def _objectives() -> Listed:
    from infoflow.objectives import OBJECTIVES

    said = {name: (one.__doc__ or "").partition("\n")[0] for name, one in OBJECTIVES.items()}
    rows = [[name, OBJECTIVES[name].layout, re.sub(r" \(\[@.*?\]\)", "", text)] for name, text in said.items()]
    return ["objective", "model", "what it does"], rows


def _presets() -> Listed:
    from infoflow.studies import PRESETS, StudyPlan

    plans = {name: StudyPlan.load(name) for name in PRESETS}
    return ["preset", "seeds", "asks"], [[name, str(len(plan.seeds)), plan.title] for name, plan in plans.items()]


def _claims() -> Listed:
    from infoflow.findings import FINDINGS

    return ["claim", "says"], [[id, one.claim] for id, one in FINDINGS.items()]


def _settings() -> Listed:
    from infoflow.studies import StudyPlan

    return ["setting", "default", "takes"], [list(row) for row in _of_section(StudyPlan, "")]


def _of_section(section: type, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield every setting with its default and allowed values, including those of nested sections."""
    from infoflow.foundation import as_written, default_settings, describe_setting

    defaults, hints = default_settings(section), get_type_hints(section, include_extras=True)
    for name in (field.name for field in fields(section)):
        hint: Any = hints[name]
        items = get_args(hint) if get_origin(hint) is tuple else ()
        inner, mark = (items[0], "[]") if items and is_dataclass(items[0]) else (hint, "")
        if is_dataclass(inner):
            yield from _of_section(inner, f"{path}{name}{mark}.")  # type: ignore[arg-type]
            continue
        default = as_written(defaults[name]) if name in defaults else "–"
        yield path + name, textwrap.shorten(default, _DEFAULT, placeholder="…"), describe_setting(hint)


def _corpora() -> Listed:
    from infoflow.corpus import list_corpora

    rows = [[entry.name, f"{entry.sentences:,}", entry.description] for entry in list_corpora()]
    return ["corpus", "sentences", "holds"], rows


_LISTS: dict[str, Callable[[], Listed]] = {
    "tables": _tables,
    "tasks": _tasks,
    "objectives": _objectives,
    "presets": _presets,
    "claims": _claims,
    "settings": _settings,
    "corpora": _corpora,
}
