"""Heads that claims choose: on one half of the sentences, and reported on the other."""

import numpy as np
import pandas as pd

from infoflow.findings import positional_heads
from infoflow.foundation import NUM_BLOCKS, stream
from infoflow.results import ratio_estimate

from .groups import models_of

HEADS, SENTENCES, SEEDS = 96, 640, range(30)


def alike(truth: float) -> dict[str, pd.DataFrame]:
    """Heads that all attend to the token before, or none, with the same probability; they differ by chance alone."""
    rows = []
    for seed in SEEDS:
        rng = stream("test", "alike heads", seed)
        queries = np.bincount(rng.integers(0, NUM_BLOCKS, SENTENCES), minlength=NUM_BLOCKS)
        for head in range(HEADS):
            number = ratio_estimate(rng.binomial(queries, truth) * 1.0, queries * 1.0, 0.1, scale="share")
            rows.append({"seed": seed, "layer": head // 8, "head": head % 8, **number})
    keys = {"objective": "translation", "variant": "", "architecture": "tiny", "trained": True}
    frame = pd.DataFrame(rows).assign(**keys, stack="encoder", kind="self", offset=-1, update=-1)
    return {"head_positional": frame, "head_confidence": frame}


def test_the_best_of_many_equal_heads_is_reported_as_good_as_any() -> None:
    found = positional_heads().estimates(models_of(alike(0.5)))
    best = found.values_UK[:, 0]  # of all sentences the largest of 96 lies .05 too high
    error = np.sqrt(0.25 / (SENTENCES / 2))
    assert abs(best.mean() - 0.5) < 4 * error / np.sqrt(len(SEEDS))
    spread = found.replicates_URK[:, :, 0].std(axis=1).mean()
    assert 0.85 * error < spread < 1.15 * error
