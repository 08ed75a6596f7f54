"""From scores of starts and ends in windows to the n best answers of each question."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ._span_rows import Window


class SpanAnswer(NamedTuple):
    """A span of the passage, or "" for none."""

    text: str
    score: float
    """Logit of its start and of its end, added."""


def best_spans(
    window: Window,
    text: str,
    start: Float[np.ndarray, " token"],
    end: Float[np.ndarray, " token"],
    count: int,
    longest: int,
) -> list[SpanAnswer]:
    """The `count` best spans of a window, of `longest` tokens at most.

    $$ s_{ij} = \\mathrm{start}_i + \\mathrm{end}_j, \\qquad i \\le j < i + \\mathrm{longest} $$

    Both ends lie in the passage, and the start is a token that has most context in this window.
    """
    inside = window.offsets[:, 0] >= 0
    starts = np.where(window.best, start, -np.inf)
    ends = np.append(np.where(inside, end, -np.inf), np.full(longest - 1, -np.inf))
    scores = starts[:, None] + np.lib.stride_tricks.sliding_window_view(ends, longest)
    order = np.argsort(-scores, axis=None, kind="stable")[:count]
    found = []
    for first, more in zip(*np.unravel_index(order, scores.shape), strict=True):
        if np.isfinite(scores[first, more]):
            span = text[window.offsets[first, 0] : window.offsets[first + more, 1]]
            found.append(SpanAnswer(span.strip(), float(scores[first, more])))
    return found


def joined(answers: Sequence[SpanAnswer], count: int) -> list[SpanAnswer]:
    """The `count` best different answers over all windows of a question; blank ones are none."""
    best: dict[str, float] = {}
    for text, score in sorted(answers, key=lambda answer: -answer.score):
        if text:
            best.setdefault(text, score)
    return [SpanAnswer(*each) for each in list(best.items())[:count]]


def with_null(answers: list[SpanAnswer], null: float, threshold: float) -> list[SpanAnswer]:
    """The answers with "" among them: before all others where its score exceeds the best by more than `threshold`."""
    at_front = not answers or null - answers[0].score > threshold
    return [SpanAnswer("", null), *answers] if at_front else [*answers, SpanAnswer("", null)]


def probabilities(answers: Sequence[SpanAnswer]) -> list[float]:
    """Softmax over the scores of a question's answers."""
    scores = np.array([answer.score for answer in answers])
    weights = np.exp(scores - scores.max())
    return (weights / weights.sum()).tolist()
