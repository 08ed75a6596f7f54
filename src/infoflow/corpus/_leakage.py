"""How much of a held-out part a model may have seen in training."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import compress

import numpy as np

from ._corpus import Corpus
from ._near_duplicates import nearly_repeats, normalised, repeats


@dataclass(frozen=True, kw_only=True, slots=True)
class Leakage:
    """Shares of the rows of a held-out part; those of targets are None for a corpus without translations."""

    sources: float  # rows whose target does
    targets: float | None  # whose target does
    near_sources: float  # rows whose source occurs in training, with equal words or one word apart
    near_targets: float | None

    def to_json(self) -> dict[str, float]:
        """The shares that are not None."""
        return {name: share for name, share in asdict(self).items() if share is not None}


def leakage(held_out: Corpus, train: Corpus) -> Leakage:
    """How much of `held_out` occurs in `train`; `Corpus.split` defines equal and near."""
    sides = [name for name in ("text", "translation") if name in held_out.columns & train.columns]
    shares = [[_share(held_out, train, side, found) for side in sides] for found in (repeats, nearly_repeats)]
    equal, near = ([*values, None][:2] for values in shares)
    assert equal[0] is not None
    assert near[0] is not None
    return Leakage(sources=equal[0], targets=equal[1], near_sources=near[0], near_targets=near[1])


def repeated(texts: Iterable[str], others: Callable[[], Iterable[str]]) -> tuple[int, int, int]:
    """The number of distinct texts, and how many of them occur in `others`, exactly or nearly.

    `Corpus.split` defines equal and near.

    Args:
        texts: Texts to look for.
        others: Streams the texts to search, from the start at every call.
    """
    distinct = list({normalised(text): text for text in texts}.values())
    counts = []
    for found in (repeats, nearly_repeats):
        touched = found(others(), distinct)
        counts.append(int(found(distinct, compress(others(), touched)).sum()))
    return len(distinct), counts[0], counts[1]


def _share(
    held_out: Corpus, train: Corpus, side: str, found: Callable[[Iterable[str], Iterable[str]], np.ndarray]
) -> float:
    # In both directions, so that only matching training sentences are in memory.
    touched = found(train.column(side), held_out.column(side))
    return float(found(held_out.column(side), compress(train.column(side), touched)).mean())
