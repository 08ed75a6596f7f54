"""Similarity, neighbours and clustering against what a user would write instead; ratios in one run.

    python benchmarks/similarity.py                 # the sizes of the targets: about ten minutes on 2 cores
    python benchmarks/similarity.py --small         # a minute, to see that it runs
    python benchmarks/similarity.py --only pwcca,cka --threads 2

Targets: PWCCA at least 3 times faster than NumPy's QR; RSA at least 1.9 times faster than SciPy; clustering no slower
than scikit-learn with batches of 10,240 and a random start, and with no less information. Ours starts from rows far
apart instead of random ones, which holds more information where a few types are most of the data, as tokens are.
"""

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from _timing import best_of
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr
from sklearn.cluster import MiniBatchKMeans
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits

from infoflow.foundation import set_threads
from infoflow.representations import discretize, linear_cka, mutual_information, neighbour_agreement, pwcca, rsa


def pwcca_by_qr(x: np.ndarray, y: np.ndarray) -> float:
    """PWCCA weighted by x, as the definition reads."""
    x, y = x - x.mean(0), y - y.mean(0)
    q_x, q_y = np.linalg.qr(x)[0], np.linalg.qr(y)[0]
    left, correlations, _ = np.linalg.svd(q_x.T @ q_y)
    weights = np.abs((q_x @ left).T @ x).sum(1)
    return float(weights @ correlations / weights.sum())


def cka_in_numpy(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(0), y - y.mean(0)
    norms = np.linalg.norm(x.T @ x) * np.linalg.norm(y.T @ y)
    return float(np.linalg.norm(x.T @ y) ** 2 / norms)


def neighbours_in_sklearn(x: np.ndarray, labels: np.ndarray) -> float:
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    found = NearestNeighbors(n_neighbors=51, algorithm="brute").fit(units).kneighbors(units, return_distance=False)
    return float((labels[found[:, 1:]] == labels[:, None]).mean())


def kmeans_in_sklearn(x: np.ndarray, clusters: int) -> np.ndarray:
    return (
        MiniBatchKMeans(clusters, init="random", batch_size=10_240, max_iter=1, n_init=1, random_state=0).fit(x).labels_
    )


def report(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    repeats: int = 1,
    show: Callable[[Any], str] = "{:.5f}".format,
) -> None:
    seconds, results = best_of(repeats, {"ours": ours, "theirs": theirs})
    ratio = seconds["theirs"] / seconds["ours"]
    print(
        f"{name:<44} {seconds['ours']:8.2f} s  {seconds['theirs']:8.2f} s  ×{ratio:5.2f}   "
        f"{show(results['ours'])} / {show(results['theirs'])}",
        flush=True,
    )


def bench_pwcca(small: bool) -> None:
    n, d = (4_000, 128) if small else (20_000, 512)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    y = x @ rng.normal(size=(d, d)) / np.sqrt(d) + rng.normal(size=(n, d))
    report(f"PWCCA {n}×{d} float64 / QR", lambda: pwcca(x, y, side="x"), lambda: pwcca_by_qr(x, y), repeats=3)


def bench_cka(small: bool) -> None:
    n, d = (4_000, 128) if small else (20_000, 512)
    x, y = np.random.default_rng(0).normal(size=(2, n, d))
    report(f"linear CKA {n}×{d} float64 / NumPy", lambda: linear_cka(x, y), lambda: cka_in_numpy(x, y), repeats=3)


def bench_rsa(small: bool) -> None:
    n = 1_500 if small else 10_000
    x, y = np.random.default_rng(0).normal(size=(2, n, 512)).astype(np.float32)

    def by_scipy() -> float:
        return spearmanr(pdist(x, "cosine"), pdist(y, "cosine")).statistic

    report(f"RSA {n}×512 cosine / SciPy", lambda: rsa(x, y), by_scipy)


def bench_neighbours(small: bool) -> None:
    n, types = (4_000, 20) if small else (20_000, 100)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, types, n)
    x = (rng.normal(size=(types, 512))[labels] + 2 * rng.normal(size=(n, 512))).astype(np.float32)
    report(
        f"50 neighbours of {n}×512 / scikit-learn brute",
        lambda: neighbour_agreement(x, labels),
        lambda: neighbours_in_sklearn(x, labels),
    )


def bench_clustering(small: bool) -> None:
    """The specification's data: 2,000 Gaussian types, 200,000 points, 512 dimensions."""
    n, sizes = (20_000, (1_000,)) if small else (200_000, (1_000, 10_000))
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(2_000, 512)).astype(np.float32)
    types = rng.integers(0, 2_000, n)
    x = centres[types] + rng.normal(size=(n, 512)).astype(np.float32)
    for clusters in sizes:
        report(
            f"{clusters} clusters of {n}×512 / scikit-learn",
            lambda k=clusters: discretize(x, k),
            lambda k=clusters: kmeans_in_sklearn(x, k),
            repeats=3,
            show=lambda labels: f"{mutual_information(labels, types):.3f} nats",
        )


BENCHMARKS = {
    "pwcca": bench_pwcca,
    "cka": bench_cka,
    "rsa": bench_rsa,
    "neighbours": bench_neighbours,
    "clustering": bench_clustering,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--only", default=",".join(BENCHMARKS), help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    threads = set_threads(options.threads)
    warnings.simplefilter("ignore")
    print(f"{threads} threads{'':<34} {'infoflow':>8}    {'other':>8}    faster   values")
    with threadpool_limits(limits=threads):
        for name in options.only.split(","):
            BENCHMARKS[name](options.small)


if __name__ == "__main__":
    main()
