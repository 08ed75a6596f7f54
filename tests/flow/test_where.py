"""Statistics of the tokens with one tag: together they are those of all tokens."""

import numpy as np
import pytest
import torch
from support.tiny_heads import llama, trees

from infoflow.cli import run
from infoflow.flow import PassOptions, Reader, measure, measure_of, select_occurrences
from infoflow.foundation import UserError
from infoflow.heads import (
    AttentionByDistance,
    Confidence,
    Entropy,
    HeadDistance,
    PositionalScores,
    RareTokenScores,
    RelationScores,
    Relevance,
    SentenceScorer,
    SurfaceStatistics,
)
from infoflow.lenses import Lens
from infoflow.neurons import Neurons
from infoflow.over_training import LossByPosition
from infoflow.representations import IntraSentence, MutualInformation, TokenMap, WordNeighbours
from infoflow.sinks import AttentionSinks

CORPUS = trees(40)
KEYS = ["stack", "kind", "layer", "head"]


@pytest.fixture(scope="module")
def model():
    return llama(CORPUS)


def tables(model, where=None):
    measures = [Confidence(), Entropy(), PositionalScores(), AttentionByDistance(exclude_queries=("special",))]
    measures += [SurfaceStatistics(exclude_queries=("special",)), RareTokenScores(top=2)]
    own = measure_of(lambda states: states[..., 0], name="first", unit="", description="The first number of a state.")
    measures += [HeadDistance(special=False), RelationScores(minimum=1)]
    found = measure(model, CORPUS, [*measures, own], options=PassOptions(where=where))
    found["head_relations"] = found["head_relations"].drop(columns="offset")  # the best one, which depends on the tag
    found["head_distance"] = found["head_distance"].rename(columns={"distance": "value"})
    keys = (*KEYS, "layer_a", "head_a", "layer_b", "head_b", "relation", "direction", "convention")
    keys += ("offset", "to", "nearest", "statistic", "target")
    return {n: frame.set_index([one for one in keys if one in frame]) for n, frame in found.items()}


OF_THE_VALUE_ONLY = ("first", "head_distance", "head_relations")  # no control, or one that is chosen on the tokens


def test_the_parts_of_a_tag_add_up_to_the_whole(model):
    whole = tables(model)
    tags = sorted({tag for tags in CORPUS.column("upos") for tag in tags})
    parts = [tables(model, ("upos", tag)) for tag in tags]
    for name, frame in whole.items():
        own = [part[name].reindex(frame.index) for part in parts]
        counts = sum(part["count"].fillna(0) for part in own)
        for column in ("value",) if name in OF_THE_VALUE_ONLY else ("value", "baseline"):
            total = sum((part[column] * part["count"]).fillna(0) for part in own)
            np.testing.assert_allclose(total / counts, frame[column], rtol=1e-6, atol=1e-7)
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
    of_nouns = PassOptions(where=("upos", "NOUN"), max_length=64)
    by_position = measure(model, CORPUS, [LossByPosition()], of_nouns)["loss_by_position"]
    assert by_position["count"].sum() == len(losses)
    assert (by_position["value"] * by_position["count"]).sum() == pytest.approx(sum(losses), rel=1e-4)
    lens = measure(model, CORPUS, [Lens(tuned=False, held_out=0.5)], PassOptions(where=("upos", "NOUN")))["lens"]
    assert 0 < lens["count"].max() < len(losses)


def test_tables_of_single_words_and_neurons_read_words_with_the_tag_alone(model):
    words = [WordNeighbours(words=5, occurrences=2, least=2, k=2, pool=50), TokenMap(points=20, perplexity=2)]
    found = measure(model, CORPUS, [*words, Neurons()], PassOptions(where=("upos", "DET")))
    determiners = {
        word
        for words, tags in zip(CORPUS.column("words"), CORPUS.column("upos"), strict=True)
        for word, tag in zip(words, tags, strict=True)
        if tag == "DET"
    }
    assert set(found["word_neighbours"]["word"]) <= determiners
    assert set(found["word_neighbours"].query("layer > 0")["neighbour"]) <= determiners
    assert set(found["token_map"]["token"]) <= determiners
    assert set(found["token_map"].query("map == 'tag'")["tag"]) == {"NP/N"}  # the category of a determiner
    every = measure(model, CORPUS, [Neurons()])["neurons_by_layer"]
    assert 0 < found["neurons_by_layer"]["count"].max() < every["count"].max()


