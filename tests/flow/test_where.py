"""Statistics of the tokens with one tag: together they are those of all tokens."""

import numpy as np
import pytest
import torch
from support.tiny_heads import llama, trees

from infoflow.flow import PassOptions, Reader, measure, measure_of, select_occurrences
from infoflow.foundation import UserError
from infoflow.heads import (
    AttentionByDistance,
    Confidence,
    Entropy,
    PositionalScores,
    RareTokenScores,
    SentenceScorer,
    SurfaceStatistics,
)
from infoflow.representations import Lens

CORPUS = trees(40)
KEYS = ["stack", "kind", "layer", "head"]


@pytest.fixture(scope="module")
def model():
    return llama(CORPUS)


def tables(model, where=None):
    measures = [Confidence(), Entropy(), PositionalScores(), AttentionByDistance(exclude_queries=("special",))]
    measures += [SurfaceStatistics(exclude_queries=("special",)), RareTokenScores(top=2)]
    own = measure_of(lambda states: states[..., 0], name="first", unit="", description="The first number of a state.")
    found = measure(model, CORPUS, [*measures, own], options=PassOptions(where=where))
    keys = (*KEYS, "offset", "to", "nearest", "statistic", "target")
    return {n: frame.set_index([one for one in keys if one in frame]) for n, frame in found.items()}


def test_the_parts_of_a_tag_add_up_to_the_whole(model):
    whole = tables(model)
    tags = sorted({tag for tags in CORPUS.column("upos") for tag in tags})
    parts = [tables(model, ("upos", tag)) for tag in tags]
    for name, frame in whole.items():
        own = [part[name].reindex(frame.index) for part in parts]
        counts = sum(part["count"].fillna(0) for part in own)
        for column in ("value", "baseline") if name != "first" else ("value",):
            total = sum((part[column] * part["count"]).fillna(0) for part in own)
            np.testing.assert_allclose(total / counts, frame[column], rtol=1e-6, atol=1e-9)
        assert counts.tolist() == frame["count"].tolist()
        assert parts[0][name]["value"].tolist() != frame["value"].tolist()


def test_a_sample_holds_only_tokens_with_the_tag(model):
    def chosen(where):
        reader = Reader(model, CORPUS, max_length=64, seed=0, decoder=False, where=where)
        found = select_occurrences(reader, "decoder", "clean", 10_000, 1, [])
        return {
            (int(row), int(at)): int(word) for row, at, word in zip(found.row, found.position, found.word, strict=True)
        }

    every, nouns = chosen(None), chosen(("upos", "NOUN"))
    tags = list(CORPUS.column("upos"))
    assert nouns == {place: word for place, word in every.items() if tags[place[0]][word] == "NOUN"}
    assert 0 < len(nouns) < len(every)


@pytest.mark.parametrize(
    ("where", "message"),
    [(("role", "user"), "needs a tag of the corpus: ccg, .*upos"), (("upos", "FOO"), "No word .* Values of upos: ADJ")],
)
def test_tags_that_are_not_there(model, where, message):
    with pytest.raises(UserError, match=message):
        tables(model, where)


def test_predictions_of_words_with_the_tag_alone_count(model):
    """Counts and mean losses against a loop over the words themselves."""
    losses = []
    reader = Reader(model, CORPUS, max_length=64, seed=0, decoder=False)
    for row in reader.rows.tolist():
        stream = reader.padded(np.array([row])).streams["decoder"]
        (upos,) = CORPUS.select([row]).column("upos")
        with torch.no_grad():
            shares = model.module(stream.input_ids).logits[0].log_softmax(-1)
        for at, word in enumerate(stream.words[0].tolist()):
            if at > 0 and word >= 0 and upos[word] == "NOUN":
                losses.append(-float(shares[at - 1, stream.input_ids[0, at]]))
    nouns = Reader(model, CORPUS, max_length=64, seed=0, decoder=False, where=("upos", "NOUN"))
    scorer, total, count = SentenceScorer(nouns), 0.0, 0
    with torch.no_grad():
        for batch in scorer.batches(nouns.rows, 512):
            total, count = total + float(scorer.losses(batch).sum()), count + int(batch.counts.sum())
    assert count == len(losses)
    assert total == pytest.approx(sum(losses), rel=1e-4)
    lens = measure(model, CORPUS, [Lens(tuned=False, held_out=0.5)], PassOptions(where=("upos", "NOUN")))["lens"]
    assert 0 < lens["count"].max() < len(losses)
