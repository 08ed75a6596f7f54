"""The sentences for a recording's losses: chosen once, with fixed noise."""

from dataclasses import dataclass

import numpy as np
import torch

from infoflow.foundation import UserError, dealt, hash64, hash64_array
from infoflow.objectives import AbstractObjective, Batch
from infoflow.training import TrainingData


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EvaluationSet:
    """Fixed examples in disjoint parts; differences between parts show the effect of the choice of examples."""

    name: str  # "train" or "held-out", by the source of the sentences
    objective: AbstractObjective  # as in evaluation: without training-only noise
    parts: tuple[tuple[Batch, ...], ...]
    counts: tuple[dict[str, int], ...]  # of each part: supervised items of each term of the loss
    sentences: int
    tokens: int  # source tokens, without padding
    micro_tokens: int = 4096  # padded tokens of one pass
    moving: bool = False  # whether it is the batch of each update, see `batch_set`

    @property
    def totals(self) -> dict[str, int]:
        """Supervised items of each term."""
        return {name: sum(counts[name] for counts in self.counts) for name in self.objective.term_weights}


def evaluation_set(
    name: str,
    objective: AbstractObjective,
    data: TrainingData,
    tokens: int,
    parts: int = 2,
    seed: int = 0,
    micro_tokens: int = 4096,
) -> EvaluationSet:
    """Sentences of `data`, by the hash of (seed, sentence id), up to `tokens` source tokens.

    The noise of a sentence is keyed by (seed, its id) with the epoch set to 0, so it never changes; it is that of
    `infoflow.training.evaluate`. Sentences are distributed to the parts in turn, with copies in the same part, so that
    parts have nearly equal size. Nothing is dropped, and batching affects only rounding.

    Raises:
        UserError: `tokens` or `parts` is below 1, or there are fewer sentences than parts.
    """
    if tokens < 1 or parts < 1:
        raise UserError(f"An evaluation set needs at least 1 token and 1 part. Got {tokens} tokens and {parts} parts.")
    objective = objective.for_evaluation()
    lengths, ids = np.asarray(data.source.lengths), np.asarray(data.source.sentence_ids)
    order = np.argsort(hash64_array(("allocation-sentences", seed), ids), kind="stable")
    chosen = order[: int(np.searchsorted(np.cumsum(lengths[order]), tokens)) + 1]
    texts = np.array([hash64(*data.source.row(int(row)).tolist()) for row in chosen], dtype=np.uint64)
    part_of = dealt(texts, parts)
    if (distinct := len(np.unique(texts))) < parts:
        raise UserError(
            f"The {name} set of {tokens} tokens has {distinct} different sentences, fewer than its {parts} parts. "
            "Ask for more tokens or fewer parts."
        )
    targets = (
        np.asarray(data.target.lengths) if objective.needs_translation and data.target is not None else 0 * lengths
    )
    batches = tuple(
        tuple(
            data.batch(objective, piece, ("evaluation-noise", seed), 0)
            for piece in _batches(np.sort(chosen[part_of == part]), lengths, targets, micro_tokens)
        )
        for part in range(parts)
    )
    return EvaluationSet(
        name=name,
        objective=objective,
        parts=batches,
        counts=tuple(_counts(objective, part) for part in batches),
        sentences=len(chosen),
        tokens=int(lengths[chosen].sum()),
        micro_tokens=micro_tokens,
    )


# Cost of an additional forward and backward pass, in tokens: 4 ms, or 90 tokens, at width 64 with 6 layers on one CPU
# thread. A GPU processes thousands of tokens in the time of a launch.
_CPU_PASS, _GPU_PASS = 64, 4096


def _batches(rows: np.ndarray, source: np.ndarray, target: np.ndarray, budget: int) -> list[np.ndarray]:
    """Rows in the cheapest batches, counting padding and passes; at most `budget` padded tokens each.

    Sentences are few and of all lengths: one batch would be mostly padding (three times the cost).
    """
    rows = rows[np.argsort(source[rows] + target[rows], kind="stable")]
    lengths = np.stack([source[rows], target[rows]])
    one_pass = _GPU_PASS if torch.cuda.is_available() else _CPU_PASS
    best, start = np.full(len(rows) + 1, np.inf), np.zeros(len(rows) + 1, dtype=int)
    best[0] = 0.0
    for stop in range(1, len(rows) + 1):
        longest = np.maximum.accumulate(lengths[:, :stop][:, ::-1], axis=1)[:, ::-1].sum(axis=0)
        padded = longest * (stop - np.arange(stop))
        fits = padded <= budget
        fits[-1] = True  # a sentence longer than the budget gets its own batch
        costs = np.where(fits, best[:stop] + padded + one_pass, np.inf)
        start[stop] = int(costs.argmin())
        best[stop] = costs[start[stop]]
    pieces, stop = [], len(rows)
    while stop:
        pieces.append(rows[start[stop] : stop])
        stop = int(start[stop])
    return pieces[::-1]


def _counts(objective: AbstractObjective, batches: tuple[Batch, ...]) -> dict[str, int]:
    totals = dict.fromkeys(objective.term_weights, 0)
    for batch in batches:
        for name, count in objective.counts(batch).items():
            totals[name] += count
    return totals
