"""The n best answers to each question, from start and end scores in windows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ._span_rows import Window


class SpanAnswer(NamedTuple):
    """A span of the passage, or "" for no answer."""

    text: str
    score: float
    """Sum of the logits of its start and its end."""


def best_spans(
    window: Window,
    text: str,
    start: Float[np.ndarray, " token"],
    end: Float[np.ndarray, " token"],
    count: int,
    longest: int,
) -> list[SpanAnswer]:
    """The `count` best spans of a window, with at most `longest` tokens.

    $$ s_{ij} = \\mathrm{start}_i + \\mathrm{end}_j, \\qquad i \\le j < i + \\mathrm{longest} $$

    Both ends lie in the passage, and the start must have its maximum context in this window.
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
    """The `count` best distinct answers over all windows of a question, without blank ones."""
    best: dict[str, float] = {}
    for text, score in sorted(answers, key=lambda answer: -answer.score):
        if text:
            best.setdefault(text, score)
    return [SpanAnswer(*each) for each in list(best.items())[:count]]


def with_null(answers: list[SpanAnswer], null: float, threshold: float) -> list[SpanAnswer]:
    """The answers with "" added: in first place if its score exceeds the best by more than `threshold`."""
    at_front = not answers or null - answers[0].score > threshold
    return [SpanAnswer("", null), *answers] if at_front else [*answers, SpanAnswer("", null)]


def probabilities(answers: Sequence[SpanAnswer]) -> list[float]:
    """Softmax over the scores of a question's answers."""
    scores = np.array([answer.score for answer in answers])
    weights = np.exp(scores - scores.max())
    return (weights / weights.sum()).tolist()
