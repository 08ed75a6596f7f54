"""The depth at which a document's evidence enters, and at which memory is read, for each group of facts."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from infoflow.foundation import NUM_BLOCKS, Interval, replicate_weights, symmetric_interval
from infoflow.results import estimate

from ..models import evidence_entry
from ._blocks import fact_blocks
from ._groups import fact_groups
from ._inputs import FactInputs

_AGAINST_NONE = ("gold", "retrieved")
Curves = Mapping[tuple[str, str], tuple[np.ndarray, FactInputs]]
"""By lens and document: log-probability of the right object, (state, row), and the inputs."""


def entry_rows(curves: Curves) -> Iterator[dict[str, Any]]:
    """Rows of the metrics half and centre: gold or retrieved against none; none against a guess.

    Questions without a gold passage are left out of the first. Replicates cover the whole curve; `half` is a layer, so
    its interval extends at least one layer to either side.
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
            ends = None
            if metric == "half" and np.isfinite(value.half):
                ends = symmetric_interval(value.half, entries[:, place], (0.0, len(gains) - 1.0))
                ends = Interval(*(np.clip(end, 0.0, len(gains) - 1.0) for end in ends.reaching(value.half, 1.0)))
            numbers = estimate(value[place], entries[:, place], np.nan, int(counts.sum()), units=units, ends=ends)
            yield {"facts": group.facts, "weight": group.weight, "layer": -1, "metric": metric, **keys, **numbers}
