"""Labels of a part as numbers, and checks on them."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, as_written

SEVERAL = "|"
"""Separator of the labels of an example with several."""


def label_indices(corpus: Corpus, labels: Sequence[str]) -> Int[np.ndarray, " example"]:
    """The class index of each example.

    Raises:
        UserError: An example has no label, or one that is not in `labels`.
    """
    places = {label: place for place, label in enumerate(labels)}
    found = list(corpus.column("label"))
    check_known(found, places, corpus)
    return np.array([places[label] for label in found], dtype=np.int64)


def label_sets(corpus: Corpus, labels: Sequence[str]) -> Float[np.ndarray, "example label"]:
    """The labels of each example, 1 or 0; an example may have none.

    Raises:
        UserError: A label is not in `labels`.
    """
    places = {label: place for place, label in enumerate(labels)}
    found = [several(label) for label in corpus.column("label")]
    check_known([label for each in found for label in each], places, corpus)
    chosen = np.zeros((len(found), len(labels)), dtype=np.float32)
    for row, each in enumerate(found):
        chosen[row, [places[label] for label in each]] = 1.0
    return chosen


def label_numbers(corpus: Corpus) -> Float[np.ndarray, " example"]:
    """The number that labels each example.

    Raises:
        UserError: A label is missing or no number.
    """
    check_numbers(corpus)
    found = list(corpus.column("label"))
    _check_labelled(found, corpus)
    return np.array([number(label) for label in found], dtype=np.float64)


def number(label: str | None) -> float | None:
    """The value of a numeric label, else None."""
    try:
        value = float(label or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def several(label: str | None) -> list[str]:
    """The labels of an example that may have several: `A|B` has two, an empty one has none."""
    return [part for part in (piece.strip() for piece in (label or "").split(SEVERAL)) if part]


def check_numbers(corpus: Corpus) -> None:
    """Raise a UserError for the first label that is not a number; examples without a label are skipped."""
    for row, label in enumerate(corpus.column("label")):
        if label is not None and number(label) is None:
            raise UserError(
                f"A regression needs numeric labels. {corpus.name}, example {row + 1}, has "
                f"{as_written(label)}.\nName the column of the numbers (label=), or ask for classes: "
                'shape="classification".'
            )


def check_known(found: Iterable[str | None], known: Iterable[str], corpus: Corpus, column: str = "label") -> None:
    """Raise a UserError that names the labels (or tags, by `column`) of a part that the task does not know."""
    known = dict.fromkeys(known)
    found = list(found)
    unknown = list(dict.fromkeys(label for label in found if label is not None and label not in known))
    if unknown:
        times = sum(label in set(unknown) for label in found)
        raise UserError(
            f"Every label of {corpus.name} must occur in training. {times:,} of its labels do not: "
            f"{listed(unknown)}; those of training are {listed(list(known))}.\n"
            f"Correct them, leave those examples out, or name another column ({column}=)."
        )
    _check_labelled(found, corpus)


def _check_labelled(found: Sequence[str | None], corpus: Corpus) -> None:
    """Raise a UserError if examples have no label."""
    if missing := sum(label is None for label in found):
        raise UserError(
            f"Every example must have a label. {missing:,} of {corpus.name} have none.\n"
            "Leave them out, or name another column (label=)."
        )


def listed(labels: Sequence[str]) -> str:
    """A list of labels for a message, six at most."""
    more = f" and {len(labels) - 6:,} more" if len(labels) > 6 else ""
    return ", ".join(as_written(label) for label in labels[:6]) + more
