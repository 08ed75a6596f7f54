"""A model's answers to yes-or-no questions, with the truth."""

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Answers:
    """One answer for each question in a batch."""

    scores: np.ndarray  # float (question,): positive means yes
    truth: np.ndarray  # int64 (question,): 1 yes, 0 no
    example: np.ndarray  # int64 (question,): row of the batch
    kind: Literal["accuracy", "AUC"]


def accuracy(scores: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> float:
    """Weighted share of right answers."""
    return float(np.average((scores > 0) == (truth > 0), weights=weights))


def area_under_curve(scores: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> float:
    r"""Probability that a yes has a higher score than a no, ties one half; NaN if only one of the two occurs.

    $$ \\mathrm{AUC} = \\frac{\\sum_{i: y_i = 1} w_i \\left(W^-_{<s_i} + \\tfrac12 W^-_{=s_i}\\right)}{W^+ W^-} $$
    """
    _, level = np.unique(scores, return_inverse=True)
    yes = np.bincount(level, weights * (truth > 0))
    no = np.bincount(level, weights * (truth <= 0))
    below = np.cumsum(no) - no
    total = yes.sum() * no.sum()
    return float((yes * (below + no / 2)).sum() / total) if total else float("nan")
