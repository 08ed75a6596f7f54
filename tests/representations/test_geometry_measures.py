"""Measures of geometry on samples and batches, against the pure functions word by word and sentence by sentence."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr
from transformers import BertConfig, BertForMaskedLM, MarianConfig, MarianMTModel

from infoflow.corpus import Corpus, load_corpus, train_tokenizer
from infoflow.flow import Occurrences, PassOptions, SampleFacts, TokenSample, measure, measure_shard, merge_shards
from infoflow.foundation import UserError, block_of, replicate_weights
from infoflow.models import load_model
from infoflow.representations import (
    DistanceDistribution,
    IntraSentence,
    IntrinsicDimension,
    WordGeometry,
    average_similarity,
    intra_sentence_similarity,
    maximum_explainable_variance,
    self_similarity,
    two_nn_dimension,
)

POINT = 3  # the token that is punctuation


def make_sample(num=1500, width=6, num_states=2, seed=0, types=40, subwords=1, symbols=(POINT,), states=None):
    """Tokens by Zipf's law, each word cut into `subwords` tokens; words keep a part of their vector in every layer."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, types + 1)
    word = rng.choice(types, num, p=shares / shares.sum()).repeat(subwords)
    subword = np.tile(np.arange(subwords), num)
    total = num * subwords
    if states is None:
        vectors = rng.normal(size=(types, width))[word] + 0.3
        states = np.stack([vectors + layer * rng.normal(size=(total, width)) for layer in range(num_states)])
    sentence = np.arange(total) // (5 * subwords)
    nothing = np.zeros(total, dtype=np.int64)
    occurrences = Occurrences(
        sentence=sentence,
        row=sentence,
        position=np.arange(total) % (5 * subwords),
        token=word if subwords == 1 else word * subwords + subword,
        label=nothing,
        previous=nothing,
        next=nothing,
        word=np.arange(total) // subwords % 5,
        draw=nothing,
        subword=subword,
        subwords=nothing + subwords,
        word_type=word,
    )
    facts = SampleFacts(
        model="model",
        stack="encoder",
        regime="clean",
        task="masked-lm",
        seed=0,
        tokenizer="words",
        frequencies=np.ones(types * subwords, dtype=np.int64),
        ranks=np.arange(1, types * subwords + 1),
        symbols=tuple(symbols),
    )
    return TokenSample(occurrences, np.asarray(states, dtype=np.float32), facts)


def table(measure, sample) -> pd.DataFrame:
    return measure.table.conform(measure.compute(sample)).set_index(["measure", "space", "layer"]).sort_index()


def check_estimates(frame):
    """What every row promises that is not NaN (the variance of static embeddings)."""
    assert frame["value"].isna().sum() <= 4
    frame = frame.dropna(subset="value")
    assert (frame["low"] <= frame["value"] + 1e-12).all()
    assert (frame["value"] <= frame["high"] + 1e-12).all()
    np.testing.assert_allclose(frame["corrected"], frame["value"] - frame["baseline"], atol=1e-12)
    assert (frame["corrected_low"] <= frame["corrected"] + 1e-12).all()
    assert (frame["corrected"] <= frame["corrected_high"] + 1e-12).all()
    assert frame["replicates"].map(len).eq(200).all()


def spaces_of(x):
    centred = x - x.mean(0)
    return {"raw": x, "centred": centred, "standardised": centred / x.std(0)}


@pytest.mark.parametrize("words", ["mean", "token"])
def test_word_geometry_is_the_mean_of_the_pure_functions_over_words(words):
    sample = make_sample()
    frame = table(WordGeometry(words=words), sample)
    check_estimates(frame)
    token = sample.occurrences.token
    kept = token != POINT
    frequent = [t for t in np.unique(token[kept]) if (token == t).sum() >= 5]
    for layer in range(2):
        for space, x in spaces_of(sample.states(layer).astype(np.float64)[kept]).items():
            of_words = [x[token[kept] == t] for t in frequent]
            average = average_similarity(x)
            row = frame.loc["average_similarity", space, layer]
            assert row["value"] == pytest.approx(average, abs=1e-6)
            assert abs(row["baseline"]) < 0.01
            row = frame.loc["self_similarity", space, layer]
            assert row["value"] == pytest.approx(np.mean([self_similarity(w) for w in of_words]), abs=1e-6)
            assert row["baseline"] == frame.loc["average_similarity", space, layer]["value"]
            assert (row["types"], row["count"]) == (len(frequent), sum(map(len, of_words)))
            assert row["left_out"] == kept.sum() - row["count"]
            if space != "centred" and layer > 0:
                row = frame.loc["explainable_variance", space, layer]
                expected = np.mean([maximum_explainable_variance(w) for w in of_words])
                assert row["value"] == pytest.approx(expected, abs=1e-6)
                assert row["baseline"] == pytest.approx(maximum_explainable_variance(x), abs=1e-6)


