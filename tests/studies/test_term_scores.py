"""The scores of an objective with several terms: their weighted sum, and each by itself."""

import numpy as np
import pytest
from training.toy_objectives import SentenceOrder

from infoflow.foundation import NUM_BLOCKS
from infoflow.objectives import MaskedLM
from infoflow.studies._scores import _loss_rows


def sums(num_terms: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 9, (num_terms, NUM_BLOCKS)).astype(float)
    return counts * rng.uniform(1, 2, counts.shape), counts * 3.0, counts


def test_several_terms_are_told_apart_and_together() -> None:
    losses, bases, counts = sums(2)
    rows = {row["metric"]: row for row in _loss_rows(SentenceOrder(), "test", losses, bases, counts)}
    assert list(rows) == ["loss", "loss of masked-lm", "loss of order"]
    means = losses.sum(axis=1) / counts.sum(axis=1)
    assert rows["loss of masked-lm"]["value"] == pytest.approx(means[0])
    assert rows["loss of order"]["value"] == pytest.approx(means[1])
    assert rows["loss"]["value"] == pytest.approx(means[0] + 0.5 * means[1])
    assert [row["baseline"] for row in rows.values()] == pytest.approx([4.5, 3.0, 3.0])
    assert rows["loss"]["low"] < rows["loss"]["value"] < rows["loss"]["high"]
    assert rows["loss of order"]["count"] == int(counts[1].sum())


def test_one_term_is_the_loss_and_has_a_perplexity() -> None:
    losses, bases, counts = sums(1)
    loss, perplexity = _loss_rows(MaskedLM(), "test", losses, bases, counts)
    assert loss["value"] == losses.sum() / counts.sum()
    assert perplexity["value"] == pytest.approx(np.exp(loss["value"]))
    assert (loss["metric"], perplexity["metric"]) == ("loss", "perplexity")
