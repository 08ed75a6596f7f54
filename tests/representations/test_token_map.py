"""Maps of occurrences in every layer."""

import logging
from itertools import pairwise

import numpy as np
import pytest
import torch

from infoflow.corpus import load_corpus, train_tokenizer
from infoflow.flow import PassOptions, Reader, measure
from infoflow.foundation import UserError, make_display, stream, use_display
from infoflow.models import load_model, tap
from infoflow.objectives import Example, MaskedLM, Vocabulary
from infoflow.representations import TokenMap, layer_maps

POINTS = 60


def layers_of_groups(strengths=(0.0, 3.0, 3.0), seed=0):
    """Three groups of points, the farther apart the higher the layer."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(3), POINTS // 3)
    centres, noise = rng.normal(size=(3, 10)), rng.normal(size=(POINTS, 10))
    return [strength * centres[group] + noise for strength in strengths], group


def neighbours_of_own_group(points, group, k=5):
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    np.fill_diagonal(distances, np.inf)
    return (group[distances.argsort(axis=1)[:, :k]] == group[:, None]).mean()


@pytest.fixture(scope="module", params=["scikit-learn", "openTSNE"])
def library(request):
    """Both libraries where both are installed."""
    if request.param == "openTSNE":
        pytest.importorskip("openTSNE")
        yield
    else:
        patch = pytest.MonkeyPatch()
        patch.setattr("infoflow.representations._layer_maps.find_spec", lambda name: None)
        yield
        patch.undo()


def test_maps_show_the_groups_that_layers_have(library):
    states, group = layers_of_groups()
    bottom, middle, top = layer_maps(states, perplexity=10)
    assert neighbours_of_own_group(bottom, group) < 0.6
    assert neighbours_of_own_group(middle, group) == neighbours_of_own_group(top, group) == 1


def test_each_map_lies_on_the_one_below(library):
    states, _ = layers_of_groups()
    maps = layer_maps(states, perplexity=10)
    np.testing.assert_allclose(maps.mean(axis=1), 0, atol=1e-9)
    np.testing.assert_allclose(np.square(maps).sum(axis=2).mean(axis=1), 1)
    angles = np.linspace(0, 2 * np.pi, 37)
    turns = [
        np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) @ np.diag([1, s]) for a in angles for s in (1, -1)
    ]
    for below, above in pairwise(maps):
        distance = np.linalg.norm(above - below)
        assert all(distance <= np.linalg.norm(above @ turn - below) + 1e-9 for turn in turns)
    moved = np.linalg.norm(maps[2] - maps[1], axis=1).mean()  # two equal layers
    shuffled = np.linalg.norm(maps[2][::-1] - maps[1], axis=1).mean()
    assert moved < 0.4 * shuffled


def test_a_start_from_the_map_below_raises_no_warning(library, caplog):
    states, _ = layers_of_groups()
    layer_maps(states, perplexity=10)
    assert caplog.messages == []
    assert logging.getLogger("openTSNE.tsne").filters == []


def test_same_input_same_maps(library):
    states, _ = layers_of_groups()
    np.testing.assert_array_equal(layer_maps(states, perplexity=10), layer_maps(states, perplexity=10))


def test_equal_and_repeated_points_have_a_place(library):
    """As at layer 0 of a model without absolute positions, or where positions alone differ."""
    rng = np.random.default_rng(0)
    states = [np.ones((30, 4)), rng.normal(size=(5, 4)).repeat(6, axis=0), rng.normal(size=(30, 4))]
    assert np.isfinite(layer_maps(states)).all()


def test_few_points_lower_the_perplexity(library):
    assert layer_maps([torch.randn(4, 3, generator=torch.Generator().manual_seed(0))]).shape == (1, 4, 2)


@pytest.mark.parametrize("states", [[], [np.ones((3, 2))], [np.ones((5, 2)), np.ones((6, 2))]])
def test_layers_without_a_map_are_refused(states):
    with pytest.raises(UserError, match="layer_maps needs at least one layer, the same 4 or more points"):
        layer_maps(states)


# -- the measure ------------------------------------------------------------------------------------------------------


def reader_of(model, corpus, seed=0):
    return Reader(model, corpus, max_length=64, seed=seed, decoder=False)


@pytest.fixture(params=["masked-lm", "causal-lm", "translation"])
def reader(request, matched_models, parallel_corpus):
    return reader_of(matched_models[request.param], parallel_corpus)


def states_by_hand(reader, tokens, at):
    with torch.no_grad(), tap(reader.model, hidden=True) as seen:
        module = reader.model.module
        run = module.get_encoder() if len(reader.model.anatomy.stacks) > 1 else module
        run(torch.as_tensor(tokens, dtype=torch.long)[None])
    return np.stack([layer[0, at].numpy() for layer in seen.hidden[reader.source_stack]])


@pytest.fixture
def states(monkeypatch):
    """What is drawn, map by map: a matrix for each layer."""
    drawn = []

    def keep(layers, perplexity, seed):
        drawn.append(layers)
        return np.zeros((len(layers), len(layers[0]), 2))

    monkeypatch.setattr("infoflow.representations._token_map.layer_maps", keep)
    return drawn


def points_of(frame, name):
    return frame[(frame["map"] == name) & (frame["layer"] == 0)].sort_values("point")


def as_read(reader, row, hidden):
    """The tokens of a sentence, corrupted as in training where some are hidden."""
    clean = reader.sentence_rows(row, "clean", 0)[reader.source_stack].tokens.astype(np.int64)
    if not hidden:
        return clean, clean
    generator = stream("token-map", 0, int(reader.corpus.content_ids[row]))
    vocabulary = Vocabulary.from_tokenizer(reader.model.tokenizer)
    return clean, MaskedLM().corrupt(Example(texts=(clean,)), generator, vocabulary).input_ids


@pytest.mark.parametrize("tokens_per_batch", [30, 1000])
def test_states_are_those_of_each_sentence_alone(reader, states, tokens_per_batch):
    asked = TokenMap(tokens=("cat", "dog", "house"), by_position="the", points=120)
    frame = asked.run(reader, PassOptions(tokens_per_batch=tokens_per_batch))
    tokenizer = reader.model.tokenizer
    for name, layers in zip(("token", "position"), states, strict=True):
        hidden, points = name == "token" and reader.model.task == "masked-lm", points_of(frame, name)
        assert points["masked"].any() == hidden
        assert not points["masked"].all()
        assert len(points) == len(layers[0]) >= 12
        for index, point in enumerate(points.itertuples()):
            (row,) = np.flatnonzero(reader.corpus.ids == point.sentence)
            clean, noisy = as_read(reader, int(row), hidden)
            assert tokenizer.decode([int(clean[point.position])]).strip() == point.token
            assert noisy[point.position] == (tokenizer.mask_token_id if point.masked else clean[point.position])
            expected = states_by_hand(reader, noisy, point.position)
            np.testing.assert_allclose(np.stack([layer[index] for layer in layers]), expected, atol=2e-5)


def test_points_are_of_different_sentences_and_the_same_for_every_order(matched_models, parallel_corpus, states):
    asked, found = TokenMap(tokens=("cat", "dog", "house"), points=15), []
    turned = parallel_corpus.select(np.arange(len(parallel_corpus))[::-1])
    for corpus in (parallel_corpus, turned):
        frame = asked.run(reader_of(matched_models["causal-lm"], corpus), PassOptions())
        points = points_of(frame, "token")
        assert points["sentence"].is_unique
        assert (points["token"].value_counts() <= 5).all()
        texts = {sentence.id: sentence.text for sentence in corpus}  # two sentences of the corpus may have one text
        found.append(set(zip(points["sentence"].map(texts), points["position"], strict=True)))
    assert found[0] == found[1]


def test_the_table_follows_points_through_the_layers(reader):
    frame = TokenMap.table.conform(
        TokenMap(tokens=("cat", "dog", "house"), by_position="the", points=24).run(reader, PassOptions())
    )
    assert set(frame["map"]) == {"token", "position"}  # no tags here
    several = frame[frame["map"] == "token"]
    assert set(several["token"]) == {"cat", "dog", "house"}
    assert set(frame.loc[frame["map"] == "position", "token"]) == {"the"}
    assert frame["layer"].max() == 2
    fixed = ["token", "sentence", "position", "tag", "masked", "perplexity"]
    assert (frame.groupby(["map", "point"])[fixed].nunique() == 1).all(axis=None)
    assert (frame.groupby(["map", "point"])["layer"].nunique() == 3).all()
    assert several["perplexity"].iloc[0] == pytest.approx((several["point"].nunique() - 1) / 3)
    assert several["masked"].any() == (reader.model.task == "masked-lm")
    assert not frame.loc[frame["map"] == "position", "masked"].any()
    assert frame["stack"].eq(reader.source_stack).all()


@pytest.fixture(scope="module")
def grammar_model():
    from transformers import BertConfig, BertForMaskedLM

    corpus = load_corpus("grammar:300")
    tokenizer = train_tokenizer(corpus.column("text"), 300)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    return load_model(BertForMaskedLM(config), tokenizer=tokenizer), corpus


def test_a_corpus_without_the_named_tokens_shows_its_own(grammar_model):
    model, corpus = grammar_model
    frame = measure(model, corpus, [TokenMap(points=24, tokens=("ist", "sind"), by_position="es", by_tag="ist")])[
        "token_map"
    ]
    maps = dict(iter(frame.groupby("map")))
    assert set(maps["position"]["token"]) == {"the"}
    assert set(maps["token"]["token"]) == {"the", "a"}
    assert maps["token"]["token"].nunique() == 2
    tagged = maps["tag"].drop_duplicates("point")
    words = {sentence.id: sentence for sentence in corpus}
    assert tagged["tag"].nunique() > 1
    for point in tagged.itertuples():
        sentence = words[point.sentence]
        assert (point.token, point.tag) in set(zip(sentence.words, sentence.tags["ccg"], strict=True))


def test_a_piece_of_other_words_is_no_word(grammar_model):
    model, corpus = grammar_model
    words = {word for sentence in corpus for word in sentence.words}
    often = np.flatnonzero(reader_of(model, corpus).frequencies["encoder"] > 50)
    texts = {
        model.tokenizer.decode([int(token)]).strip() for token in often if token not in model.tokenizer.all_special_ids
    }
    pieces = sorted(texts - words)
    assert len(pieces) > 0
    frame = measure(model, corpus, [TokenMap(points=24, tokens=(*pieces, "the", "a", "xyz"))])["token_map"]
    assert set(frame.loc[frame["map"] == "token", "token"]) == {"the", "a"}


def test_rare_tokens_leave_no_map_and_a_note(matched_models, parallel_corpus):
    notes = []
    display = make_display("silent")
    display.note = notes.append
    few = reader_of(matched_models["causal-lm"], parallel_corpus.select(np.arange(5)))
    with use_display(display):
        assert len(TokenMap().run(few, PassOptions())) == 0
    assert "token_map of" in notes[-1]
    assert "no token occurs 12 times" in notes[-1]
