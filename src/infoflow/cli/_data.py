"""`infoflow data get | describe | show`."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ._options import names_in
from ._session import (
    DocumentColumn,
    Documents,
    Lines,
    Log,
    OwnObjectives,
    Seed,
    TextColumn,
    TranslationColumn,
    reporting,
    show,
    show_table,
    show_text,
)

if TYPE_CHECKING:
    from infoflow.corpus import CorpusDescription, SplitDescription

_LONG = 40  # mean number of words per line above which lines may be paragraphs


def get(
    name: str,
    /,
    *,
    text_column: TextColumn = None,
    translation_column: TranslationColumn = None,
    document_column: DocumentColumn = None,
    documents: Documents = False,
    lines: Lines = "sentences",
    log: Log = None,
) -> None:
    """Fetch a corpus now, so that later commands need no network.

    Args:
        name: hf:NAME, or a built-in corpus.
    """
    with reporting(log):
        from infoflow.corpus import list_corpora, load_corpus

        corpus = load_corpus(
            name,
            text_column=text_column,
            translation_column=translation_column,
            document_column=document_column,
            documents=documents,
            lines=lines,
        )
        location = next((entry.location for entry in list_corpora() if entry.name == name), "")
        show(f"{corpus.name}: {len(corpus):,} sentences{f' in {location}' if location else ''}")


def describe(
    name: str,
    /,
    *,
    text_column: TextColumn = None,
    translation_column: TranslationColumn = None,
    document_column: DocumentColumn = None,
    documents: Documents = False,
    lines: Lines = "sentences",
    log: Log = None,
) -> None:
    """Show what a corpus holds: sizes, columns, tags, first sentences.

    Args:
        name: A built-in corpus, a file, or hf:NAME.
    """
    with reporting(log):
        from infoflow.corpus import describe_corpus, load_corpus

        corpus = load_corpus(
            name,
            text_column=text_column,
            translation_column=translation_column,
            document_column=document_column,
            documents=documents,
            lines=lines,
        )
        facts = describe_corpus(corpus)
        lengths = ", ".join(f"{share} {value:g}" for share, value in facts.words_per_sentence.items())
        rows = [
            ["name", facts.name],
            ["sentences", f"{facts.sentences:,} ({facts.distinct_sources:,} distinct)"],
            *_documents(facts),
            ["words", f"{facts.words:,} ({facts.distinct_words:,} distinct)"],
            ["words per sentence", lengths],
            ["columns", ", ".join(facts.columns)],
            *([tag, _counts(counts)] for tag, counts in facts.tag_counts.items()),
            *([f"split by {split.rule}", _split(split)] for split in facts.splits),
            ["digest", facts.digest],
        ]
        show_table(["fact", "value"], rows)
        if lines == "sentences" and tuple(facts.columns) == ("text",) and facts.words > _LONG * facts.sentences:
            show_text("If these lines are paragraphs, --lines paragraphs splits them into sentences.")
        show()
        show_table(["column", "example"], [list(pair) for example in facts.examples for pair in example.items()])


def show_example(
    text: str,
    /,
    *,
    objective: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    translation: str | None = None,
    objectives: OwnObjectives = None,
    seed: Seed = 0,
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
        [name if place == 0 else "", *line]
        for name, made in shown.items()
        for place, line in enumerate(zip_longest(_lines(made.inputs), _lines(made.targets), fillvalue=""))
    ]
    show_table(["objective", "inputs", "targets"], rows)


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


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{tag or '(none)'} {count:,}" for tag, count in counts.items())
