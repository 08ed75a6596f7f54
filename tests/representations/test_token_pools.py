"""The measures of neighbours within tokens."""

import numpy as np
import pandas as pd
import pytest

from infoflow.flow import NO_LABEL, Occurrences, RankStrata, SampleFacts, Tag, TokenSample
from infoflow.foundation import current_display, make_display, use_display
from infoflow.representations import (
    ContextNeighbours,
    PositionNeighbours,
    TagNeighbours,
    position_distance,
    within_token_agreement,
)

ALL = (PositionNeighbours, ContextNeighbours, TagNeighbours)


def make_sample(num=900, layers=3, tags=True, seed=0):
    """Three tokens; upper layers keep less of the position and more of the tag."""
    rng = np.random.default_rng(seed)
    token, tag = rng.choice(3, num, p=[0.6, 0.3, 0.1]) + 5, rng.integers(0, 3, num)
    position, previous, following = rng.integers(0, 8, num), rng.integers(-1, 6, num), rng.integers(-1, 3, num)
    noise = rng.normal(size=(layers, num, 4))
    signal = np.stack([position / 8, tag, previous, following], axis=1)
    share = np.stack([[1 - layer / 4, layer / 2, 0.3, 0.1 * layer] for layer in range(layers)])
    states = (noise + 2 * share[:, None] * signal).astype(np.float32)
    nothing, subwords = np.zeros(num, dtype=np.int64), rng.integers(1, 3, num)
    columns = dict.fromkeys(Occurrences.__dataclass_fields__, nothing)
    columns |= {"sentence": np.arange(num) // 2, "row": np.arange(num) // 2, "token": token, "position": position}
    columns |= {"label": nothing + NO_LABEL, "previous": previous, "next": following}
    columns |= {"subwords": subwords, "subword": rng.integers(0, 2, num) % subwords}
    facts = SampleFacts(
        model="model",
        stack="encoder",
        regime="clean",
        task="masked-lm",
        seed=0,
        tokenizer="words",
        frequencies=np.bincount(token),
        ranks=np.array([0, 0, 0, 0, 0, 1, 2, 3]),
    )
    named = {"upos": Tag(codes=np.where(rng.random(num) < 0.2, -1, tag), names=("NOUN", "VERB", "X"))} if tags else {}
    return TokenSample(Occurrences(**columns), states, facts, tags=named)


def table(measure, sample):
    frame = measure.table.conform(measure.compute(sample))
    assert (frame["low"] <= frame["value"]).all()
    assert (frame["value"] <= frame["high"]).all()
    assert frame["replicates"].map(len).eq(200).all()
    return frame


def test_position_is_the_functions():
    sample = make_sample()
    frame = table(PositionNeighbours(k=10), sample)
    at = sample.occurrences
    expected = [position_distance(sample.states(i), at.token, at.position, k=10) for i in range(3)]
    np.testing.assert_allclose(frame["value"], expected, atol=1e-12)
    assert frame["value"].is_monotonic_increasing
    by_token = [
        np.abs(own[:, None] - own)[~np.eye(len(own), dtype=bool)].mean()
        for own in (at.position[at.token == token] for token in (5, 6, 7))
    ]
    np.testing.assert_allclose(frame["baseline"], np.mean(by_token))
    assert frame["count"].eq(900).all()
    assert frame["pools"].eq(3).all()


@pytest.mark.parametrize(("side", "column"), [("left", "previous"), ("right", "next")])
def test_context_leaves_out_the_edges_of_sentences(side, column):
    sample = make_sample()
    frame = table(ContextNeighbours(k=10), sample)
    rows = frame[frame["side"] == side].reset_index(drop=True)
    labels = getattr(sample.occurrences, column)
    inside = labels >= 0
    tokens = sample.occurrences.token[inside]
    expected = [within_token_agreement(sample.states(i)[inside], tokens, labels[inside], k=10) for i in range(3)]
    np.testing.assert_allclose(rows["value"], expected, atol=1e-12)
    assert rows["count"].eq(inside.sum()).all()


@pytest.mark.parametrize("subword", ["first", "last"])
def test_tags_are_looked_up_on_the_token_that_carries_them(subword):
    sample = make_sample()
    frame = table(TagNeighbours(k=10, subword=subword), sample)
    at, codes = sample.occurrences, sample.tags["upos"].codes
    carries = (at.subword == (0 if subword == "first" else at.subwords - 1)) & (codes >= 0)
    expected = [
        within_token_agreement(sample.states(i)[carries], at.token[carries], codes[carries], k=10) for i in range(3)
    ]
    np.testing.assert_allclose(frame["value"], expected, atol=1e-12)
    assert frame["tag"].eq("upos").all()
    assert frame["subword"].eq(subword).all()
    assert frame["value"].is_monotonic_increasing
    shares = [np.bincount(codes[carries & (at.token == t)]) for t in (5, 6, 7)]
    chance = np.mean([(n * (n - 1)).sum() / (n.sum() * (n.sum() - 1)) for n in shares])
    np.testing.assert_allclose(frame["baseline"], chance)


def test_noise_is_at_chance():
    sample = make_sample(num=3000)
    noise = TokenSample(
        sample.occurrences,
        np.random.default_rng(1).normal(size=(1, 3000, 4)).astype(np.float32),
        sample.facts,
        tags=sample.tags,
    )
    for frame in (table(measure(k=20), noise) for measure in ALL):
        assert (frame["low"] - 0.01 < frame["baseline"]).all()
        assert (frame["baseline"] < frame["high"] + 0.01).all()
        np.testing.assert_allclose(frame["value"], frame["baseline"], rtol=0.04)


def test_equal_settings_ask_for_equal_samples():
    requests = {measure().request for measure in ALL}
    assert len(requests) == 1
    assert requests.pop().strata == RankStrata.of_types(50, 500)


@pytest.mark.parametrize("measure", ALL)
def test_rare_tokens_alone_give_an_empty_table_and_a_note(measure):
    notes = []
    display = make_display("silent")
    display.note = notes.append
    with use_display(display):
        frame = measure(k=50).compute(make_sample(num=60))
    assert len(frame) == 0
    assert "no token has 101 sampled occurrences that differ in " in notes[0]
    assert current_display() is not display


def test_fewer_occurrences_than_neighbours_are_at_chance():
    frame = table(PositionNeighbours(k=50, few="cap"), make_sample(num=60))
    np.testing.assert_allclose(frame["value"], frame["baseline"])


def test_a_token_with_one_tag_is_left_out():
    """It would be at chance, 1, in every layer."""
    sample = make_sample()
    codes = np.where(sample.occurrences.token == 5, np.minimum(sample.tags["upos"].codes, 0), sample.tags["upos"].codes)
    uniform = TokenSample(
        sample.occurrences,
        np.stack([sample.states(layer) for layer in range(3)]),
        sample.facts,
        tags={"upos": Tag(codes=codes, names=("NOUN", "VERB", "X"))},
    )
    frame = table(TagNeighbours(k=10), uniform)
    assert frame["pools"].eq(2).all()
    rest = sample.take(sample.occurrences.token != 5)
    pd.testing.assert_frame_equal(frame, table(TagNeighbours(k=10), rest))


def test_without_tags_there_is_nothing_to_say():
    frame = TagNeighbours(k=10).compute(make_sample(tags=False))
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == 0
