"""Metrics and their bootstrap, beside scikit-learn, SciPy and seqeval on the resampled examples."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, r2_score

from infoflow.adaptation import Classification, Predictions, Regression, Tagging
from infoflow.corpus import Corpus
from infoflow.foundation import block_of, replicate_weights, stream

N = 150
REPLICATES = (0, 17, 199)


def corpus_of(num=N, labels=None):
    corpus = Corpus.from_sentences([f"text number {n}" for n in range(num)])
    return corpus if labels is None else corpus.with_labels(labels)


@pytest.fixture(scope="module")
def blocks():
    return block_of(corpus_of().content_ids)


def predictions(wanted, said, values=None):
    return Predictions(
        said=tuple(map(str, said)),
        wanted=tuple(map(str, wanted)),
        values=np.ones(len(said)) if values is None else values,
    )


def class_scores(wanted, said, guess, num):
    """By metric, with `guess` the most frequent class of training."""
    task = Classification(task="classes", labels=tuple(map(str, range(num))))
    found = task.scores(predictions(wanted, said), corpus_of(len(wanted)), corpus_of(3, [str(guess)] * 3))
    return {one.metric: one for one in found}


def number_scores(wanted, said, training):
    labels = [repr(float(one)) for one in wanted]
    corpus, train = corpus_of(len(wanted), labels), corpus_of(len(training), [repr(float(one)) for one in training])
    return Regression.of("numbers", train).scores(predictions(wanted, said, said), corpus, train)


def resampled(blocks, replicate):
    """The examples of a replicate, as often as their block is drawn."""
    return np.repeat(np.arange(len(blocks)), replicate_weights()[replicate][blocks].astype(int))


def agree(score, metric, examples_of, blocks):
    every = np.arange(len(blocks))
    assert score.row["value"] == pytest.approx(examples_of(every), abs=1e-12)
    for replicate in REPLICATES:
        chosen = resampled(blocks, replicate)
        assert score.row["replicates"][replicate] == pytest.approx(examples_of(chosen), abs=1e-9), metric
    assert score.metric == metric
    assert score.row["low"] < score.row["value"] < score.row["high"]


def test_classes_agree_with_scikit_learn_on_every_resample(blocks):
    rng = stream("scoring-classes")
    wanted = rng.choice(4, size=N, p=[0.6, 0.3, 0.07, 0.03])  # the rare one is missing from some resamples
    said = np.where(rng.random(N) < 0.6, wanted, rng.integers(4, size=N))
    found = class_scores(wanted, said, 0, 4)
    accuracy, macro, correlation = (found[metric] for metric in ("accuracy", "macro_f1", "matthews"))
    agree(accuracy, "accuracy", lambda x: accuracy_score(wanted[x], said[x]), blocks)
    agree(macro, "macro_f1", lambda x: f1_score(wanted[x], said[x], average="macro"), blocks)
    agree(correlation, "matthews", lambda x: matthews_corrcoef(wanted[x], said[x]), blocks)
    guess = np.zeros(N, dtype=int)
    assert accuracy.row["baseline"] == pytest.approx(accuracy_score(wanted, guess))
    assert macro.row["baseline"] == pytest.approx(f1_score(wanted, guess, average="macro", zero_division=0))
    assert correlation.row["baseline"] == matthews_corrcoef(wanted, guess) == 0


def test_an_answer_that_is_no_class_is_wrong_and_no_class_of_the_mean(blocks, tagged):
    rng = stream("scoring-unread")
    wanted = rng.integers(3, size=N)
    said = np.where(rng.random(N) < 0.3, 3, wanted)
    names = np.array(["X", "Y", "Z", "[not-read]"])
    task, corpus = Tagging(task="words", labels=("X", "Y", "Z")), corpus_of()
    train = tagged([["a"]], [["X"]])
    accuracy, macro = task.scores(predictions(names[wanted], names[said]), corpus, train)
    assert accuracy.row["value"] == pytest.approx((said != 3).mean())
    agree(macro, "macro_f1", lambda x: f1_score(wanted[x], said[x], labels=[0, 1, 2], average="macro"), blocks)


def test_constant_answers_correlate_with_nothing():
    wanted = stream("scoring-constant").integers(2, size=N)
    correlation = class_scores(wanted, np.zeros(N, dtype=int), 0, 2)["matthews"]
    assert correlation.row["value"] == 0
    assert not np.any(correlation.row["replicates"])
    pearson, spearman, _ = number_scores(wanted, np.full(N, 3.0), (2, 4))
    assert pearson.row["value"] == spearman.row["value"] == 0
    assert not np.any(pearson.row["replicates"])


def test_numbers_agree_with_scipy_on_every_resample(blocks):
    rng = stream("scoring-numbers")
    wanted = rng.integers(1, 6, size=N) + 1000.0  # many ties, far from 0
    said = wanted + rng.normal(size=N).round(1)
    pearson, spearman, explained = number_scores(wanted, said, (wanted.mean() - 1.9, wanted.mean() + 2.1))
    agree(pearson, "pearson", lambda x: pearsonr(wanted[x], said[x]).statistic, blocks)
    agree(spearman, "spearman", lambda x: spearmanr(wanted[x], said[x]).statistic, blocks)
    agree(explained, "r2", lambda x: r2_score(wanted[x], said[x]), blocks)
    assert explained.row["baseline"] == pytest.approx(r2_score(wanted, np.full(N, wanted.mean() + 0.1)))


@pytest.mark.parametrize("size", [3, 10, 20])
def test_few_numbers_leave_a_correlation_as_open_as_fisher_says(size):
    rng = stream("scoring-few")
    wanted, said = rng.normal(size=(2, size))
    for score in number_scores(wanted, said, (-1, 1))[:2]:
        value, low, high = (score.row[name] for name in ("value", "low", "high"))
        assert -1 <= low <= value <= high <= 1
        if size == 3:
            assert high - low == pytest.approx(2)
        else:
            reach = 1.959964 / np.sqrt(size - 3)
            assert low <= np.tanh(np.arctanh(value) - reach) + 1e-9
            assert high >= np.tanh(np.arctanh(value) + reach) - 1e-9


def test_sets_agree_with_scikit_learn_on_every_resample(blocks):
    rng = stream("scoring-sets")
    wanted = rng.random((N, 3)) < [0.5, 0.2, 0.1]
    said = wanted ^ (rng.random((N, 3)) < 0.2)
    guess = np.array([True, False, False])
    task = Classification(task="sets", labels=("A", "B", "C"), multi=True)
    sides = [["|".join(np.array(["A", "B", "C"])[row]) for row in side] for side in (wanted, said)]
    micro, macro, exact = task.scores(predictions(*sides), corpus_of(), corpus_of(3, ["A"] * 3))
    agree(micro, "micro_f1", lambda x: f1_score(wanted[x], said[x], average="micro"), blocks)
    agree(macro, "macro_f1", lambda x: f1_score(wanted[x], said[x], average="macro"), blocks)
    agree(exact, "accuracy", lambda x: accuracy_score(wanted[x], said[x]), blocks)
    guessed = np.broadcast_to(guess, wanted.shape)
    assert micro.row["baseline"] == pytest.approx(f1_score(wanted, guessed, average="micro"))


def test_entities_agree_with_seqeval_on_every_resample(blocks, tagged):
    entity_f1 = pytest.importorskip("seqeval.metrics").f1_score
    rng = stream("scoring-entities")
    tags = ["O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y"]
    wanted = [rng.choice(tags, size=rng.integers(1, 9), p=[0.3] + 7 * [0.1]).tolist() for _ in range(N)]
    said = [[tag if rng.random() < 0.8 else str(rng.choice(tags)) for tag in each] for each in wanted]
    task = Tagging(task="entities", labels=tuple(tags))
    sides = [[" ".join(row) for row in side] for side in (wanted, said)]
    score, _ = task.scores(predictions(*sides), corpus_of(), tagged([["a"]], [["O"]]))
    agree(score, "entity_f1", lambda x: entity_f1([wanted[i] for i in x], [said[i] for i in x]), blocks)
    assert score.row["baseline"] == 0
    assert score.row["count"] == N


def test_a_share_counts_items_of_examples_together(blocks, tagged):
    right = stream("scoring-items").random((N, 3)) < 0.7
    said = [" ".join(np.where(row, "X", "Y")) for row in right]
    task, train = Tagging(task="words", labels=("X", "Y")), tagged([["a"]], [["X"]])
    score, _ = task.scores(predictions(["X X X"] * N, said), corpus_of(), train)
    agree(score, "accuracy", lambda x: right.ravel()[x].mean(), np.repeat(blocks, 3))
    assert score.row["count"] == 3 * N


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_right_answers_alone_leave_matthews_an_interval(share):
    """Of 60 examples, a true correlation that all answers right cannot exclude lies in it; before it had no width."""
    wanted = (np.arange(60) < 60 * share).astype(np.int64)
    row = class_scores(wanted, wanted, 1, 2)["matthews"].row
    error = 1 - 0.05 ** (1 / 60)  # an error rate at which 60 right answers are as rare as 5 %
    assert row["value"] == row["high"] == 1
    assert row["low"] <= 1 - error / (2 * share * (1 - share))
    assert row["low"] > 0


def test_matthews_covers_near_its_bound():
    rng, covered = np.random.default_rng(5), []
    truth = 0.98  # of balanced classes, 1 % errors in each
    for _ in range(100):
        wanted = rng.integers(0, 2, 60)
        said = np.where(rng.random(60) < 0.01, 1 - wanted, wanted)
        row = class_scores(wanted, said, 1, 2)["matthews"].row
        covered.append(row["low"] <= truth <= row["high"] <= 1)
    assert np.mean(covered) >= 0.93
