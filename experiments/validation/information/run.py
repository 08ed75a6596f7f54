"""Which estimate of mutual information converges, how many tokens a cluster it needs, and whether its interval covers.

    infoflow train causal-lm --plan quick --out runs/information
    python experiments/validation/information/run.py runs/information/models/causal-lm/seed-0 --part estimators
    python experiments/validation/information/run.py runs/information/models/causal-lm/seed-0 --part neighbours
    python experiments/validation/information/run.py runs/information/models/causal-lm/seed-0 --part sizes
    python experiments/validation/information/run.py runs/information/models/causal-lm/seed-0 --part coverage  # 15 min
    python experiments/validation/information/run.py runs/information/models/causal-lm/seed-0 --part layers  # 8 min
    python experiments/validation/information/run.py --part tails  # 10 minutes; invented states, no model
    python experiments/validation/information/run.py --part mixtures  # 8 minutes; the same

Sentences are distinct English sentences of up to ten words of `tatoeba-en-fr`. Each part writes a CSV file beside this
script; what is there already is kept, so that an interrupted part goes on.
"""

import argparse
from functools import cache
from pathlib import Path
from time import process_time
from typing import ClassVar, get_args

import numpy as np
import pandas as pd
import torch
from scipy.special import digamma, loggamma, logsumexp

import infoflow
from infoflow.foundation import block_effects, block_interval, block_of
from infoflow.probing import UsableInformationMLP
from infoflow.representations import (
    EntropyEstimator,
    MutualInformation,
    MutualInformationWithoutPosition,
    UsableInformation,
    discretize,
    estimate_information,
    mutual_information,
    usable_information,
)

HERE = Path(__file__).parent
CLUSTERS = (100, 500, 2000)
TOKENS = (5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000)
REPEATS = 5
DRAWS = 200
TYPES = 300  # for coverage: so few are the most frequent in every draw
ZIPF_TYPES, ZIPF_WIDTH, PER_TYPE = 1000, 16, 2000  # for tails
CONVERGED = 0.03  # nats, as in the table `mutual_information`


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


# -- Zipf tails --------------------------------------------------------------------------------------------------------


@cache
def zipf_joint(clusters: int, noise: float, exponent: float, anywhere: float) -> np.ndarray:
    """The distribution of (type, cluster). Types follow Zipf's law, each with a Gaussian vector. A state is its type's
    vector and noise, and goes to the nearest centre of a k-means of 20,000 states; a share `anywhere` to any."""
    random = np.random.default_rng(0)
    shares = 1 / np.arange(1, ZIPF_TYPES + 1) ** exponent
    shares /= shares.sum()
    vectors = random.standard_normal((ZIPF_TYPES, ZIPF_WIDTH)).astype(np.float32)

    def states(types: np.ndarray) -> np.ndarray:
        return vectors[types] + noise * random.standard_normal((len(types), ZIPF_WIDTH)).astype(np.float32)

    fitted = states(random.choice(ZIPF_TYPES, 20_000, p=shares))
    labels = discretize(fitted, clusters, seed=0).numpy()
    centres = np.stack([fitted[labels == label].mean(0) for label in np.unique(labels)])
    table = np.zeros((ZIPF_TYPES, len(centres)))
    for kind in range(ZIPF_TYPES):
        own = states(np.full(PER_TYPE, kind))
        found = ((centres**2).sum(1) - 2 * own @ centres.T).argmin(1)
        table[kind] = shares[kind] * np.bincount(found, minlength=len(centres)) / PER_TYPE
    return (1 - anywhere) * table + anywhere * np.outer(table.sum(1), table.sum(0))


