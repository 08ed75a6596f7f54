"""BART's noises, against fairseq's `DenoisingDataset` written out token by token."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.zoo import (
    FULL_STOP,
    MASK,
    ORDINARY,
    PIECES,
    check_pure,
    corrupted,
    distinct,
    framed,
    mixed,
    same_distribution,
)
from scipy.stats import chisquare

from infoflow.objectives import Bart, Example

NOTHING = {"permute": 0.0, "mask": 0.0, "rotate": 0.0}
PIECED = framed(10, 60, 61, 11, 12, 62, 13, 14, 63, 15, 16)


def source(one) -> list[int]:
    return one.input_ids[1:-1].tolist()


def cut_lengths(budget: int, mean: float, generator: np.random.Generator) -> list[int]:
    """Span lengths in words until the budget is reached, the last one cut."""
    found: list[int] = []
    while sum(found) < budget:
        found.append(min(int(generator.poisson(mean)), budget - sum(found)))
    return found


def hidden(text: list[int], objective: Bart, generator: np.random.Generator) -> list[int]:
    """`add_whole_word_mask` of fairseq: spans walk on, token by token, until their words are used up."""
    starts = [place == 0 or token not in PIECES for place, token in enumerate(text)]
    budget = math.ceil(sum(starts) * objective.mask)
    lengths = cut_lengths(budget, objective.spans, generator) if objective.spans else [1] * budget
    empty = lengths.count(0)
    lengths = [length for length in lengths if length]
    heads = generator.permutation([place for place, start in enumerate(starts) if start]).tolist()[: len(lengths)]
    marks, gone = list(text), set()
    for head in heads:
        marks[head] = MASK
        if objective.leaves == "none":
            gone.add(head)
    for head, length in zip(heads, lengths, strict=True):
        place, words_left = head + 1, length - 1
        while place < len(text):
            words_left -= starts[place]
            if words_left < 0:
                break
            marks[place] = MASK
            if objective.leaves != "token":
                gone.add(place)
            place += 1
    found = [token for place, token in enumerate(marks) if place not in gone]
    if objective.leaves == "none":
        return found
    for _ in range(empty):
        found.insert(int(generator.integers(len(found) + 1)), MASK)
    return found


@pytest.mark.parametrize(
    ("leaves", "mask", "spans"),
    [("span", 0.3, 3.0), ("span", 0.3, 0.0), ("token", 0.3, 3.0), ("token", 0.5, 1.0), ("none", 0.5, 1.0)],
)
def test_hidden_words_are_distributed_as_in_fairseq(leaves, mask, spans) -> None:
    objective = Bart(permute=0.0, mask=mask, spans=spans, leaves=leaves, random_share=0.0)
    text = PIECED[1:-1].tolist()
    same_distribution(
        objective,
        PIECED,
        lambda generator: tuple(hidden(text, objective, generator)),
        lambda one: tuple(source(one)),
        times=2000,
    )


@settings(deadline=None, max_examples=80)
@given(
    st.integers(0, 80),
    st.integers(0, 10**6),
    st.sampled_from(["span", "token", "none"]),
    st.sampled_from([0.0, 3.5]),
    st.booleans(),
)
def test_the_target_is_the_clean_text_and_what_is_left_was_in_it(length, seed, leaves, spans, everything) -> None:
    tokens = mixed(length, seed)
    more = {"insert": 0.1, "rotate": 1.0} if everything else {"permute": 0.0}
    objective = Bart(leaves=leaves, spans=spans, **more)
    result = check_pure(objective, Example(texts=(tokens,)), seed)
    assert result.labels.tolist() == tokens[1:].tolist()
    assert result["decoder_input_ids"].tolist() == tokens[:-1].tolist()
    assert (result.input_ids[0], result.input_ids[-1]) == (2, 3)
    assert not result.selected[[0, -1]].any()
    left = result.input_ids[~result.selected][1:-1].tolist()
    if everything:
        pool = tokens[1:-1].tolist()
        for token in left:
            pool.remove(token)
    else:
        remaining = iter(tokens[1:-1].tolist())
        assert all(token in remaining for token in left)  # in its order
        num_words, num_left = (sum(token not in PIECES for token in some) for some in (tokens[1:-1].tolist(), left))
        assert num_words - num_left <= math.ceil(0.3 * (num_words + 1))  # a text may begin within a word


def test_coverage_is_at_most_the_ratio_and_less_where_spans_meet() -> None:
    covered = []
    for one in corrupted(Bart(permute=0.0, leaves="token"), distinct(50), 300):
        left = set(source(one)) - {MASK}
        covered.append(50 - len(left & set(distinct(50).tolist())))
    assert max(covered) <= math.ceil(0.3 * 50)
    assert 0.2 * 50 < np.mean(covered) < 0.3 * 50


def test_a_tenth_of_spans_is_random_and_whole_words_share_their_fate() -> None:
    shown = []
    for one in corrupted(Bart(permute=0.0, mask=0.2, spans=0.0), distinct(10), 2500):
        shown += one.input_ids[one.selected].tolist()
    random = [token for token in shown if token != MASK]
    assert len(shown) == 2500 * 2
    assert set(random) <= set(ORDINARY)
    assert chisquare([len(random), len(shown) - len(random)], [500, 4500]).pvalue > 1e-3
    # fairseq: where every token leaves a mask, the tokens of a random span are all random.
    whole = framed(10, 60, 61, 62)
    for one in corrupted(Bart(permute=0.0, mask=1.0, spans=0.0, leaves="token"), whole, 200):
        assert len({token == MASK for token in source(one)}) == 1


SENTENCES = [[10, 11, FULL_STOP], [12, FULL_STOP], [13, 14, 15, FULL_STOP], [16, 17]]


def in_sentences(text: list[int]) -> list[list[int]]:
    known = {tuple(sentence) for sentence in SENTENCES}
    found, current = [], []
    for token in text:
        current.append(token)
        if tuple(current) in known:
            found.append(current)
            current = []
    assert current == []
    return found


@pytest.mark.parametrize("share", [1.0, 0.5, 0.3])
def test_permutation_keeps_sentences_whole_and_moves_as_many_as_told(share) -> None:
    text = framed(*[token for sentence in SENTENCES for token in sentence])
    objective = Bart(**{**NOTHING, "permute": share})

    def explicit(generator: np.random.Generator) -> tuple[int, ...]:
        num = math.ceil(share * 4)
        places = generator.permutation(4)[:num].tolist()
        order = [0, 1, 2, 3]
        for place, other in zip(places, generator.permutation(places).tolist(), strict=True):
            order[place] = other
        return tuple(order)

    def outcome(one) -> tuple[int, ...]:
        return tuple(SENTENCES.index(sentence) for sentence in in_sentences(source(one)))

    same_distribution(objective, text, explicit, outcome)


def test_sentences_of_a_window_are_known_without_full_stops() -> None:
    text, marks = distinct(6), np.zeros(8, dtype=bool)
    marks[[1, 4]] = True
    seen = {
        tuple(source(one)) for one in corrupted(Bart(**{**NOTHING, "permute": 1.0}), text, 50, sentence_starts=marks)
    }
    assert seen == {(10, 11, 12, 13, 14, 15), (13, 14, 15, 10, 11, 12)}


def test_rotation_begins_at_each_token_equally_often() -> None:
    """fairseq: an offset of 1 to L - 2, counted from [CLS]; the first of them turns nothing."""
    starts = np.zeros(8)
    for one in corrupted(Bart(**{**NOTHING, "rotate": 1.0}), distinct(8), 2000):
        text = source(one)
        starts[text[0] - 10] += 1
        assert text == [10 + (text[0] - 10 + n) % 8 for n in range(8)]
        assert (one.input_ids[0], one.input_ids[-1]) == (2, 3)
    assert chisquare(starts).pvalue > 1e-3
    turned = [source(one)[0] != 10 for one in corrupted(Bart(**{**NOTHING, "rotate": 0.5}), distinct(8), 2000)]
    assert np.mean(turned) == pytest.approx(0.5 * 7 / 8, abs=0.04)


def test_insertion_puts_in_masks_anywhere() -> None:
    places = np.zeros(12)
    for one in corrupted(Bart(**NOTHING, insert=0.15), distinct(10), 3000):
        text = source(one)
        assert [token for token in text if token != MASK] == list(range(10, 20))
        assert text.count(MASK) == 2  # ceil(.15 · 10)
        places[np.flatnonzero(np.array(text) == MASK)] += 1
    assert chisquare(places).pvalue > 1e-3


def test_noises_apply_in_their_order() -> None:
    """Rotation comes last: it tears sentences that the permutation kept, and moves masks that were put in before."""
    text = framed(*[token for sentence in SENTENCES for token in sentence])
    torn = masks_first = 0
    for one in corrupted(Bart(permute=1.0, mask=0.0, insert=0.1, rotate=1.0), text, 300):
        shown = source(one)
        assert shown.count(MASK) == 2
        masks_first += shown[0] == MASK
        clean = [token for token in shown if token != MASK]
        turns = [clean[k:] + clean[:k] for k in range(len(clean))]
        whole = [turn for turn in turns if _is_whole(turn)]
        assert whole  # turned back, the sentences are whole
        torn += not _is_whole(clean)
    assert torn > 0
    assert masks_first > 0


def _is_whole(text: list[int]) -> bool:
    return all(any(text[k : k + len(one)] == one for k in range(len(text))) for one in SENTENCES)


def test_without_noise_nothing_changes() -> None:
    (one,) = corrupted(Bart(**NOTHING), mixed(40), 1)
    assert np.array_equal(one.input_ids, mixed(40))
    assert not one.selected.any()
