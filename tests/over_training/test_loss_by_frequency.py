"""Loss by frequency against one sentence at a time; its deciles against sorting; the pass that measures share."""

import math

import numpy as np
import pytest
from support.ngram_loops import Loops
from support.predicted_tokens import OBJECTIVES, sentence_by_sentence, sequences_of

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, measure
from infoflow.foundation import UserError, block_of, replicate_weights
from infoflow.heads import SentenceScorer
from infoflow.over_training import InContextLearning, LossByFrequency, LossByPosition, NgramAgreement, frequency_deciles


def sorted_deciles(counts) -> list[int]:
    """Each type's middle place among those as frequent, in the list from the most frequent to the rarest."""
    ranked = sorted((count for count in counts if count), reverse=True)
    found = []
    for count in counts:
        places = [place for place, other in enumerate(ranked) if other == count]
        middle = (places[0] + places[-1] + 1) / 2 if places else 0
        found.append(int(10 * middle / len(ranked) + 1e-12) if places else -1)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_deciles_are_tenths_of_the_sorted_types(seed):
    counts = np.random.default_rng(seed).geometric(0.2, size=137) - 1
    deciles = frequency_deciles(counts)
    assert deciles.tolist() == sorted_deciles(counts.tolist())
    order = np.argsort(-counts, kind="stable")
    assert (np.diff(deciles[order][counts[order] > 0]) >= 0).all()


def test_deciles_of_different_counts_hold_as_many_types_each():
    deciles = frequency_deciles(np.random.default_rng(0).permutation(np.arange(1, 101)))
    assert np.bincount(deciles).tolist() == [10] * 10
    assert frequency_deciles(np.zeros(3, dtype=np.int64)).tolist() == [-1] * 3
    assert frequency_deciles(np.array([4])).tolist() == [5]  # all there is, in the middle


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_loss_by_frequency_is_the_mean_over_tokens_of_a_decile(matched_models, parallel_corpus, objective):
    model = matched_models[objective]
    table = measure(model, parallel_corpus, [LossByFrequency()])["loss_by_frequency"].set_index("decile")
    found = sentence_by_sentence(model, parallel_corpus)
    texts, counted = sequences_of(model, parallel_corpus)
    counts = [0] * len(found[0][0])
    for text, kept in zip(texts, counted, strict=True):
        for token, counts_it in zip(text, kept, strict=True):
            counts[token] += counts_it
    slow = Loops(texts, len(counts), 1, counted=counted)
    deciles = sorted_deciles(counts)
    assert sorted({deciles[label] for _, label, *_ in found}) == table.index.tolist()
    assert len(table) > 2
    blocks = block_of(np.array([sentence for *_, sentence in found]))
    losses = np.array([-logs[label] for logs, label, *_ in found])
    for decile, row in table.iterrows():
        at = np.array([deciles[label] == decile for _, label, *_ in found])
        types = {label for _, label, *_ in found if deciles[label] == decile}
        unigram = {label: math.log(slow.q(label, ())) for label in types}
        assert row["value"] == pytest.approx(losses[at].mean(), rel=1e-5)
        assert (row["count"], row["types"]) == (at.sum(), len(types))
        assert row["baseline"] == pytest.approx(
            np.mean([-unigram[label] for _, label, *_ in found if deciles[label] == decile])
        )
        assert row["log_frequency"] == pytest.approx(np.mean(list(unigram.values())))
        weights = replicate_weights()[:, blocks[at]]
        with np.errstate(invalid="ignore"):
            expected = (weights @ losses[at]) / weights.sum(1)
        np.testing.assert_allclose(row["replicates"], expected, rtol=1e-5)


def test_deciles_come_from_the_training_corpus(matched_models, parallel_corpus):
    model = matched_models["causal-lm"]
    part = parallel_corpus.select(np.arange(5))
    own = measure(model, part, [LossByFrequency()])["loss_by_frequency"]
    known = measure(model, part, [LossByFrequency()], ranks_from=parallel_corpus)["loss_by_frequency"]
    assert own["count"].sum() == known["count"].sum()
    assert set(known["corpus"]) == {parallel_corpus.name}
    assert own[["decile", "count"]].to_numpy().tolist() != known[["decile", "count"]].to_numpy().tolist()
    # The other way round some types were never counted: they are rows of their own.
    rest = measure(model, parallel_corpus, [LossByFrequency()], ranks_from=part)["loss_by_frequency"]
    assert -1 in rest["decile"].tolist()


def test_measures_of_losses_share_one_pass(matched_models, parallel_corpus, monkeypatch):
    """And have the numbers that each has alone."""
    model, options = matched_models["causal-lm"], PassOptions(tokens_per_batch=64)
    kinds = [
        lambda: NgramAgreement(samples=0),
        LossByPosition,
        LossByFrequency,
        lambda: InContextLearning(sequences=8, length=4),
    ]
    alone = {}
    for kind in kinds:
        alone |= measure(model, parallel_corpus, [kind()], options)
    passes = []
    plain = SentenceScorer.logits

    def counted(scorer, batch):
        passes.append(len(batch.padded.rows))
        return plain(scorer, batch)

    monkeypatch.setattr(SentenceScorer, "logits", counted)
    together = measure(model, parallel_corpus, [kind() for kind in kinds], options)
    assert sum(passes) == len(parallel_corpus)
    for name, table in alone.items():
        assert repr(table.to_dict("records")) == repr(together[name].to_dict("records")), name


def test_what_has_no_loss_is_refused(matched_models, parallel_corpus):
    with pytest.raises(UserError, match="sentences must be at least 1"):
        LossByFrequency(sentences=0)
    one = Corpus.from_sentences(["the cat"], name="text only")
    with pytest.raises(UserError, match="translations"):
        measure(matched_models["translation"], one, [LossByFrequency()])
