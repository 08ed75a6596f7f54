"""The table `retrieval_scores`: rankings and answers with intervals, with chance and an oracle for comparison."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import NUM_BLOCKS, UserError, block_of, hash64, stream
from infoflow.objectives import exact_match, token_f1
from infoflow.results import RETRIEVAL_SCORES, estimate, linear_replicates, ratio_estimate

from ._ranking import NOTHING, Ranked, Relevant, hit_at, recall_at, reciprocal_rank

CUTS = (1, 2, 5, 10, 20, 100)


def retrieval_scores(
    ranked: Mapping[str, Ranked],
    relevant: Relevant,
    questions: Sequence[str],
    num_passages: int,
    cuts: Collection[int] = CUTS,
    queries: str = "all",
    seed: int = 0,
) -> pd.DataFrame:
    """Hit, recall and MRR at each cut, and the collapse of every system, `random` and `oracle` included.

    Also the share of questions without results, for which only the empty passage can be read.

    Intervals are a bootstrap over blocks of questions, shared by all systems, so replicates are paired.

    Args:
        ranked: System → ids of each question's passages, best first.
        relevant: Ids of the passages that answer it.
        questions: Their texts: equal questions are in one block.
        num_passages: Size of the index.
        cuts: Values of k; those beyond the number of results are left out.
        queries: Name of this group of questions.
        seed: Seeds the random control.

    Raises:
        UserError: The numbers of rankings and questions differ, or a question has no relevant passage.
    """
    if len(questions) != len(relevant):
        raise UserError(f"Each question needs its relevant passages. Got {len(questions)} and {len(relevant)}.")
    blocks = question_blocks(questions)
    depth = max((len(row) for system in ranked.values() for row in system), default=1)
    chance = _random_rankings(len(questions), num_passages, depth, seed)
    oracle = [sorted(map(int, one)) for one in relevant]
    baselines = {key: float(values.mean()) for key, values in _metrics(chance, relevant, cuts, depth).items()}
    rows = []
    for system, rankings in {**ranked, "oracle": oracle, "random": chance}.items():
        for (metric, k), values in _metrics(rankings, relevant, cuts, depth).items():
            rows.append(_row(system, queries, metric, k, values, blocks, baselines[metric, k]))
        if system != "oracle":
            rows.append(_collapse(system, queries, rankings, num_passages, blocks, chance))
    return RETRIEVAL_SCORES.conform(pd.DataFrame(rows))


def answer_scores(
    said: Sequence[str], answers: Sequence[Sequence[str]], questions: Sequence[str], system: str, queries: str = "all"
) -> pd.DataFrame:
    """Exact match and token F1 of answers; the baseline always gives the most frequent right answer.

    Raises:
        UserError: Their numbers differ.
    """
    if not len(said) == len(answers) == len(questions):
        raise UserError(f"Each question needs an answer. Got {len(said)}, {len(answers)} and {len(questions)}.")
    blocks = question_blocks(questions)
    counts: dict[str, int] = {}
    for one in answers:
        counts[one[0]] = counts.get(one[0], 0) + 1
    constant = max(counts, key=counts.__getitem__)
    rows = []
    for metric, score in (("em", exact_match), ("f1", token_f1)):
        values = np.array([float(score(text, right)) for text, right in zip(said, answers, strict=True)])
        baseline = np.mean([float(score(constant, right)) for right in answers])
        rows.append(_row(system, queries, metric, 0, values, blocks, float(baseline)))
    return RETRIEVAL_SCORES.conform(pd.DataFrame(rows))


def question_blocks(questions: Sequence[str]) -> np.ndarray:
    """The bootstrap block of each question, by its text."""
    return block_of(np.array([hash64("question", one) >> 1 for one in questions], dtype=np.int64))


def collapse(ranked: Ranked, num_passages: int) -> float:
    r"""Entropy of the passages found over all queries, divided by \(\log\) of the number of passages: 0 to 1."""
    found = np.concatenate([np.asarray(row, dtype=np.int64) for row in ranked]) if len(ranked) else np.empty(0, int)
    found = found[found != NOTHING]
    if not len(found) or num_passages < 2:
        return float("nan")
    shares = np.unique(found, return_counts=True)[1] / len(found)
    return float(-(shares * np.log(shares)).sum() / np.log(num_passages))


def _metrics(ranked: Ranked, relevant: Relevant, cuts: Collection[int], depth: int) -> dict[Any, np.ndarray]:
    kept = [k for k in sorted(set(cuts)) if k <= depth]
    hits = {("hit", k): hit_at(ranked, relevant, k) for k in kept}
    recalls = {("recall", k): recall_at(ranked, relevant, k) for k in kept}
    nothing = np.array([not any(id != NOTHING for id in row) for row in ranked], dtype=np.float64)
    return {**hits, **recalls, ("mrr", 0): reciprocal_rank(ranked, relevant), ("nothing_found", 0): nothing}


def _random_rankings(num: int, num_passages: int, depth: int, seed: int) -> list[np.ndarray]:
    size = min(depth, num_passages)
    return [stream("random-passages", seed, row).choice(num_passages, size, replace=False) for row in range(num)]


def _sums(values: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    return np.bincount(blocks, values, NUM_BLOCKS)


def _row(
    system: str, queries: str, metric: str, k: int, values: np.ndarray, blocks: np.ndarray, baseline: float
) -> dict[str, Any]:
    estimate = ratio_estimate(_sums(values, blocks), _sums(np.ones(len(values)), blocks), baseline, scale="share")
    return {"system": system, "queries": queries, "metric": metric, "k": k, **estimate}


def _collapse(
    system: str, queries: str, ranked: Ranked, num_passages: int, blocks: np.ndarray, chance: Ranked
) -> dict[str, Any]:
    """Replicates leave out one block at a time: drawing questions twice would lower the entropy."""
    value = collapse(ranked, num_passages)
    rows = [np.asarray(row) for row in ranked]
    without = [
        collapse([row for row, place in zip(rows, blocks, strict=True) if place != block], num_passages)
        if (blocks == block).any()
        else value
        for block in range(NUM_BLOCKS)
    ]
    replicates = linear_replicates(value, np.array(without))
    units, control = len(np.unique(blocks)), collapse(chance, num_passages)
    numbers = estimate(value, replicates, control, len(rows), scale="share", units=units)
    return {"system": system, "queries": queries, "metric": "collapse", "k": 0, **numbers}
