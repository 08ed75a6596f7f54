"""How often intervals of shares near their bounds, and of times over few seeds, hold the truth.

    python experiments/validation/coverage/bounded.py [DRAWS]

Writes `bounded.csv` beside this file.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from infoflow.foundation import (
    NUM_BLOCKS,
    block_effects,
    block_interval,
    interval_over_seeds,
    replicate_weights,
    stream,
)

SEEDS, SIZES, TRUTHS = (3, 5), (60, 300, 2000), (0.5, 0.9, 0.99, 1.0)
KINDS = {  # deviation between seeds, in those of one seed's examples; part of the examples that is hard for all seeds
    "independent errors": (0.0, 0.0),
    "the same errors": (0.0, 0.9),
    "seeds differ": (1.0, 0.5),
    "seeds differ much": (3.0, 0.5),
}


def answers(rng: np.random.Generator, truth: float, size: int, seeds: int, kind: str) -> np.ndarray:
    """Which examples each seed gets right, (seeds, examples); the seeds' own shares are Beta around the truth."""
    between, hard = KINDS[kind]
    deviation = min(between * np.sqrt(truth * (1 - truth) / size), (1 - truth) / 2)
    own = np.full(seeds, truth)
    if deviation > 0:
        precision = truth * (1 - truth) / deviation**2 - 1
        own = rng.beta(truth * precision, (1 - truth) * precision, seeds)
    levels = np.where(rng.random(size) < hard, rng.random(size), rng.random((seeds, size)))
    return levels < own[:, None]


def covers_share(rng: np.random.Generator, truth: float, size: int, seeds: int, kind: str) -> bool:
    """Whether the interval over seeds and examples holds the truth."""
    right, blocks = answers(rng, truth, size, seeds, kind), rng.integers(0, NUM_BLOCKS, size)
    hits_SB = np.stack([np.bincount(blocks, one, NUM_BLOCKS) for one in right])
    weights = replicate_weights()
    draws_SR = hits_SB @ weights.T / (weights @ np.bincount(blocks, minlength=NUM_BLOCKS))
    values = right.mean(axis=1)
    own = [
        block_interval(value, block_effects(value, draws), scale="share", count=size)
        for value, draws in zip(values.tolist(), draws_SR, strict=True)
    ]
    low, high = interval_over_seeds([(seed,) for seed in range(seeds)], values, draws_SR, own, "share")
    return low <= truth <= high and low >= 0 and high <= 1


def covers_time(rng: np.random.Generator, seeds: int) -> bool:
    """Whether Student's interval of the mean logarithm holds the truth."""
    low, high = interval_over_seeds([(seed,) for seed in range(seeds)], rng.normal(0, 1, seeds))
    return low <= 0 <= high


def main(draws: int) -> None:
    rng, rows = stream("coverage-bounded"), []
    for seeds in SEEDS:
        found = np.mean([covers_time(rng, seeds) for _ in range(draws)])
        rows.append({"statistic": "mean log time", "seeds": seeds, "coverage": found})
        for size in SIZES:
            for truth in TRUTHS:
                for kind in KINDS:
                    found = np.mean([covers_share(rng, truth, size, seeds, kind) for _ in range(draws)])
                    keys = {"seeds": seeds, "examples": size, "truth": truth, "kind": kind}
                    rows.append({"statistic": "share", **keys, "coverage": found})
                    print(*rows[-1].values(), flush=True)
    table = pd.DataFrame(rows, columns=["statistic", "seeds", "examples", "truth", "kind", "coverage"])
    table["examples"] = table["examples"].astype("Int64")
    table.round(3).to_csv(Path(__file__).with_name("bounded.csv"), index=False)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