def zipf_draw(tables: list[np.ndarray], tokens: int, seed: int) -> tuple[np.ndarray, list[np.ndarray], np.ndarray]:
    """Types, their cluster under each of the tables, and the block of each sentence of eight tokens."""
    random = np.random.default_rng([seed, tokens])
    marginal = tables[0].sum(1)
    types = np.sort(random.choice(len(marginal), tokens, p=marginal / marginal.sum()))
    places, mixed = np.flatnonzero(np.diff(types, prepend=-1)), random.permutation(tokens)
    found = []
    for table in tables:
        steps = (table / table.sum(1, keepdims=True)).cumsum(1)
        parts = np.split(random.random(tokens), places[1:])
        of = [np.searchsorted(steps[types[at]], part) for at, part in zip(places, parts, strict=True)]
        found.append(np.concatenate(of).clip(max=table.shape[1] - 1)[mixed])
    return types[mixed], found, block_of(np.arange(tokens) // 8 + (seed << 32))


def tails() -> pd.DataFrame:
    """Coverage, bias and what is called converged where the joint distribution is known; `fall`: from the least to the
    most noise, on the same tokens."""
    rows, noises = [], (0.3, 0.6, 1.0)
    for exponent, anywhere in ((1.0, 0.0), (1.0, 0.05), (1.3, 0.0), (0.8, 0.0)):
        for clusters in (20, 200, 1000):
            joints = [zipf_joint(clusters, noise, exponent, anywhere) for noise in noises]
            truths = [_information(table) for table in joints]
            for tokens, draws in ((2_000, 30), (10_000, 30), (100_000, 10)):
                if tokens < 10 * clusters:
                    continue
                found = [_looked_at(joints, truths, tokens, seed) for seed in range(draws)]
                keys = {"exponent": exponent, "anywhere": anywhere, "clusters": clusters, "tokens": tokens}
                rows += [{**keys, **_summary(name, [one[name] for one in found])} for name in found[0]]
            print(exponent, anywhere, clusters, flush=True)
    return pd.DataFrame(rows).round(4)


def _looked_at(joints: list[np.ndarray], truths: list[float], tokens: int, seed: int) -> dict[str, dict[str, float]]:
    """By name of what is estimated: each layer's information, and the fall from the first to the last."""
    types, layers, blocks = zipf_draw(joints, tokens, seed)
    found = [estimate_information(clusters, types, blocks) for clusters in layers]
    columns = [each.columns(0.0, tokens) for each in found]
    looked = {}
    for number, (each, ends, truth) in enumerate(zip(found, columns, truths, strict=True)):
        last = each.by_size[-2]
        plain = block_interval(each.value, each.value - each.without_block)
        by_halves = np.hypot(np.array(plain) - each.value, 1.96 * (each.value - last))
        looked[f"layer {number}"] = {
            "truth": truth,
            "error": each.value - truth,
            "left": abs(each.drift),
            "converged": abs(each.drift) <= CONVERGED,
            "covers": ends["low"] <= truth <= ends["high"],
            "half_width": (ends["high"] - ends["low"]) / 2,
            "converged_by_halves": abs(each.value - last) <= CONVERGED,
            "covers_by_halves": each.value - by_halves[0] <= truth <= each.value + by_halves[1],
        }
    fall, truth = found[0].value - found[-1].value, truths[0] - truths[-1]
    replicates = np.array(columns[0]["replicates"]) - np.array(columns[-1]["replicates"])
    low, high = block_interval(fall, block_effects(fall, replicates))
    converged = all(looked[f"layer {number}"]["converged"] for number in (0, len(found) - 1))
    looked["fall"] = {
        "truth": truth,
        "error": fall - truth,
        "left": replicates.std(),
        "converged": converged,
        "covers": low <= truth <= high,
        "half_width": (high - low) / 2,
        "converged_by_halves": np.nan,
        "covers_by_halves": np.nan,
    }
    return looked


def _summary(name: str, draws: list[dict[str, float]]) -> dict[str, float | str]:
    frame = pd.DataFrame(draws).astype(float)
    settled = frame.loc[frame["converged"] == 1, "covers"]
    means = frame.rename(columns={"error": "bias"}).mean().to_dict()
    return {"of": name, **means, "sd": frame["error"].std(), "covers_converged": settled.mean(), "draws": len(frame)}


POSITIONS, SAMPLE, SCORED = 10, 40_000, 2_000


def mixtures() -> pd.DataFrame:
    """States of a type's vector, a position's and noise: the information that they have, and what each estimate says.

    Vectors have independent normal dimensions, of size 1 for types. All widths have the same distances between types,
    relative to the noise.
    """
    rows = []
    for width in (64, 256, 1024):
        for noise in (0.0, 2.0, 4.0):
            for size in (0.0, 0.5, 1.0, 2.0):
                mixture = Mixture(width, size, noise * np.sqrt(width / 64))
                keys = {"width": width, "position": size, "noise": noise, "entropy": mixture.entropy}
                rows += [{**keys, "estimate": name, "value": value} for name, value in mixture.values().items()]
            print(width, noise, flush=True)
    return pd.DataFrame(rows).round(4)


class Mixture:
    """A mixture of Gaussians, one for each type (by Zipf's law) and position (all alike), and a sample of it."""

    def __init__(self, width: int, size: float, noise: float) -> None:
        random = np.random.default_rng(0)
        shares = 1 / np.arange(1, ZIPF_TYPES + 1)
        self.shares, self.noise = shares / shares.sum(), noise
        types = random.standard_normal((ZIPF_TYPES, width), dtype=np.float32)
        positions = size * random.standard_normal((POSITIONS, width), dtype=np.float32)
        self.centres = (types[:, None] + positions).reshape(-1, width)
        self.types = random.choice(ZIPF_TYPES, SAMPLE, p=self.shares)
        chosen = self.types * POSITIONS + random.integers(POSITIONS, size=SAMPLE)
        self.states = self.centres[chosen] + noise * random.standard_normal((SAMPLE, width), dtype=np.float32)
        self.places = chosen % POSITIONS

    @property
    def entropy(self) -> float:
        return float(-(self.shares * np.log(self.shares)).sum())

    def truth(self) -> float:
        """H(T) less the mean entropy of the type given the state, by its exact distribution."""
        if self.noise == 0:
            return self.entropy
        left = []
        for states in np.array_split(self.states[:SCORED], 10):
            squares = (self.centres**2).sum(1) - 2 * states @ self.centres.T
            logs = (-squares / (2 * self.noise**2)).reshape(len(states), ZIPF_TYPES, POSITIONS)
            of_types = logsumexp(logs, axis=2) + np.log(self.shares)
            of_types -= logsumexp(of_types, axis=1, keepdims=True)
            left.append(-(np.exp(of_types) * of_types).sum(1))
        return self.entropy - float(np.concatenate(left).mean())

    def values(self) -> dict[str, float]:
        means = np.stack([self.states[self.places == place].mean(0) for place in range(POSITIONS)])
        found = {"truth": self.truth(), "usable": usable_information(self.states, self.types)}
        for clusters in (200, 1000):
            for name, states in (("kept", self.states), ("removed", self.states - means[self.places])):
                label = discretize(states, clusters)
                found[f"{clusters} clusters, positions {name}"] = mutual_information(
                    label, self.types, "chao-wang-jost"
                )
        return found


# -- the measure -------------------------------------------------------------------------------------------------------


class _SameTypes(MutualInformation):
    """Counts the token types of the first corpus in every later one."""

    frequent: ClassVar[dict[str, np.ndarray]] = {}

    def prepare(self, reader: infoflow.flow.Reader) -> None:
        super().prepare(reader)
        for stack, own in self._frequent.items():
            self._frequent[stack] = self.frequent.setdefault(stack, own)


def measured(
    model: str, corpus: infoflow.Corpus, measure: type[MutualInformation] = MutualInformation, **settings: int
) -> pd.DataFrame:
    frame = infoflow.measure(infoflow.load_model(model), corpus, [measure(**settings)])["mutual_information"]
    return frame.drop(columns=["replicates", "tokens_by_size", "value_by_size", "plug_in_by_size"])


def sizes(model: str) -> pd.DataFrame:
    """The measure itself on all sentences, and on samples with the same types."""
    frames = []
    for clusters in (100, 500):
        for num in (len(sentences()), 44_800, 22_400, 11_200, 5600, 2800, 1400, 700):
            frame = measured(model, drawn(num, 1), _SameTypes, clusters=clusters)
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


def layers(model: str) -> pd.DataFrame:
    """Every estimate, layer by layer, of about 40,000 tokens of the same 9,000 sentences, and 10,000 centres of all."""
    columns = ["side", "layer", "value", "low", "high", "at_half", "baseline", "converged", "entropy", "count"]
    estimates: dict[str, tuple[infoflow.flow.AbstractMeasure, int]] = {
        "linear": (UsableInformation(occurrences=40_000), 9000),
        "hidden layer": (UsableInformationMLP(occurrences=40_000), 9000),
    }
    for clusters, occurrences, num in (
        (200, 40_000, 9000),
        (1000, 40_000, 9000),
        (10_000, 1_000_000, len(sentences())),
    ):
        for name, kind in (("kept", MutualInformation), ("removed", MutualInformationWithoutPosition)):
            measure = kind(clusters, occurrences=occurrences)
            estimates[f"{clusters} clusters, positions {name}"] = (measure, num)
    path = HERE / "layers.csv"
    found = pd.read_csv(path) if path.exists() else pd.DataFrame({"estimate": []})
    for name, (measure, num) in estimates.items():
        if name in set(found["estimate"]):
            continue
        start = process_time()
        frame = infoflow.measure(infoflow.load_model(model), drawn(num, 0), [measure])[measure.name]
        seconds = process_time() - start
        found = pd.concat([found, frame[columns].assign(estimate=name, cpu_seconds=seconds).round(4)])
        found.to_csv(path, index=False)
        print(name, round(seconds), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", help="a model's folder; `tails` and `mixtures` need none")
    parts = {"estimators": estimators, "neighbours": neighbours, "sizes": sizes, "coverage": coverage, "layers": layers}
    without = {"tails": tails, "mixtures": mixtures}
    parser.add_argument("--part", choices=(*parts, *without), required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.part in parts and arguments.model is None:
        parser.error(f"--part {arguments.part} needs a model")
    found = without[arguments.part]() if arguments.part in without else parts[arguments.part](arguments.model)
    found.to_csv(HERE / f"{arguments.part}.csv", index=False)


if __name__ == "__main__":
    main()