def test_information_of_words_with_the_tag_alone():
    corpus = trees(400)
    large = llama(corpus)
    measures = [MutualInformation(clusters=4, occurrences=10**6)]
    whole, verbs = (
        measure(large, corpus, measures, PassOptions(where=where))["mutual_information"]
        for where in (None, ("upos", "VERB"))
    )
    share = verbs["count"].max() / whole["count"].max()
    tags = [tag for tags in corpus.column("upos") for tag in tags]
    assert share == pytest.approx(tags.count("VERB") / len(tags), abs=0.08)


def test_queries_and_predictions_with_the_tag_alone():
    """Where special tokens count as well, against a loop over the tokens with the tag."""
    model, where = llama(CORPUS), ("upos", "NOUN")
    model.module.set_attn_implementation("eager")
    found = measure(model, CORPUS, [AttentionSinks(), Relevance(sentences=5)], PassOptions(where=where))
    reader, shares, queries = Reader(model, CORPUS, max_length=512, seed=0, decoder=False, where=where), [], 0
    for row in reader.rows.tolist():
        stream = reader.padded(np.array([row])).streams["decoder"]
        nouns = torch.from_numpy(np.flatnonzero(stream.counted[0] & (stream.position[0] > 0)))
        queries += len(nouns)
        with torch.no_grad():
            weights = model.module(stream.input_ids, output_attentions=True).attentions[0][0]
        shares.append(weights[:, nouns, 0].double().sum(1))
    sink = found["attention_sink"].query("statistic == 'share' and token == 'first' and layer == 0")
    assert sink["count"].eq(queries).all()
    assert sink["value"].to_numpy() == pytest.approx((sum(shares) / queries).numpy(), rel=1e-4)
    relevant = found["head_relevance"]
    assert relevant["count"].nunique() == 1
    assert relevant.groupby("layer")["value"].sum().to_numpy() == pytest.approx(1)
    every = measure(model, CORPUS, [Relevance(sentences=5)])["head_relevance"]
    assert relevant["count"].max() < every["count"].max()
    assert not np.allclose(relevant["value"], every["value"])


def test_words_with_the_tag_take_the_place_of_the_sentence(model):
    """The similarity of each noun to the mean of its sentence's nouns, against a loop."""
    options = PassOptions(where=("upos", "NOUN"))
    found = measure(model, CORPUS, [IntraSentence(words="token")], options)["geometry"]
    found = found.query("layer == 0 and measure == 'intra_sentence_similarity'").iloc[0]
    reader, similar = Reader(model, CORPUS, max_length=512, seed=0, decoder=False, where=options.where), []
    matrix = model.module.get_input_embeddings().weight.detach().double()
    for row in reader.rows.tolist():
        stream = reader.padded(np.array([row])).streams["decoder"]
        tokens = stream.input_ids[stream.counted]
        states = matrix[tokens[~torch.isin(tokens, torch.tensor(reader.symbols("decoder")))]]
        if len(states) > 1:
            similar.append(float(torch.cosine_similarity(states, states.mean(0, keepdim=True)).mean()))
    assert found["count"] == len(similar)
    assert found["value"] == pytest.approx(np.mean(similar), rel=1e-6)


NOT_BY_TOKEN = {
    "weights": ("head_composition", "head_weights"),
    "texts that it makes itself": ("head_patterns", "head_retrieval", "in_context_learning", "ngram_agreement"),
    "whole sentences": ("encoder_context", "head_examples", "head_probe", "layer_spectrum", "massive_activation"),
    "translations": ("detached_translation", "source_contribution", "translation_stages"),
}
"""Tables that cannot be restricted to words with a tag, by what they read."""


def test_every_other_table_can_be_restricted(tmp_path, capsys):
    def analyzed(only: str) -> str:
        where = ["--corpus", "grammar:3", "--where", "upos=NOUN", "--out", str(tmp_path / "run")]
        assert run(["analyze", "no-such-model", "--only", only, *where]) == 2
        return " ".join(capsys.readouterr().err.split())

    known = analyzed("no_table").split("Choose among: ")[1].split(".")[0].split(", ")
    others = {name for names in NOT_BY_TOKEN.values() for name in names}
    assert others < set(known)
    left_out = analyzed(",".join(known)).split("one by one: ")[1].split(".")[0].split(", ")
    assert set(left_out) & set(known) - {"given_scores"} == others
    refused = analyzed(",".join(sorted(others)))
    assert f"one by one. Got {', '.join(name for name in left_out if name in others)}. Leave out --where" in refused
    assert "There is no folder" not in refused  # the model has not been looked for