def test_rank_space_is_spearmans_correlation():
    sample = make_sample(num=60, types=5, symbols=())
    frame = table(WordGeometry(spaces=("rank",)), sample)
    x, token = sample.states(1), sample.occurrences.token
    pairs = {(i, j): spearmanr(x[i], x[j])[0] for i in range(60) for j in range(i)}
    assert frame.loc["average_similarity", "rank", 1]["value"] == pytest.approx(np.mean(list(pairs.values())))
    words = [np.mean([r for (i, j), r in pairs.items() if token[i] == token[j] == t]) for t in range(5)]
    assert frame.loc["self_similarity", "rank", 1]["value"] == pytest.approx(np.mean(words))


def test_static_embeddings_are_similar_to_themselves_and_do_not_vary():
    frame = table(WordGeometry(), make_sample())
    assert frame.loc["self_similarity", "raw", 0]["value"] == pytest.approx(1)
    assert math.isnan(frame.loc["explainable_variance", "raw", 0]["value"])
    assert frame.loc["self_similarity", "raw", 1]["value"] < 0.8


def test_shuffled_words_are_as_similar_as_random_occurrences():
    frame = table(WordGeometry(), make_sample(num=8000))
    for layer in range(2):
        shuffled = frame.loc["shuffled_self_similarity", "raw", layer]
        assert abs(shuffled["corrected"]) < 0.03 < 0.2 < frame.loc["self_similarity", "raw", layer]["corrected"]
        assert shuffled["types"] == frame.loc["self_similarity", "raw", layer]["types"]


def test_few_random_occurrences_explain_more_variance_than_many():
    """So the published baseline of explainable variance is too low for rare words, and the shuffled row shows it."""
    noise = np.random.default_rng(0).normal(size=(1, 1500, 6))
    frame = table(WordGeometry(), make_sample(states=noise))
    row, shuffled = (frame.loc[f"{name}explainable_variance", "raw", 0] for name in ("", "shuffled_"))
    assert row["corrected_low"] > 0.05
    assert row["value"] == pytest.approx(shuffled["value"], abs=0.02)


def test_isotropic_space_has_neither_similarity_nor_rogue_dimensions():
    noise = np.random.default_rng(0).normal(size=(1, 1500, 64))
    frame = table(WordGeometry(), make_sample(states=noise))
    similarities = frame.loc[["average_similarity", "self_similarity"]]
    assert similarities["value"].abs().max() < 0.02
    assert math.isnan(frame.loc["rogue_dimensions", "raw", 0]["value"])


def test_a_common_offset_is_in_the_raw_space_and_a_large_dimension_in_the_centred_one():
    rng = np.random.default_rng(0)
    states = rng.normal(size=(1, 1500, 64))
    states[..., 7] += 60
    offset = table(WordGeometry(), make_sample(states=states))
    assert offset.loc["average_similarity", "raw", 0]["value"] > 0.9
    assert offset.loc["average_similarity", "centred", 0]["value"] == pytest.approx(0, abs=0.01)
    assert offset.loc["average_similarity", "rank", 0]["value"] < 0.1
    row = offset.loc["rogue_dimensions", "raw", 0]
    assert (row["value"], row["baseline"]) == (pytest.approx(1, abs=0.01), 3 / 64)


@pytest.mark.parametrize("words", ["mean", "first", "last"])
def test_words_are_merged_from_their_tokens(words):
    sample = make_sample(num=600, subwords=3, symbols=())
    frame = table(WordGeometry(words=words, spaces=("raw",)), sample)
    x = sample.states(1).astype(np.float64).reshape(600, 3, -1)
    merged = {"mean": x.mean(1), "first": x[:, 0], "last": x[:, -1]}[words]
    types = sample.occurrences.word_type[::3]
    expected = [self_similarity(merged[types == t]) for t in np.unique(types) if (types == t).sum() >= 5]
    assert frame.loc["self_similarity", "raw", 1]["value"] == pytest.approx(np.mean(expected), abs=1e-6)
    assert set(frame["words"]) == {words}


