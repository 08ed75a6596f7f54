"""Similarity of every layer of one model to every layer of another, shared work against pair by pair; one run.

    python benchmarks/similarity_grid.py              # two 12-layer models of width 768: eight minutes on one core
    python benchmarks/similarity_grid.py --small      # seconds, to see that it runs
    python benchmarks/similarity_grid.py --only rsa   # the further pair of ranked layers alone

Targets: the 13 × 13 grid at least 10 times faster than pair by pair (NumPy's QR, as the definition reads); all pairs of
18 layers (20,000 × 512), weighted by either side, at least 15 times. Pair by pair is timed on three pairs of layers,
and a pair weighted by both sides as two. Seconds are of the process, which other work on the machine disturbs least.

What the grid cannot do without, for n tokens and widths d: a product of 2 n d² operations in float32 per pair (4.0 of
its 4.8 TFLOP at 13 × 13 × 20,000 × 768), 3.25 n d² in float64 per layer (covariance and directions), and a symmetric
eigenproblem of d × d in float64 per pair. On one core of an AMD EPYC (Zen 5), busy with other work: 0.13 s, 0.75 s and
0.08 s; a layer 1.1 s and a pair 0.28 s in all, NumPy's QR 5.7 s per pair.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from similarity import pwcca_by_qr
from threadpoolctl import threadpool_limits

from infoflow.foundation import block_of, set_threads
from infoflow.representations import (
    BlockGroups,
    ItemPairs,
    LayerSpace,
    RankedSpace,
    centred_ranks,
    pwcca,
    rsa,
    space_values,
)
from infoflow.representations._cca import canonical_of_overlap, weighted_mean
from infoflow.representations._layer_space import LayerPair
from infoflow.representations._paired_distance import LayerView, distance_columns

TIMED_PAIRS = 3


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layers:
    """States of two models that share a signal."""

    first: list[np.ndarray]
    second: list[np.ndarray]
    groups: BlockGroups

    @classmethod
    def draw(cls, num: int, rows: int, width: int) -> "Layers":
        rng = np.random.default_rng(0)
        signal = rng.normal(size=(rows, width)).astype(np.float32)

        def layer() -> np.ndarray:
            noise = 2 * rng.normal(size=(rows, width)).astype(np.float32)
            return signal @ rng.normal(size=(width, width)).astype(np.float32) / width**0.5 + noise

        models = [[layer() for _ in range(num)] for _ in range(2)]
        return cls(first=models[0], second=models[1], groups=BlockGroups.of(block_of(np.arange(rows) // 10), width))

    @property
    def num_pairs(self) -> int:
        return len(self.first) * len(self.second)


def shared(layers: Layers) -> np.ndarray:
    """PWCCA of the grid, every layer whitened once."""
    first, second = ([LayerSpace(states, layers.groups) for states in model] for model in (layers.first, layers.second))

    def value(x: LayerSpace, y: LayerSpace) -> float:
        return weighted_mean(canonical_of_overlap(x.overlap(y), x.loadings, y.loadings), "x")

    return np.array([[value(x, y) for y in second] for x in first])


def shared_with_bars(layers: Layers) -> np.ndarray:
    """The same with error bars and the shuffled baseline, as `SpaceSimilarity` computes them."""
    first, second = ([LayerSpace(states, layers.groups) for states in model] for model in (layers.first, layers.second))
    order = torch.randperm(len(layers.first[0]), generator=torch.Generator().manual_seed(0))

    def value(x: LayerSpace, y: LayerSpace) -> float:
        space_values("pwcca", LayerPair.shuffled(x, y, order))
        values = space_values("pwcca", LayerPair.of(x, y))
        layers.groups.replicates(values)
        return values[0]

    return np.array([[value(x, y) for y in second] for x in first])


def seconds_of(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def bench_grid(small: bool) -> None:
    layers = _layers(small)
    seconds, values = seconds_of(lambda: shared(layers))
    compare("PWCCA / NumPy's QR per pair", layers, seconds, values, _by_qr)
    compare("PWCCA / pwcca() per pair", layers, seconds, values, lambda x, y: pwcca(x, y, side="x"))


def bench_own(small: bool) -> None:
    """All pairs of one model's layers, both directions from one decomposition."""
    halves = Layers.draw(2, 3_000, 64) if small else Layers.draw(9, 20_000, 512)
    layers = [*halves.first, *halves.second]
    pairs = list(combinations(range(len(layers)), 2))

    def ours() -> list[float]:
        spaces = [LayerSpace(states, halves.groups) for states in layers]
        met = [(spaces[a], spaces[b]) for a, b in pairs]
        return [weighted_mean(canonical_of_overlap(x.overlap(y), x.loadings, y.loadings), "mean") for x, y in met]

    print(f"all {len(pairs)} pairs of {len(layers)} layers of {len(layers[0]):,} × {layers[0].shape[1]}")
    seconds, values = seconds_of(ours)
    timed = [(layers[a], layers[b]) for a, b in pairs[:TIMED_PAIRS]]
    other_seconds, others = seconds_of(lambda: [(_by_qr(x, y) + _by_qr(y, x)) / 2 for x, y in timed])
    other_seconds *= len(pairs) / TIMED_PAIRS
    means = float(np.mean(values[:TIMED_PAIRS])), float(np.mean(others))
    show("PWCCA, weighted by both / NumPy's QR, once for each", seconds, other_seconds, *means)


