"""Which estimate of mutual information converges, how many tokens a cluster it needs, and whether its interval covers.

    infoflow train causal-lm --plan quick --out runs/information
    python experiments/information/run.py runs/information/models/causal-lm/seed-0 --part estimators
    python experiments/information/run.py runs/information/models/causal-lm/seed-0 --part neighbours
    python experiments/information/run.py runs/information/models/causal-lm/seed-0 --part sizes
    python experiments/information/run.py runs/information/models/causal-lm/seed-0 --part coverage  # 15 minutes

Sentences are distinct English sentences of up to ten words of `tatoeba-en-fr`. Each part writes a CSV file beside this
script; what is there already is kept, so that an interrupted part goes on.
"""

import argparse
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import torch
from scipy.special import digamma, loggamma, logsumexp

import infoflow
from infoflow.representations import EntropyEstimator, MutualInformation, discretize, mutual_information

HERE = Path(__file__).parent
CLUSTERS = (100, 500, 2000)
TOKENS = (5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000)
REPEATS = 5
DRAWS = 200
TYPES = 300  # for coverage: so few are the most frequent in every draw


@cache
def sentences() -> infoflow.Corpus:
    corpus = infoflow.load_corpus("tatoeba-en-fr").filter_words(1, 10)
    seen: set[str] = set()
    first = [
        row for row, text in enumerate(corpus.column("text")) if not (text.lower() in seen or seen.add(text.lower()))
    ]
    return corpus.select(np.array(first), "distinct sentences")


def drawn(num: int, seed: int) -> infoflow.Corpus:
    rows = np.random.default_rng(seed).choice(len(sentences()), num, replace=False)
    return sentences().select(np.sort(rows), f"{num} sentences, draw {seed}")


# -- known distributions -----------------------------------------------------------------------------------------------


def joint(model: str, layer: int, side: str, clusters: int) -> np.ndarray:
    """A distribution to draw from: the joint frequencies of clusters and tokens of a trained model's states."""
    states, tokens, labels = states_of(model, layer)
    labels = tokens if side == "input" else labels
    kept = labels >= 0
    found = discretize(states[kept], clusters, seed=0).numpy()
    table = np.zeros((clusters, int(labels.max()) + 1))
    np.add.at(table, (found, labels[kept]), 1)
    return table / table.sum()


class _States(infoflow.flow.SampleMeasure):
    """Keeps the sample's states, as a table of one row."""

    table = infoflow.results.TableSchema(
        name="states",
        version=1,
        description="states",
        columns=(infoflow.results.Column(name="sample", dtype="int64", unit="", description="its number"),),
    )

    def __init__(self, found: list) -> None:
        self._found = found
        self.request = infoflow.flow.SampleRequest(occurrences=200_000)

    def __deepcopy__(self, memo: dict) -> "_States":
        return self

    def compute(self, sample) -> pd.DataFrame:
        at, frequencies = sample.occurrences, sample.facts.frequencies
        frequent = np.zeros(len(frequencies), dtype=bool)
        frequent[np.argsort(-frequencies, kind="stable")[:1000]] = True
        rows = np.flatnonzero(frequent[at.token])
        labels = np.where((at.label >= 0) & frequent[np.maximum(at.label, 0)], at.label, -1)[rows]
        self._found.append(({layer: sample.states(layer)[rows] for layer in (0, 6)}, at.token[rows], labels))
        return pd.DataFrame({"sample": [0]})


@cache
def _collected(model: str) -> tuple:
    found: list = []
    infoflow.measure(infoflow.load_model(model), drawn(40_000, 0), [_States(found)])
    return found[0]