def test_a_word_is_punctuation_when_all_its_tokens_are():
    sample = make_sample(num=300, subwords=2, symbols=(0, 2, 3))  # one token of word 0; both of word 1
    frame = table(WordGeometry(spaces=("raw",)), sample)
    words = sample.occurrences.word_type[::2]
    assert frame.loc["average_similarity", "raw", 0]["count"] == (words != 1).sum()


def test_slow_tokenizers_have_tokens_for_words():
    sample = make_sample()
    slow = TokenSample(replace(sample.occurrences, word=np.full(1500, -1)), sample._states, sample.facts)
    found, tokens = table(WordGeometry(), slow), table(WordGeometry(words="token"), sample)
    pd.testing.assert_frame_equal(found, tokens)


def test_samples_without_frequent_words_have_anisotropy_only():
    frame = table(WordGeometry(least=2000), make_sample())
    assert set(frame.index.get_level_values("measure")) == {"average_similarity", "rogue_dimensions"}
    assert len(table(WordGeometry(), make_sample(num=1))) == 0
    assert len(DistanceDistribution().compute(make_sample(num=1))) == 0
    assert len(table(IntrinsicDimension(), make_sample(num=300).take(np.arange(0)))) == 0


def test_constant_and_zero_states_are_undefined_and_warn_nobody():
    for value in (0.0, 0.1):
        sample = make_sample(num=200, states=np.full((1, 200, 6), value))
        frame = table(WordGeometry(), sample)
        expected = 1.0 if value else math.nan
        assert frame.loc["self_similarity", "raw", 0]["value"] == pytest.approx(expected, nan_ok=True)
        assert math.isnan(frame.loc["self_similarity", "centred", 0]["value"])
        assert math.isnan(frame.loc["explainable_variance", "standardised", 0]["value"])
        assert math.isnan(table(IntrinsicDimension(), sample).loc["intrinsic_dimension", "raw", 0]["value"])
        shares = DistanceDistribution().compute(sample).groupby("metric")["share"].sum()
        assert shares["euclidean"] == 1
        assert shares["cosine"] == (1 if value else 0)


def test_fewer_occurrences_than_dimensions():
    rng = np.random.default_rng(0)
    sample = make_sample(num=100, states=rng.normal(size=(1, 100, 300)) + 1)
    frame = table(WordGeometry(), sample)
    assert frame.loc["average_similarity", "raw", 0]["value"] == pytest.approx(0.5, abs=0.05)
    assert 0 < frame.loc["explainable_variance", "raw", 0]["value"] < 1
    assert np.isfinite(table(IntrinsicDimension(), sample)["baseline"]).all()


def test_intrinsic_dimension_of_a_bent_sheet_is_two_and_of_its_gaussian_three():
    rng = np.random.default_rng(3)
    along, across = 3 * rng.random(1500), 3 * rng.random(1500)
    sheet = np.stack([np.cos(2 * along), np.sin(2 * along), across, 0 * across], axis=1)
    sample = make_sample(states=sheet[None])
    row = table(IntrinsicDimension(), sample).loc["intrinsic_dimension", "raw", 0]
    kept = sample.occurrences.token != POINT
    assert row["value"] == pytest.approx(two_nn_dimension(sample.states(0)[kept]), rel=1e-9)
    assert row["value"] == pytest.approx(2, abs=0.15)
    assert row["baseline"] == pytest.approx(3, abs=0.25)
    assert row["corrected_high"] < 0


def test_repeated_points_are_left_out_and_counted():
    row = table(IntrinsicDimension(), make_sample()).loc["intrinsic_dimension", "raw", 0]
    assert row["count"] == 39  # types but for the punctuation; layer 0 is static
    assert row["count"] + row["left_out"] == (make_sample().occurrences.token != POINT).sum()


def test_distances_are_those_of_all_pairs():
    sample = make_sample(num=300, num_states=2)
    frame = DistanceDistribution.table.conform(DistanceDistribution(pairs=200_000).compute(sample))
    x = sample.states(1)[sample.occurrences.token != POINT].astype(np.float64)
    units = x / np.linalg.norm(x, axis=1, keepdims=True)
    upper = np.triu_indices(len(x), 1)
    values = {"cosine": (units @ units.T)[upper], "euclidean": np.linalg.norm(x[:, None] - x[None], axis=2)[upper]}
    for metric, exact in values.items():
        rows = frame[(frame["metric"] == metric) & (frame["layer"] == 1)]
        assert rows["share"].sum() == pytest.approx(1)
        assert rows["baseline"].sum() == pytest.approx(1)
        assert (rows["bin_low"].iloc[1:].to_numpy() == rows["bin_high"].iloc[:-1].to_numpy()).all()
        expected = [((low <= exact) & (exact < high)).mean() for low, high in rows[["bin_low", "bin_high"]].to_numpy()]
        np.testing.assert_allclose(rows["share"], expected, atol=0.006)
    width = (rows["bin_high"] - rows["bin_low"]).unique()
    assert len(width) == 1
    assert math.log2(width[0]).is_integer()
    assert 32 <= len(rows) <= 65


