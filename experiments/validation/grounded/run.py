"""Do similarities of representations find the differences between models that are known?

    python experiments/validation/grounded/run.py [--seeds 10] [--updates 300]

The three grounded tests of ReSi (Klabunde et al. 2024) on small classifiers of grammar sentences: groups of models by
training, differences of predictions, and order of layers. `grounded.csv` gets a row for each view, measure and quality.
"""

import argparse
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import rankdata, spearmanr
from transformers import BertConfig, BertModel

import infoflow
from infoflow.representations import (
    cca_correlations,
    linear_cka,
    minibatch_cka,
    procrustes_distance,
    pwcca,
    rsa,
    svcca,
)

HERE = Path(__file__).parent
WIDTH, LAYERS, CLASSES, BATCH, LENGTH = 64, 4, 4, 50, 14
TRAINING, ROWS, ITEMS, NEIGHBOURS = 1_000, 2_000, 600, 10
RESAMPLES = 1_000
SEPARATED = (LAYERS // 2, LAYERS)  # layers at which groups are compared
PAD, UNKNOWN, FIRST_CUE, FIRST_WORD = 0, 1, 2, 2 + CLASSES
PREDICTIONS = ("accuracy difference", "disagreement", "Jensen-Shannon divergence")

# Groups of each test: the share of labels that are random, of shortcuts that are right, of words that are random.
TESTS = {
    "labels": [("labels", 0.0), ("labels", 0.5), ("labels", 1.0)],
    "shortcut": [("shortcut", 0.0), ("shortcut", 0.5), ("shortcut", 1.0)],
    "words": [("labels", 0.0), ("words", 0.25), ("words", 0.5)],
}
PLAIN = ("labels", 0.0)


# Data: sentences of the grammar, with the number of the subject and whether the verb has an object as label.


@dataclass(frozen=True)
class Data:
    """Sentences as ids, padded on the right, and their labels."""

    ids: torch.Tensor
    labels: torch.Tensor


def sentences() -> tuple[Data, Data, int]:
    """Training data, test data without training sentences, and the size of the vocabulary."""
    found, seen = [], set()
    for sentence in infoflow.load_corpus("grammar"):
        label = _label(sentence)
        if label is not None and sentence.text not in seen and len(sentence.words) <= LENGTH:
            seen.add(sentence.text)
            found.append((sentence.words, label))
        if len(found) == TRAINING + ROWS:
            break
    assert len(found) == TRAINING + ROWS
    counts = Counter(word for words, _ in found for word in words)
    ids = {word: FIRST_WORD + i for i, (word, n) in enumerate(counts.most_common()) if n > 2}
    rows = torch.full((len(found), LENGTH), PAD)
    for row, (words, _) in zip(rows, found, strict=True):
        row[: len(words)] = torch.tensor([ids.get(word, UNKNOWN) for word in words])
    labels = torch.tensor([label for _, label in found])
    whole = [Data(rows[part], labels[part]) for part in (slice(TRAINING), slice(TRAINING, None))]
    return whole[0], whole[1], FIRST_WORD + len(ids)


def _label(sentence) -> int | None:
    """0 to 3; None if the subject's number does not show."""
    root = sentence.head.index(-1)
    own = [sentence.deprel[i] for i, head in enumerate(sentence.head) if head == root]
    if sentence.upos[root] != "VERB" or "nsubj" not in own or "conj" in own:
        return None
    return 2 * sentence.words[root].endswith("s") + ("obj" in own)


def with_shortcut(data: Data, share: float, random: torch.Generator) -> Data:
    """A first word for each sentence, which names its label with this probability and is random otherwise."""
    cues = mixed(data.labels, share, CLASSES, random) + FIRST_CUE
    return Data(torch.cat([cues.unsqueeze(1), data.ids], dim=1), data.labels)


def mixed(values: torch.Tensor, share: float, size: int, random: torch.Generator) -> torch.Tensor:
    """`values` with probability `share`, otherwise a random one below `size`."""
    kept = torch.rand(values.shape, generator=random) < share
    return torch.where(kept, values, torch.randint(size, values.shape, generator=random))


# Models: BERT of random weights, mean of the last states, one linear layer.


class Classifier(torch.nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.bert = BertModel(
            BertConfig(
                vocab_size=vocabulary,
                hidden_size=WIDTH,
                num_hidden_layers=LAYERS,
                num_attention_heads=4,
                intermediate_size=2 * WIDTH,
                max_position_embeddings=LENGTH + 1,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            ),
            add_pooling_layer=False,
        )
        self.head = torch.nn.Linear(WIDTH, CLASSES)

    def states(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(sentence, position, width) for the embeddings and each layer."""
        return self.bert(ids, attention_mask=(ids != PAD).long(), output_hidden_states=True).hidden_states

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(pooled(self.states(ids)[-1], ids))


def pooled(states: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Mean of a sentence's states."""
    mask = (ids != PAD).unsqueeze(2)
    return (states * mask).sum(1) / mask.sum(1)


def of_group(data: Data, kind: str, share: float) -> Data:
    """The training data that all models of a group have in common."""
    random = torch.Generator().manual_seed(1)
    if kind == "shortcut":
        return with_shortcut(data, share, random)
    return Data(data.ids, mixed(data.labels, 1 - share, CLASSES, random)) if kind == "labels" else data


def train(data: Data, replaced: float, seed: int, vocabulary: int, updates: int) -> tuple[Classifier, float]:
    """A trained model, and its accuracy on the labels that it was trained on.

    Args:
        data: Training data of the group.
        replaced: Share of words that are replaced by random ones, drawn anew in each batch.
        seed: Of the weights and the order of batches.
        vocabulary: Number of words.
        updates: Number of batches.
    """
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(seed)
    model = Classifier(vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=updates)
    order = itertools.chain.from_iterable(
        torch.randperm(TRAINING, generator=random).split(BATCH) for _ in range(updates)
    )
    for chosen in itertools.islice(order, updates):
        ids = data.ids[chosen]
        ids = ids[:, : int((ids != PAD).sum(1).max())]
        if replaced:
            other = torch.randint(FIRST_WORD, vocabulary, ids.shape, generator=random)
            drawn = torch.rand(ids.shape, generator=random) < replaced
            ids = torch.where(drawn & (ids != PAD), other, ids)
        loss = torch.nn.functional.cross_entropy(model(ids), data.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        fitted = (model.eval()(data.ids).argmax(1) == data.labels).float().mean()
    return model, float(fitted)


@dataclass(frozen=True)
class Seen:
    """What is read from one model on the test sentences."""

    layers: dict[str, list[torch.Tensor]]  # by view: states of the embeddings and each layer, (row, width)
    probabilities: np.ndarray
    accuracy: float


@torch.no_grad()
def read(model: Classifier, data: Data) -> Seen:
    states = model.states(data.ids)
    words = (data.ids >= FIRST_WORD).flatten().nonzero().squeeze(1)
    words = words[torch.randperm(len(words), generator=torch.Generator().manual_seed(0))[:ROWS]]
    logits = model.head(pooled(states[-1], data.ids))
    return Seen(
        layers={
            "sentence": [pooled(layer, data.ids).double() for layer in states],
            "token": [layer.flatten(0, 1)[words].double() for layer in states],
        },
        probabilities=logits.double().softmax(1).numpy(),
        accuracy=float((logits.argmax(1) == data.labels).float().mean()),
    )


# Measures: larger for more similar views.


Similarity = Callable[[torch.Tensor, torch.Tensor], float]


def _distance(x: torch.Tensor, y: torch.Tensor, **options) -> float:
    return -procrustes_distance(x, y, **options)


def _rsa(x: torch.Tensor, y: torch.Tensor, metric: str) -> float:
    return rsa(x[:ITEMS], y[:ITEMS], metric)


def _minibatch(x: torch.Tensor, y: torch.Tensor) -> float:
    return minibatch_cka(zip(x.split(100), y.split(100), strict=True))


def _neighbours(x: torch.Tensor, y: torch.Tensor) -> float:
    """Mean Jaccard overlap of the nearest rows by cosine; not part of infoflow."""
    a, b = _nearest(x), _nearest(y)
    both = (a.unsqueeze(2) == b.unsqueeze(1)).sum((1, 2)).double()
    return float((both / (2 * NEIGHBOURS - both)).mean())


@cache
def _nearest(x: torch.Tensor) -> torch.Tensor:
    unit = torch.nn.functional.normalize(x, dim=1)
    return (unit @ unit.mT).fill_diagonal_(-2).topk(NEIGHBOURS).indices


MEASURES: dict[str, Similarity] = {
    "pwcca": pwcca,
    "svcca": svcca,
    "cca_correlations, mean": lambda x, y: float(cca_correlations(x, y).mean()),
    "linear_cka": linear_cka,
    "linear_cka, debiased": partial(linear_cka, debiased=True),
    "minibatch_cka": _minibatch,
    "procrustes_distance, angle": _distance,
    "procrustes_distance, size-and-shape": partial(_distance, kind="size-and-shape"),
    "procrustes_distance, angle, alpha 0.5": partial(_distance, alpha=0.5),
    "procrustes_distance, angle, alpha 0": partial(_distance, alpha=0.0),
    "rsa, cosine": partial(_rsa, metric="cosine"),
    "rsa, euclidean": partial(_rsa, metric="euclidean"),
    "rsa, correlation": partial(_rsa, metric="correlation"),
    "nearest neighbours (not ours)": _neighbours,
}


# Qualities. Intervals resample models within their groups; a pair counts as often as both its models were drawn.


def drawn(sizes: list[int]) -> np.ndarray:
    """(1 + resample, model): how often each model counts, the first time once."""
    random = np.random.default_rng(0)
    parts = [random.multinomial(size, np.full(size, 1 / size), RESAMPLES) for size in sizes]
    return np.vstack([np.ones(sum(sizes), int), np.hstack(parts)])


def separation(values: np.ndarray, sizes: list[int], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """AUPRC and conformity of pairs within a group against pairs that leave it, mean over groups; for each resample.

    Args:
        values: (model, model) similarities, models ordered by group.
        sizes: Number of models of each group.
        weights: From `drawn`.
    """
    group = np.repeat(np.arange(len(sizes)), sizes)
    a, b = np.triu_indices(len(group), 1)
    precisions, orders = [], []
    for one in range(len(sizes)):
        member = (group[a] == one).astype(int) + (group[b] == one)
        pairs = np.flatnonzero(member > 0)
        pairs = pairs[np.argsort(-values[a[pairs], b[pairs]], kind="stable")]
        weight = (weights[:, a[pairs]] * weights[:, b[pairs]]).astype(float)
        inner = weight * (member[pairs] == 2)
        outer = weight - inner
        found, all_found = inner.cumsum(1), weight.cumsum(1)
        precision = np.divide(found, all_found, out=np.zeros_like(found), where=all_found > 0)
        precisions.append((inner * precision).sum(1) / inner.sum(1))
        orders.append((outer * found).sum(1) / (inner.sum(1) * outer.sum(1)))
    return np.mean(precisions, axis=0), np.mean(orders, axis=0)


def chance(sizes: list[int]) -> float:
    """Expected AUPRC of a measure that knows nothing: the share of pairs that are within the group."""
    inner = [size * (size - 1) / 2 for size in sizes]
    return float(np.mean([n / (n + size * (sum(sizes) - size)) for n, size in zip(inner, sizes, strict=True)]))


def agreement(values: np.ndarray, differences: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Spearman's correlation of dissimilarity with the difference of predictions over pairs, for each resample."""
    a, b = np.triu_indices(len(values), 1)
    x, y, result = -values[a, b], differences[a, b], []
    for times in weights[:, a] * weights[:, b]:
        rows = np.repeat(np.arange(len(a)), times)
        result.append(np.corrcoef(rankdata(x[rows]), rankdata(y[rows]))[0, 1])
    assert np.isclose(result[0], spearmanr(x, y)[0])
    return np.array(result)


def monotonicity(layers: np.ndarray) -> float:
    """Share of triples in which, seen from the first layer, the nearer of two is more similar than the farther one."""
    num = len(layers)
    triples = [
        (i, j, k)
        for i, j, k in itertools.permutations(range(num), 3)
        if (i < j < k) or (i > j > k)
    ]  # fmt: skip
    return float(np.mean([layers[i, j] >= layers[i, k] for i, j, k in triples]))


def differences(models: list[Seen]) -> dict[str, np.ndarray]:
    """(model, model) differences of predictions."""
    found = {name: np.zeros((len(models), len(models))) for name in PREDICTIONS}
    for (i, a), (j, b) in itertools.combinations(enumerate(models), 2):
        p, q = a.probabilities, b.probabilities
        middle = (p + q) / 2
        divergence = (p * np.log2(p / middle) + q * np.log2(q / middle)).sum(1).mean() / 2
        for name, value in zip(
            PREDICTIONS, (abs(a.accuracy - b.accuracy), (p.argmax(1) != q.argmax(1)).mean(), divergence), strict=True
        ):
            found[name][i, j] = found[name][j, i] = value
    return found


def square(measure: Similarity, views: list[torch.Tensor]) -> np.ndarray:
    values = np.eye(len(views))
    for (i, x), (j, y) in itertools.combinations(enumerate(views), 2):
        values[i, j] = values[j, i] = measure(x, y)
    return values


def rows(seen: dict[tuple[str, float], list[Seen]], view: str, name: str) -> Iterator[tuple[dict, np.ndarray]]:
    """Rows of the table with the values of all resamples."""
    measure = MEASURES[name]
    for layer in SEPARATED:
        separated = []
        for test, groups in TESTS.items():
            sizes = [len(seen[group]) for group in groups]
            values = square(measure, [model.layers[view][layer] for group in groups for model in seen[group]])
            precision, order = separation(values, sizes, drawn(sizes))
            separated.append(precision)
            where = {"layer": layer, "test": test}
            yield {**where, "quality": "AUPRC", "chance": chance(sizes)}, precision
            yield {**where, "quality": "conformity", "chance": 0.5}, order
            if test == "labels" and layer == LAYERS:
                plain = values[: sizes[0], : sizes[0]]
        mean = np.mean(separated, axis=0)
        yield {"layer": layer, "test": "mean of three", "quality": "AUPRC", "chance": chance(sizes)}, mean
    weights = drawn([len(plain)])
    for prediction, difference in differences(seen[PLAIN]).items():
        yield (
            {"layer": LAYERS, "test": prediction, "quality": "Spearman", "chance": 0.0},
            agreement(plain, difference, weights),
        )
    rates = np.array([monotonicity(square(measure, model.layers[view])) for model in seen[PLAIN]])
    yield {"layer": "all", "test": "layers", "quality": "conformity", "chance": 0.5}, weights @ rates / len(rates)


def table(seen: dict[tuple[str, float], list[Seen]]) -> pd.DataFrame:
    """A row for each view, measure and quality; `behind` is the difference to the best of infoflow's measures."""
    found = []
    for view in ("sentence", "token"):
        for name in MEASURES:
            found += [({"view": view, "measure": name, **row}, values) for row, values in rows(seen, view, name)]
            print(view, name, flush=True)
    best: dict[tuple, np.ndarray] = {}
    for row, values in found:
        key = (row["view"], row["layer"], row["test"], row["quality"])
        if "not ours" not in row["measure"] and (key not in best or values[0] > best[key][0]):
            best[key] = values
    result = []
    for row, values in found:
        less = best[row["view"], row["layer"], row["test"], row["quality"]] - values
        ends = [*np.nanquantile(values[1:], [0.025, 0.975]), less[0], *np.nanquantile(less[1:], [0.025, 0.975])]
        names = ("value", "low", "high", "behind", "behind_low", "behind_high")
        result.append(row | dict(zip(names, [values[0], *ends], strict=True)))
    return pd.DataFrame(result).round(3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    training, test, vocabulary = sentences()
    # In the test data a shortcut says nothing, as in the training data of the first group.
    cued = with_shortcut(test, 0.0, torch.Generator().manual_seed(0))
    seen: dict[tuple[str, float], list[Seen]] = {}
    models = []
    for number, group in enumerate(dict.fromkeys(itertools.chain.from_iterable(TESTS.values()))):
        (kind, share), data = group, of_group(training, *group)
        for seed in range(arguments.seeds):
            replaced = share if kind == "words" else 0.0
            model, fitted = train(data, replaced, 100 * number + seed, vocabulary, arguments.updates)
            one = read(model, cued if kind == "shortcut" else test)
            seen.setdefault(group, []).append(one)
            models.append({"kind": kind, "share": share, "seed": seed, "fitted": fitted, "test": one.accuracy})
            print(models[-1], flush=True)
    print(pd.DataFrame(models).groupby(["kind", "share"])[["fitted", "test"]].agg(["mean", "min", "max"]).round(3))
    table(seen).to_csv(arguments.out / "grounded.csv", index=False)


if __name__ == "__main__":
    main()
