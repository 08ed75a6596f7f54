"""Parts of a few examples: resamples that draw none of them are no numbers."""

import numpy as np

from infoflow.adaptation import Classification, Predictions
from infoflow.foundation import block_of, replicate_weights


def test_a_resample_without_examples_is_no_number(corpus_of):
    corpus = corpus_of(text=["a dog", "a cat", "a house"], label=["x", "y", "x"])
    said = Predictions(said=("x", "x", "x"), wanted=("x", "y", "x"), values=np.ones(3))
    scores = Classification(task="t", labels=("x", "y")).scores(said, corpus, corpus)
    drawn = replicate_weights()[:, block_of(corpus.content_ids)]
    assert (drawn.sum(1) == 0).any()
    for score in scores:
        assert np.array_equal(np.isnan(score.row["replicates"]), drawn.sum(1) == 0)
    right = np.array([1.0, 0.0, 1.0])
    whole = drawn.sum(1) > 0
    np.testing.assert_allclose(
        np.array(scores[0].row["replicates"])[whole], (drawn @ right)[whole] / drawn.sum(1)[whole]
    )


def test_the_main_metric_is_the_first(corpus_of):
    corpus = corpus_of(text=["a dog", "a cat", "a house"], label=["x", "y", "x"])
    said = Predictions(said=("x", "y", "x"), wanted=("x", "y", "x"), values=np.ones(3))
    for main in ("accuracy", "macro_f1", "matthews"):
        scores = Classification(task="t", labels=("x", "y"), main=main).scores(said, corpus, corpus)
        assert scores[0].metric == main
        assert {score.row["value"] for score in scores} == {1.0}
