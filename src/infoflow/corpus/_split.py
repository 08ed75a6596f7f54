"""Train, validation and test parts without leakage between them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from infoflow.foundation import UserError, as_written, current_display, digest, read_object

from ._abstract_sentences import AbstractSentences
from ._documents import document_hashes, hashes, most_of_document, nearly_repeats, normalised, repeats
from ._store import cached

SplitRule = Literal["near-duplicates", "both-sides", "source"]
"""What parts of a corpus must not share: sources, then also targets, then also near duplicates of both."""

SPLIT_RULES: tuple[SplitRule, ...] = get_args(SplitRule)
"""The split rules, strictest first."""
LEAST_LEFT = 0.5
"""If a rule would leave less than this share of a part, the next weaker one is used."""

_VERSION = 2  # increase when the same corpus is split differently
_SMALL = 20_000  # sentences; up to this number a split takes less than a second and is not cached
Column = Callable[[], Iterable[str]]  # streams one side of the corpus from its start
TRAIN, VALIDATION, TEST, LEFT_OUT = range(4)
_NAMES = {VALIDATION: "validation", TRAIN: "train"}
# Reasons for leaving a row out, by precedence; 0: on the source side, 1: on the target side.
_REASONS: dict[SplitRule, tuple[tuple[str, int, Callable[..., np.ndarray]], ...]] = {
    "near-duplicates": (
        ("equal target", 1, repeats),
        ("near duplicate of a source", 0, nearly_repeats),
        ("near duplicate of a target", 1, nearly_repeats),
    ),
    "both-sides": (("equal target", 1, repeats),),
    "source": (),
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Assignment:
    """The part of each row, and the rows that the rule left out."""

    parts: np.ndarray  # TRAIN, VALIDATION, TEST or LEFT_OUT
    rule: SplitRule  # the rule that was used
    left_out: dict[str, dict[str, int]]  # rows by part and reason

    def save(self, folder: Path) -> None:
        np.save(folder / "parts.npy", self.parts.astype(np.int8))
        facts = {"rule": self.rule, "left_out": self.left_out}
        (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Assignment":
        facts = read_object(folder / "facts.json")
        return cls(parts=np.load(folder / "parts.npy").astype(np.int64), **facts)


def split_rows(
    corpus: AbstractSentences, seed: int, shares: Mapping[str, float], rule: SplitRule
) -> tuple[dict[str, np.ndarray | None], Assignment]:
    """The rows of each part (None for a share of 0), and their assignment.

    Every process of a study splits the same corpus, which takes ten seconds for `tatoeba-en-fr`, so the assignment of a
    large corpus is cached.
    """
    validation, test = shares["validation"], shares["test"]
    for name, share in (("validation", validation), ("test", test)):
        if not 0 <= share < 1:
            raise UserError(f"{name} is a share of the corpus in [0, 1). Got {share}.")
    if validation + test >= 1:
        raise UserError(f"validation + test must be below 1, to leave a training part. Got {validation + test}.")
    check_rule(rule)
    if len(corpus) <= _SMALL:
        assigned = _assign(corpus, seed, validation, test, rule)
    else:
        key = digest([_VERSION, corpus.digest, seed, validation, test, rule])

        def make(folder: Path) -> None:
            _assign(corpus, seed, validation, test, rule).save(folder)

        assigned = Assignment.load(cached(f"splits/{key}", make, f"The split of {corpus.name}"))
    parts: dict[str, np.ndarray | None] = {}
    for number, (part, share) in enumerate(shares.items()):
        rows = np.flatnonzero(assigned.parts == number)
        if share > 0 and len(rows) == 0:
            documents = corpus.documents
            few = f"sentences ({len(corpus)})" if documents is None else f"documents ({len(np.unique(documents))})"
            raise UserError(
                f"{corpus.name} has too few {few} for a {part} part: similar ones stay in the same part.\n"
                "Use a more varied corpus, a larger share, or a separate file for each part."
            )
        parts[part] = rows if share > 0 else None
    return parts, assigned


def _assign(corpus: AbstractSentences, seed: int, validation: float, test: float, rule: SplitRule) -> Assignment:
    """The part of each row of a corpus of sources, or of sources and targets.

    The hash of the source determines a row's part. Then validation rows that repeat a test row (as forbidden by `rule`)
    are left out, as are training rows that repeat a test row or a remaining validation row. Parts are not built from
    connected components of near duplicates, since long chains of these connect many rows: the largest component of
    `tatoeba-en-fr` (up to ten words) has 43,695 of its 168,205 pairs. With documents (a number for each row) whole
    documents are assigned and left out.
    """
    columns = [partial(corpus.column, name) for name in ("text", "translation") if name in corpus.columns]
    documents = corpus.documents
    numbers = split_numbers(columns[0](), seed, documents)
    parts = np.select([numbers < test, numbers < test + validation], [TEST, VALIDATION], TRAIN)
    for tried in SPLIT_RULES[SPLIT_RULES.index(rule) :]:
        result = _without_leaks(parts, columns, documents, tried)
        left = [(result.parts == part).sum() >= LEAST_LEFT * (parts == part).sum() for part in _NAMES]
        if tried == "source" or all(left):
            break
    if result.rule != rule:
        current_display().note(
            f"{corpus.name} is split by the rule {as_written(result.rule)}: "
            f"{as_written(rule)} would leave less than {LEAST_LEFT:.0%} of a part."
        )
    return result


def split_numbers(
    texts: Iterable[str], seed: int, documents: np.ndarray | None = None, purpose: str = "split"
) -> np.ndarray:
    """A number in [0, 1) for each source sentence, determined by the seed and the sentence.

    If documents are known, it is determined by the seed and the sentences of the document in order.

    Case, spacing and compatibility forms (NFKC) are ignored. Otherwise a tokenizer that lower-cases or normalises would
    see one sentence in two parts: `Go.` and `go.`, `H₂O` and `H2O`, `é` as one character or two.

    Numbers for different `purpose`s are independent, so the parts of one purpose are spread evenly over another's.
    """
    numbers = hashes(map(normalised, texts), key=f"{purpose}-{seed}")
    return (numbers if documents is None else document_hashes(numbers, documents)) / 2.0**64


def check_rule(rule: str) -> None:
    """Raise a UserError unless it is one of `SPLIT_RULES`."""
    if rule not in SPLIT_RULES:
        raise UserError(f"The rule of a split must be among {', '.join(SPLIT_RULES)}. Got {as_written(rule)}.")


def _without_leaks(
    parts: np.ndarray, columns: Sequence[Column], documents: np.ndarray | None, rule: SplitRule
) -> Assignment:
    parts, left_out = parts.copy(), {}
    for part, name in _NAMES.items():
        held_out, rows = np.isin(parts, (TEST, VALIDATION)) & (parts != part), np.flatnonzero(parts == part)
        leaked = np.zeros(len(rows), dtype=bool)
        for reason, side, check in _REASONS[rule]:
            if side >= len(columns) or not held_out.any():
                continue
            found = check(compress(columns[side](), parts == part), compress(columns[side](), held_out))
            found = (found if documents is None else most_of_document(found, documents[rows])) & ~leaked
            leaked |= found
            if found.any():
                left_out.setdefault(name, {})[reason] = int(found.sum())
        parts[rows[leaked]] = LEFT_OUT
    return Assignment(parts=parts, rule=rule, left_out=left_out)