def test_settings_name_their_mistakes():
    for make in (WordGeometry, IntraSentence, IntrinsicDimension, DistanceDistribution):
        with pytest.raises(UserError, match=r"words must be one of mean, first, last, token\. Got middle"):
            make(words="middle")
    with pytest.raises(UserError, match="least must be at least 2"):
        WordGeometry(least=1)
    with pytest.raises(UserError, match=r"spaces must be some of raw, .* Got polar"):
        WordGeometry(spaces=("raw", "polar"))
    with pytest.raises(UserError, match="Got none"):
        WordGeometry(spaces=())
    with pytest.raises(UserError, match='space must be "raw" or "rank"'):
        IntraSentence(space="centred")
    with pytest.raises(UserError, match="occurrences must be at least 3"):
        IntrinsicDimension(occurrences=2)
    with pytest.raises(UserError, match="pairs must be at least 1"):
        DistanceDistribution(pairs=0)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus("grammar:120")


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return train_tokenizer(list(corpus.column("text")), 60)  # so few that most words have several tokens


@pytest.fixture(scope="module")
def encoder(tokenizer):
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8
    )
    return load_model(BertForMaskedLM(config), tokenizer=tokenizer)


def sentences_of(model, corpus, words):
    """The states of every sentence's words, punctuation left out, in every layer, one sentence at a time."""
    found = []
    for sentence in corpus:
        encoded = model.tokenizer(sentence.words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            layers = model.module(**encoded, output_hidden_states=True).hidden_states
        lexical = [any(map(str.isalnum, word)) for word in sentence.words]
        ids = [-1 if word is None or not lexical[word] else word for word in encoded.word_ids()]
        at = np.array(ids)
        if words == "token":  # of a word with an apostrophe, the apostrophe too is left out
            tokens = model.tokenizer.convert_ids_to_tokens(encoded["input_ids"][0])
            at = np.where([any(map(str.isalnum, token)) for token in tokens], at, -1)
        choose = {"mean": lambda x: x.mean(0), "first": lambda x: x[0], "last": lambda x: x[-1]}
        found.append(
            [
                x[0][at >= 0]
                if words == "token"
                else torch.stack([choose[words](x[0][at == word]) for word in range(at.max() + 1)])
                for x in layers
            ]
        )
    return found


@pytest.mark.parametrize("words", ["mean", "first", "last", "token"])
def test_intra_sentence_similarity_is_the_mean_over_sentences(encoder, corpus, words):
    few = corpus.select(np.arange(40))
    frame = measure(encoder, few, [IntraSentence(words=words)], PassOptions(tokens_per_batch=100))["geometry"]
    check_estimates(frame)
    sentences = sentences_of(encoder, few, words)
    rows = frame[frame["measure"] == "intra_sentence_similarity"].set_index("layer")
    for layer in range(3):
        expected = np.mean([intra_sentence_similarity(sentence[layer]) for sentence in sentences])
        assert rows.loc[layer, "value"] == pytest.approx(expected, abs=1e-6)
        every = torch.cat([sentence[layer] for sentence in sentences])
        assert rows.loc[layer, "baseline"] == pytest.approx(average_similarity(every), abs=1e-6)
    assert (rows["count"] == 40).all()
    assert set(frame["words"]) == {words}


def test_intra_sentence_similarity_without_a_block(encoder, corpus):
    """The interval is the bootstrap's: its replicates follow from leaving blocks out, here by hand."""
    few = corpus.select(np.arange(40))
    frame = measure(encoder, few, [IntraSentence()])["geometry"]
    row = frame[(frame["measure"] == "intra_sentence_similarity") & (frame["layer"] == 1)].iloc[0]
    values = np.array([intra_sentence_similarity(sentence[1]) for sentence in sentences_of(encoder, few, "mean")])
    blocks = block_of(few.content_ids)
    without = np.array([values[blocks != block].mean() for block in range(64)])
    expected = values.mean() + (replicate_weights() - 1) @ (values.mean() - without)
    np.testing.assert_allclose(row["replicates"], expected, atol=1e-6)


def test_sentences_of_one_word_are_left_out_and_counted(encoder, corpus, tmp_path):
    lines = [sentence.text for sentence in corpus.select(np.arange(20))]
    (tmp_path / "short.txt").write_text("\n".join([*lines, "the", "a", "the"]))
    short = measure(encoder, Corpus.from_text(tmp_path / "short.txt"), [IntraSentence()])["geometry"]
    (tmp_path / "long.txt").write_text("\n".join(lines))
    long = measure(encoder, Corpus.from_text(tmp_path / "long.txt"), [IntraSentence()])["geometry"]
    of_sentences = short["measure"] == "intra_sentence_similarity"
    np.testing.assert_allclose(short.loc[of_sentences, "value"], long.loc[of_sentences, "value"], atol=1e-6)
    assert set(short["count"]) == set(long["count"]) == {20}
    assert set(short["left_out"]) == {3}
    assert set(long["left_out"]) == {0}
    (tmp_path / "words.txt").write_text("the\na")
    undefined = measure(encoder, Corpus.from_text(tmp_path / "words.txt"), [IntraSentence()])["geometry"]
    assert undefined["value"].isna().all()
    assert set(undefined["count"]) == {0}


def test_unrelated_sentences_are_as_similar_as_random_words_put_together(encoder, corpus):
    frame = measure(encoder, corpus, [IntraSentence()])["geometry"].set_index(["measure", "layer"])
    sentences = sentences_of(encoder, corpus, "mean")
    rng = np.random.default_rng(0)
    for layer in range(3):
        every = torch.cat([sentence[layer] for sentence in sentences])
        random = [every[rng.choice(len(every), len(s[layer]), replace=False)] for s in sentences for _ in range(3)]
        expected = np.mean([intra_sentence_similarity(x) for x in random])
        row = frame.loc["unrelated_intra_sentence_similarity", layer]
        assert row["value"] == pytest.approx(expected, abs=0.015)
        assert row["value"] > row["baseline"] + 0.1  # short sentences are similar whatever they say


def test_ranks_of_sentences(encoder, corpus):
    few = corpus.select(np.arange(10))
    frame = measure(encoder, few, [IntraSentence(space="rank")])["geometry"]
    row = frame[(frame["measure"] == "intra_sentence_similarity") & (frame["layer"] == 2)].iloc[0]
    ranked = [s[2].argsort(1).argsort(1) - 3.5 for s in sentences_of(encoder, few, "mean")]
    assert row["value"] == pytest.approx(np.mean([intra_sentence_similarity(x) for x in ranked]), abs=1e-6)
    assert row["space"] == "rank"


def test_batches_do_not_change_geometry(encoder, corpus):
    measures = [WordGeometry(), IntraSentence(), IntrinsicDimension(occurrences=500), DistanceDistribution()]
    found = [measure(encoder, corpus, measures, PassOptions(tokens_per_batch=size)) for size in (200, 5000)]
    for name, frame in found[0].items():
        other = found[1][name]
        assert frame[["layer"]].equals(other[["layer"]])
        value = "share" if name == "distance_distribution" else "value"
        np.testing.assert_allclose(frame[value], other[value], atol=1e-3 if value == "share" else 1e-5)


def test_shards_add_up(encoder, corpus, tmp_path):
    measures = [IntraSentence()]
    shards = [measure_shard(encoder, corpus, measures, shard, 2, tmp_path / str(shard)) for shard in range(2)]
    merged = merge_shards(encoder, corpus, measures, shards, tmp_path / "merged").tables["geometry"]
    alone = measure(encoder, corpus, measures)["geometry"]
    for column in ("value", "low", "high", "baseline", "corrected", "count"):
        np.testing.assert_allclose(merged[column], alone[column], atol=1e-9)


def test_decoders_have_a_geometry_too(tokenizer, corpus):
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=len(tokenizer), d_model=8, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.sep_token_id, decoder_start_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = load_model(MarianMTModel(config), tokenizer=tokenizer)
    measures = [WordGeometry(), IntraSentence(), IntrinsicDimension(occurrences=300), DistanceDistribution()]
    tables = measure(model, corpus, measures)
    for frame in tables.values():
        assert frame.groupby("stack")["layer"].max().to_dict() == {"encoder": 1, "decoder": 2}
    decoder = tables["geometry"][tables["geometry"]["stack"] == "decoder"]
    assert {"average_similarity", "self_similarity", "intra_sentence_similarity", "intrinsic_dimension"} <= set(
        decoder["measure"]
    )
    only = measure(model, corpus, measures, PassOptions(decoder_states=False))["geometry"]
    assert set(only["stack"]) == {"encoder"}
