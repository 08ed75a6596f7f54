"""Scores of probes against scikit-learn's and plain loops, and what an interval of selectivity is."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from infoflow.foundation import block_of, replicate_weights
from infoflow.probing import selectivity
from infoflow.subjects.probing.measures._probe_scores import ProbePredictions, score_rows


@pytest.fixture
def answers() -> ProbePredictions:
    rng = np.random.default_rng(0)
    wanted = np.stack([rng.choice(6, 500, p=[0.4, 0.3, 0.2, 0.06, 0.04, 0.0])] * 3)
    wrong = rng.integers(0, 6, (2, 3, 500))
    said = np.where(rng.random((2, 3, 500)) < np.array([0.3, 0.8])[:, None, None], wanted, wrong)
    return ProbePredictions(
        said=said,
        wanted=wanted,
        majority=np.array([0, 0, 1]),
        taught=wanted != 4,
        blocks=block_of(np.arange(500) // 4),
        seen=rng.random(500) < 0.7,
    )


@pytest.mark.parametrize("words", ["all", "seen", "unseen"])
def test_accuracy(answers, words):
    among = {"all": answers.seen | True, "seen": answers.seen, "unseen": ~answers.seen}[words]
    for layer in range(2):
        row = answers.accuracy(layer, words)
        each = [np.mean(answers.said[layer, s][among] == answers.wanted[s][among]) for s in range(3)]
        assert row["value"] == pytest.approx(np.mean(each))
        assert row["seed_sd"] == pytest.approx(np.std(each, ddof=1))
        assert row["count"] == among.sum()
        guessed = [np.mean(answers.wanted[s][among] == guess) for s, guess in enumerate((0, 0, 1))]
        assert row["baseline"] == pytest.approx(np.mean(guessed))
        assert row["untaught"] == (answers.wanted[0][among] == 4).sum()
        assert row["low"] < row["value"] < row["high"]


def test_macro_f1_is_scikit_learns_on_the_classes_of_the_test_part(answers):
    classes = np.unique(answers.wanted)
    assert 5 not in classes
    for layer in range(2):
        row = answers.macro_f1(layer)
        expected = [
            f1_score(answers.wanted[s], answers.said[layer, s], labels=classes, average="macro") for s in range(3)
        ]
        assert row["value"] == pytest.approx(np.mean(expected))
        for r, weights in enumerate(replicate_weights()[:4]):
            drawn = weights[answers.blocks]
            there = np.unique(answers.wanted[0][drawn > 0])
            again = [
                f1_score(answers.wanted[s], answers.said[layer, s], labels=there, average="macro", sample_weight=drawn)
                for s in range(3)
            ]
            assert row["replicates"][r] == pytest.approx(np.mean(again))


def test_rows_hold_what_there_is(answers):
    rows = list(score_rows(answers, answers))
    assert {(r["labels"], r["words"], r["metric"]) for r in rows} == {
        ("task", "all", "macro_f1"),
        *((labels, words, "accuracy") for labels in ("task", "control") for words in ("all", "seen", "unseen")),
        *(("task", words, "selectivity") for words in ("all", "seen", "unseen")),
    }
    assert all(r["value"] == 0 and r["seed_sd"] == 0 for r in rows if r["metric"] == "selectivity")
    alone = list(score_rows(answers, None))
    assert {r["metric"] for r in alone} == {"macro_f1", "accuracy"}


def test_selectivity_is_a_paired_difference():
    rng = np.random.default_rng(1)
    sentences = np.arange(3000) // 10
    hard = rng.random(300)[sentences] < 0.5  # whole sentences that both get wrong
    task, control = (~hard & (rng.random((3, 3000)) < share) for share in (0.9, 0.6))
    found = selectivity(task, control, sentences)
    assert found.value == pytest.approx(task.mean() - control.mean())
    assert (found.accuracy, found.control) == (pytest.approx(task.mean()), pytest.approx(control.mean()))
    assert found.low < found.value < found.high
    apart = selectivity(task, control[:, ::-1].copy(), sentences)  # the other end of the corpus: no pairs
    assert found.high - found.low < 0.8 * (apart.high - apart.low)
    other = selectivity(task, control[:, :1000], sentences, sentences[:1000])
    assert other.control == pytest.approx(control[:, :1000].mean())
    nothing = selectivity(task, task, sentences)
    assert nothing.value == nothing.low == nothing.high == 0
