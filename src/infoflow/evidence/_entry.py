"""Where in depth a document's evidence enters, and where memory is read, of each group of facts."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from infoflow.foundation import NUM_BLOCKS, interval, replicate_weights
from infoflow.results import estimate
from infoflow.retrieval import evidence_entry

from ._blocks import fact_blocks
from ._groups import fact_groups
from ._inputs import FactInputs

_AGAINST_NONE = ("gold", "retrieved")
Curves = Mapping[tuple[str, str], tuple[np.ndarray, FactInputs]]
"""By lens and document: log-probability of the right object, (state, row), and what was read."""


def entry_rows(curves: Curves) -> Iterator[dict[str, Any]]:
    """Rows of the metrics half and centre: with gold or what is retrieved, against none; of none, against a guess.

    Questions without a gold passage are left out of the first. Replicates are of the whole curve; `half` is a layer,
    so its interval is that of percentiles.
    """
    for (lens, document), (logs, inputs) in curves.items():
        if document == "none":
            guesses = 1 / (inputs.candidates[:, :, 0] >= 0).sum(axis=1)
            yield from _rows(lens, document, np.exp(logs) - guesses, inputs)
        elif document in _AGAINST_NONE and (lens, "none") in curves:
            without, of_none = curves[lens, "none"]
            held = {fact.number for fact in inputs.facts}
            kept = [row for row, fact in enumerate(of_none.facts) if fact.number in held]
            yield from _rows(lens, document, np.exp(logs) - np.exp(without[:, kept]), inputs)


def _rows(lens: str, document: str, gains: np.ndarray, inputs: FactInputs) -> Iterator[dict[str, Any]]:
    """Rows of every group, from gains (state, row)."""
    blocks, weights = fact_blocks(inputs.facts), replicate_weights()
    for group in fact_groups(inputs.facts):
        here = blocks[group.rows]
        counts = np.bincount(here, minlength=NUM_BLOCKS)
        sums = np.stack([np.bincount(here, one[group.rows], NUM_BLOCKS) for one in gains])  # (state, block)
        value = evidence_entry(sums.sum(axis=1) / counts.sum())
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn = (weights @ sums.T) / (weights @ counts)[:, None]  # (replicate, state)
        entries = np.array([evidence_entry(one) if np.isfinite(one).all() else (np.nan, np.nan) for one in drawn])
        units, keys = int(np.count_nonzero(counts)), {"document": document, "lens": lens, "place": "mask"}
        for place, metric in enumerate(("half", "centre")):
            ends = interval(entries[:, place]) if metric == "half" and np.isfinite(value.half) else None
            numbers = estimate(value[place], entries[:, place], np.nan, int(counts.sum()), units=units, ends=ends)
            yield {"facts": group.facts, "weight": group.weight, "layer": -1, "metric": metric, **keys, **numbers}