def states_of(model: str, layer: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    states, tokens, labels = _collected(model)
    return states[layer], tokens, labels


def nsb(counts: np.ndarray, cells: int) -> float:
    """Entropy by Nemenman, Shafee and Bialek (2002): Dirichlet priors weighted so that the prior of entropy is flat."""
    total = counts.sum()
    beta = np.exp(np.linspace(np.log(1e-6), np.log(1e3), 400))
    values, times = np.unique(counts, return_counts=True)
    kappa = cells * beta
    evidence = loggamma(kappa) - loggamma(total + kappa)
    evidence += (times[:, None] * (loggamma(values[:, None] + beta) - loggamma(beta))).sum(0)
    step = 1e-4
    slope = (digamma(kappa * np.exp(step) + 1) - digamma(beta * np.exp(step) + 1)) - (
        digamma(kappa + 1) - digamma(beta + 1)
    )
    weights = evidence + np.log(np.maximum(slope, 1e-300))  # slope of the prior's mean entropy by ln β
    weights = np.exp(weights - logsumexp(weights))
    n = values[:, None] + beta
    terms = (times[:, None] * n * digamma(n + 1)).sum(0) + (cells - times.sum()) * beta * digamma(beta + 1)
    return float((weights * (digamma(total + kappa + 1) - terms / (total + kappa))).sum())


def estimates(clusters: np.ndarray, labels: np.ndarray, shape: tuple[int, int]) -> dict[str, float]:
    """Every estimator on one draw."""
    random = np.random.default_rng(0)
    halves = np.array_split(random.permutation(len(labels)), 2)
    quarters = np.array_split(random.permutation(len(labels)), 4)

    def of(estimator: EntropyEstimator, parts: list[np.ndarray]) -> float:
        return float(np.mean([mutual_information(clusters[p], labels[p], estimator) for p in parts]))

    whole = [np.arange(len(labels))]
    found = {name: of(name, whole) for name in get_args(EntropyEstimator)}
    plain, half, quarter = (of("plug-in", parts) for parts in (whole, halves, quarters))
    counted = np.unique(clusters * shape[1] + labels, return_counts=True)[1]
    sides = [np.unique(each, return_counts=True)[1] for each in (clusters, labels)]
    return {
        **found,
        "linear extrapolation": 2 * plain - half,
        "quadratic extrapolation": 8 / 3 * plain - 2 * half + quarter / 3,
        "chao-wang-jost, extrapolated": 2 * found["chao-wang-jost"] - of("chao-wang-jost", halves),
        "less shuffled": plain - mutual_information(clusters, random.permutation(labels)),
        "nsb": nsb(sides[0], shape[0]) + nsb(sides[1], shape[1]) - nsb(counted, shape[0] * shape[1]),
    }


def estimators(model: str) -> pd.DataFrame:
    """Draws from known joint distributions: clusters of a trained causal LM's states with input and output tokens."""
    rows = []
    for side in ("input", "output"):
        for layer in (0, 6):
            for clusters in CLUSTERS:
                table = joint(model, layer, side, clusters)
                table = table[:, table.sum(0) > 0]
                truth = _information(table)
                for tokens in TOKENS:
                    found = []
                    for seed in range(REPEATS):
                        cells = np.random.default_rng([seed, tokens]).choice(table.size, tokens, p=table.ravel())
                        found.append(estimates(*np.divmod(cells, table.shape[1]), table.shape))
                    keys = {"side": side, "layer": layer, "clusters": clusters, "tokens": tokens, "truth": truth}
                    for name in found[0]:
                        errors = np.array([each[name] for each in found]) - truth
                        rows.append({**keys, "estimator": name, "bias": errors.mean(), "sd": errors.std(ddof=1)})
                print(side, layer, clusters, flush=True)
    return pd.DataFrame(rows).round(5)


def _information(table: np.ndarray) -> float:
    outer = table.sum(1, keepdims=True) * table.sum(0, keepdims=True)
    return float((table[table > 0] * np.log(table[table > 0] / outer[table > 0])).sum())


def neighbours(model: str, k: int = 3) -> pd.DataFrame:
    """Information without clusters, by Ross's (2014) estimate from the k nearest neighbours of the same token."""
    rows = []
    for layer in (0, 6):
        states, tokens, labels = states_of(model, layer)
        for side, kinds in (("input", tokens), ("output", labels)):
            known = np.flatnonzero(kinds >= 0)
            for num in TOKENS[:3]:
                chosen = np.random.default_rng(num).permutation(known)[:num]
                value = ross(torch.from_numpy(states[chosen]), torch.from_numpy(kinds[chosen]), k)
                counts = np.unique(kinds[chosen], return_counts=True)[1]
                row = {"side": side, "layer": layer, "tokens": num, "value": value}
                rows.append(row | {"entropy": infoflow.representations.entropy(counts, "chao-wang-jost")})
    return pd.DataFrame(rows).round(5)


def ross(states: torch.Tensor, kinds: torch.Tensor, k: int) -> float:
    """ψ(N) + ψ(k) − ⟨ψ(N_t)⟩ − ⟨ψ(m)⟩, m states within the distance of the k-th neighbour of the same token."""
    counts = torch.bincount(kinds)[kinds]
    usable = counts > k
    states, kinds, counts = states[usable], kinds[usable], counts[usable]
    within = []
    for start in range(0, len(states), 500):
        distances = torch.cdist(states[start : start + 500], states)
        own = torch.where(kinds[start : start + 500, None] == kinds[None], distances, torch.inf)
        radius = own.topk(k + 1, largest=False).values[:, -1]
        within.append((distances <= radius[:, None]).sum(1) - 1)
    m = torch.cat(within).double()
    means = digamma(counts.double().numpy()).mean() + digamma(m.numpy()).mean()
    return float(digamma(len(states)) + digamma(k) - means)


# -- the measure -------------------------------------------------------------------------------------------------------


def measured(model: str, corpus: infoflow.Corpus, **settings: int) -> pd.DataFrame:
    frame = infoflow.measure(infoflow.load_model(model), corpus, [MutualInformation(**settings)])["mutual_information"]
    return frame.drop(columns=["replicates", "tokens_by_size", "value_by_size", "plug_in_by_size"])


def sizes(model: str) -> pd.DataFrame:
    """The measure itself on ever more sentences."""
    frames = []
    for clusters in (100, 500):
        for num in (700, 1400, 2800, 5600, 11_200, 22_400, 44_800, len(sentences())):
            frame = measured(model, drawn(num, 1), clusters=clusters)
            frames.append(frame.assign(sentences=num))
            print(clusters, num, flush=True)
    return pd.concat(frames).round(5)


def coverage(model: str, num: int = 1000, clusters: int = 50, pool: int = 30_000) -> pd.DataFrame:
    """How often the interval of `num` sentences holds the value of a pool that they are drawn from."""
    path = HERE / "coverage-draws.csv"
    frames = [pd.read_csv(path)] if path.exists() else []
    done = 0 if not frames else int(frames[0]["draw"].max()) + 1
    if not done:
        truth = measured(model, drawn(pool, 0), clusters=clusters, types=TYPES, clusterings=30)
        frames = [truth.assign(draw=-1)]
    for draw in range(max(done, 0), DRAWS):
        corpus = drawn(pool, 0).select(
            np.random.default_rng(100 + draw).choice(pool, num, replace=False), f"draw {draw}"
        )
        frames.append(measured(model, corpus, clusters=clusters, types=TYPES).assign(draw=draw))
        pd.concat(frames).to_csv(path, index=False)
        print(draw, flush=True)
    every = pd.concat(frames)
    truth = every[every["draw"] == -1].set_index(["side", "layer"])["value"]
    draws = every[every["draw"] >= 0].set_index(["side", "layer"]).join(truth.rename("truth"))
    draws["covers"] = (draws["low"] <= draws["truth"]) & (draws["truth"] <= draws["high"])
    draws["half_width"] = (draws["high"] - draws["low"]) / 2
    draws["plug_in_bias"] = draws["plug_in"] - draws["truth"]
    draws["bias"] = draws["value"] - draws["truth"]
    summary = draws.groupby(level=[0, 1]).agg(
        truth=("truth", "first"),
        bias=("bias", "mean"),
        plug_in_bias=("plug_in_bias", "mean"),
        sd=("value", "std"),
        half_width=("half_width", "mean"),
        coverage=("covers", "mean"),
        draws=("covers", "size"),
        tokens=("count", "mean"),
    )
    return summary.reset_index().round(4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--part", choices=("estimators", "neighbours", "sizes", "coverage"), required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = {"estimators": estimators, "neighbours": neighbours, "sizes": sizes, "coverage": coverage}
    parts[arguments.part](arguments.model).to_csv(HERE / f"{arguments.part}.csv", index=False)


if __name__ == "__main__":
    main()