def bench_bars(small: bool) -> None:
    layers = _layers(small)
    groups = layers.groups

    def anew(x: np.ndarray, y: np.ndarray) -> float:
        return 1 - distance_columns(LayerView(x, groups), LayerView(y, groups), "mean")["value"]

    seconds, values = seconds_of(lambda: shared_with_bars(layers))
    compare("with error bars and baseline / each pair anew", layers, seconds, values, anew)


def _layers(small: bool) -> Layers:
    layers = Layers.draw(3, 3_000, 64) if small else Layers.draw(13, 20_000, 768)
    print(f"{len(layers.first)} × {len(layers.second)} layers of {len(layers.first[0]):,} × {layers.first[0].shape[1]}")
    return layers


def _by_qr(x: np.ndarray, y: np.ndarray) -> float:
    return pwcca_by_qr(x.astype(np.float64), y.astype(np.float64))


def compare(
    name: str,
    layers: Layers,
    seconds: float,
    values: np.ndarray,
    pair: Callable[[np.ndarray, np.ndarray], float],
) -> None:
    """The shared grid beside `pair` called for every pair of layers, of which the first few are timed."""
    pairs = list(zip(layers.first, layers.second, strict=True))[:TIMED_PAIRS]
    other_seconds, others = seconds_of(lambda: [pair(x, y) for x, y in pairs])
    ours = float(np.diagonal(values)[:TIMED_PAIRS].mean())
    show(name, seconds, other_seconds / TIMED_PAIRS * layers.num_pairs, ours, float(np.mean(others)))


def bench_rsa(small: bool) -> None:
    """A further pair of layers whose distances are ranked already, error bars included."""
    n = 1_500 if small else 10_000
    x, y = np.random.default_rng(0).normal(size=(2, n, 512)).astype(np.float32)
    pairs = ItemPairs(BlockGroups.of(block_of(np.arange(n) // 10), 512))
    order = pairs.groups.order.numpy()
    first, second = (RankedSpace(centred_ranks(view[order]), pairs) for view in (x, y))
    first.own_changes, second.own_changes  # noqa: B018 (once per layer, as the ranks)
    seconds, values = seconds_of(lambda: first.values(second))
    other_seconds, other = seconds_of(lambda: rsa(x, y))
    show(f"RSA of {n:,} words, ranked, with error bars / rsa()", seconds, other_seconds, values[0], other)


def show(name: str, seconds: float, other_seconds: float, value: float, other: float) -> None:
    times = f"{seconds:9.2f} s {other_seconds:9.2f} s  ×{other_seconds / seconds:5.1f}"
    print(f"{name:<52} {times}   {value:.5f} / {other:.5f}", flush=True)


BENCHMARKS = {"grid": bench_grid, "own": bench_own, "bars": bench_bars, "rsa": bench_rsa}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", default=",".join(BENCHMARKS), help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    threads = set_threads(options.threads)
    warnings.simplefilter("ignore")
    print(f"{threads} thread{'s' * (threads > 1)}{'':<44} {'shared':>10}   {'other':>9}    faster   values")
    with threadpool_limits(limits=threads):
        for name in options.only.split(","):
            BENCHMARKS[name](options.small)


if __name__ == "__main__":
    main()
