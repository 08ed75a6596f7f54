"""Pairs of segments, instance for instance against a transcription of the published code, and their statistics."""

import numpy as np
import pytest

from infoflow.corpus import segment_pairs
from infoflow.foundation import UserError, stream


class Draws:
    """Python's `random.Random`, as far as the published code uses it, on a stream of ours."""

    def __init__(self, generator):
        self.random = generator.random
        self._generator = generator

    def randint(self, low, high):
        return int(self._generator.integers(low, high + 1))


def instances_of_document(all_documents, document_index, max_seq_length, short_seq_prob, rng, kind):
    """`create_instances_from_document` of google-research/bert (and, with `kind="order"`, of albert with
    `random_next_sentence=False`), on lists of tokens, without masking."""
    document = all_documents[document_index]
    max_num_tokens = max_seq_length - 3
    target_seq_length = max_num_tokens
    if rng.random() < short_seq_prob:
        target_seq_length = rng.randint(2, max_num_tokens)
    instances, current_chunk, current_length, i = [], [], 0, 0
    while i < len(document):
        segment = document[i]
        current_chunk.append(segment)
        current_length += len(segment)
        if i == len(document) - 1 or current_length >= target_seq_length:
            if current_chunk:
                a_end = 1
                if len(current_chunk) >= 2:
                    a_end = rng.randint(1, len(current_chunk) - 1)
                tokens_a = []
                for j in range(a_end):
                    tokens_a.extend(current_chunk[j])
                tokens_b = []
                if len(current_chunk) == 1 or (kind == "next" and rng.random() < 0.5):
                    is_random_next = True
                    target_b_length = target_seq_length - len(tokens_a)
                    for _ in range(10):
                        random_document_index = rng.randint(0, len(all_documents) - 1)
                        if random_document_index != document_index:
                            break
                    else:  # ours: never the same document
                        others = [n for n in range(len(all_documents)) if n != document_index]
                        random_document_index = others[rng.randint(0, len(others) - 1)]
                    random_document = all_documents[random_document_index]
                    random_start = rng.randint(0, len(random_document) - 1)
                    for j in range(random_start, len(random_document)):
                        tokens_b.extend(random_document[j])
                        if len(tokens_b) >= target_b_length:
                            break
                    num_unused_segments = len(current_chunk) - a_end
                    i -= num_unused_segments
                elif kind == "order" and rng.random() < 0.5:
                    is_random_next = True
                    for j in range(a_end, len(current_chunk)):
                        tokens_b.extend(current_chunk[j])
                    tokens_a, tokens_b = tokens_b, tokens_a
                else:
                    is_random_next = False
                    for j in range(a_end, len(current_chunk)):
                        tokens_b.extend(current_chunk[j])
                truncate_seq_pair(tokens_a, tokens_b, max_num_tokens, rng)
                instances.append((tokens_a, tokens_b, is_random_next))
            current_chunk, current_length = [], 0
        i += 1
    return instances


def truncate_seq_pair(tokens_a, tokens_b, max_num_tokens, rng):
    while True:
        total_length = len(tokens_a) + len(tokens_b)
        if total_length <= max_num_tokens:
            break
        trunc_tokens = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        assert len(trunc_tokens) >= 1
        if rng.random() < 0.5:
            del trunc_tokens[0]
        else:
            trunc_tokens.pop()


def corpus(num, sentences, lengths, seed=0):
    """Lengths, documents and ids of `num` documents of 1..`sentences` sentences."""
    draw = np.random.default_rng(seed)
    documents = np.repeat(np.arange(num) * 2, draw.integers(1, sentences + 1, size=num))
    return draw.integers(*lengths, size=len(documents)), documents, np.arange(len(documents)) + 5


def by_transcription(lengths, documents, ids, max_tokens, kind, seed, copies, short_share):
    ends = np.concatenate([[0], np.cumsum(lengths)])
    sentences = [list(range(ends[row], ends[row + 1])) for row in range(len(lengths))]
    texts = [[sentences[row] for row in np.flatnonzero(documents == number)] for number in np.unique(documents)]
    firsts = [int(ids[documents == number][0]) for number in np.unique(documents)]
    return [
        instance
        for copy in range(copies)
        for index, first in enumerate(firsts)
        for instance in instances_of_document(
            texts, index, max_tokens, short_share, Draws(stream("segment-pairs", seed, copy, first)), kind
        )
    ]


@pytest.mark.parametrize("kind", ["next", "order"])
@pytest.mark.parametrize(
    ("num", "sentences", "lengths", "max_tokens", "short_share"),
    [
        (40, 12, (1, 9), 24, 0.1),
        (40, 12, (1, 40), 24, 0.5),  # many sentences exceed the length
        (2, 30, (1, 4), 5, 1.0),
        (2, 200, (3, 9), 40, 0.0),  # ten draws of the same document come once in a thousand
        (60, 2, (5, 30), 64, 0.1),
    ],
)
def test_pairs_are_those_of_the_published_code(kind, num, sentences, lengths, max_tokens, short_share):
    for seed in range(4):
        data = corpus(num, sentences, lengths, seed)
        settings = {"kind": kind, "seed": seed, "copies": 3, "short_share": short_share}
        pairs = segment_pairs(*data, max_tokens, **settings, lone="random")
        expected = by_transcription(*data, max_tokens, **settings)
        found = [
            ([*range(*first)], [*range(*second)], negative)
            for first, second, negative in zip(
                pairs.first.tolist(), pairs.second.tolist(), pairs.negative.tolist(), strict=True
            )
        ]
        assert found == expected


def test_ten_draws_of_the_same_document_do_not_make_a_pair_of_it():
    """With two documents that happens to one random pair in 1024."""
    lengths, documents, ids = corpus(2, 400, (3, 9), seed=5)
    pairs = segment_pairs(lengths, documents, ids, 16, copies=60)
    of = np.repeat(documents, lengths)
    assert pairs.negative.sum() > 4000
    assert (of[pairs.first[:, 0]] != of[pairs.second[:, 0]])[pairs.negative].all()


def tokens(pairs):
    return (np.diff(pairs.first) + np.diff(pairs.second))[:, 0]


@pytest.fixture(scope="module")
def long_texts():
    return corpus(400, 80, (4, 30))


def test_properties_of_next_sentence_pairs(long_texts):
    lengths, documents, _ = long_texts
    pairs = segment_pairs(*long_texts, 64, copies=3)
    of = np.repeat(documents, lengths)
    same = of[pairs.first[:, 0]] == of[pairs.second[:, 0]]
    assert (same != pairs.negative).all()
    assert tokens(pairs).max() <= 61
    assert (np.diff(pairs.first) > 0).all()
    assert (np.diff(pairs.second) > 0).all()
    # A segment lies within one document, and a B that follows begins after A.
    for segment in (pairs.first, pairs.second):
        assert (of[segment[:, 0]] == of[segment[:, 1] - 1]).all()
    following = ~pairs.negative
    assert (pairs.second[following, 0] >= pairs.first[following, 1]).all()


def test_random_pairs_exceed_one_half_by_the_chunks_of_one_sentence(long_texts):
    """A chunk of one sentence is always random: P = ½ + P(one sentence) / 2."""
    pairs = segment_pairs(*long_texts, 64, copies=5)
    order = segment_pairs(*long_texts, 64, copies=5, kind="order", lone="random")
    assert 0.53 < pairs.negative.mean() < 0.62
    assert order.negative.mean() > 0.51
    swapped = segment_pairs(*long_texts, 64, copies=5, kind="order")
    error = 0.5 / np.sqrt(len(swapped))
    assert abs(swapped.negative.mean() - 0.5) < 4 * error
    assert len(swapped) < len(order)


def test_swapped_pairs_are_neighbours_in_the_other_order(long_texts):
    lengths, documents, _ = long_texts
    pairs = segment_pairs(*long_texts, 64, copies=2, kind="order")
    of = np.repeat(documents, lengths)
    assert (of[pairs.first[:, 0]] == of[pairs.second[:, 0]]).all()
    assert ((pairs.first[:, 0] > pairs.second[:, 0]) == pairs.negative).all()
    whole = tokens(pairs) < 61
    touching = np.where(
        pairs.negative, pairs.first[:, 0] == pairs.second[:, 1], pairs.second[:, 0] == pairs.first[:, 1]
    )
    assert touching[whole].all()


@pytest.mark.parametrize("short_share", [0.0, 0.1, 0.5])
def test_a_share_of_documents_is_cut_short(short_share):
    """One pair of each document is neither its last nor random, and shows the target."""
    lengths, documents = np.ones(600 * 200, dtype=np.int64), np.repeat(np.arange(600), 200)
    pairs = segment_pairs(
        lengths, documents, np.arange(len(lengths)), 103, kind="order", copies=4, short_share=short_share
    )
    first = np.unique(np.stack([pairs.copies, documents[pairs.sentence_ids]]), axis=1, return_index=True)[1]
    assert len(first) == 2400
    short = (tokens(pairs)[first] < 100).mean()
    expected = short_share * 98 / 99  # a drawn target may be the whole length
    assert abs(short - expected) <= 4 * np.sqrt(max(expected * (1 - expected), 1e-12) / 2400)


def test_a_copy_is_a_function_of_the_corpus_the_seed_and_its_number(long_texts):
    three, two = (segment_pairs(*long_texts, 64, copies=copies) for copies in (3, 2))
    for name in ("first", "second", "negative", "sentence_ids"):
        assert (getattr(three, name)[three.copies < 2] == getattr(two, name)).all()
    other = segment_pairs(*long_texts, 64, copies=2, seed=1)
    assert len(other) != len(two) or (other.first != two.first).any()
    assert len({(c, i) for c, i in zip(three.copies.tolist(), three.sentence_ids.tolist(), strict=True)}) == len(three)


def test_a_gap_in_a_document_is_no_running_text():
    lengths, documents = np.full(40, 3), np.zeros(40, dtype=np.int64)
    ids = np.array([*range(20), *range(30, 50)])
    pairs = segment_pairs(lengths, documents, ids, 24, kind="order", copies=20)
    middle = 20 * 3
    assert (((pairs.first < middle).any(1)) == ((pairs.second < middle).any(1))).all()
    two = np.array([*[0] * 40, *[1] * 40])
    pairs = segment_pairs(np.full(80, 3), two, np.array([*ids, *range(60, 100)]), 24, copies=20)
    half = 40 * 3
    assert ((pairs.first[:, 0] < half) != (pairs.second[:, 0] < half))[pairs.negative].all()


def test_sentences_without_tokens_are_passed_over():
    lengths, documents, _ = corpus(30, 9, (1, 9))
    wide = np.insert(lengths, range(0, len(lengths), 3), 0)
    of = np.insert(documents, range(0, len(documents), 3), documents[::3])
    pairs, holed = (
        segment_pairs(lengths, documents, np.arange(len(documents)), 20),
        segment_pairs(wide, of, np.arange(len(of)), 20),
    )
    assert (np.diff(holed.first) > 0).all()
    assert (np.diff(holed.second) > 0).all()
    assert abs(len(holed) / len(pairs) - 1) < 0.2


def test_pairs_of_a_large_corpus_are_kept(monkeypatch, long_texts, cache):
    monkeypatch.setattr("infoflow.corpus._segment_pairs._SMALL", 100)
    plain, kept = segment_pairs(*long_texts, 64, copies=1), segment_pairs(*long_texts, 64, copies=1, key="corpus")
    assert len(list((cache / "pairs").iterdir())) >= 1
    monkeypatch.setattr("infoflow.corpus._segment_pairs._Cutter.copy", None)
    again = segment_pairs(*long_texts, 64, copies=1, key="corpus")
    for name in ("first", "second", "negative", "copies", "sentence_ids"):
        assert (getattr(plain, name) == getattr(kept, name)).all()
        assert (getattr(plain, name) == getattr(again, name)).all()


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        ([0, 0, 0], {}, r"they need at least two\. Got one document"),
        ([0, 0, 0], {"kind": "order", "lone": "random"}, "Got one document"),
        ([0, 0, 1], {"max_tokens": 4}, r"at least 5 tokens.* Got 4"),
        ([0, 0, 1], {"copies": 0}, "copies must be at least 1"),
        ([0, 0, 1], {"short_share": 1.5}, "short_share in"),
        ([0, 1, 2], {"kind": "order"}, "No document has two sentences"),
    ],
)
def test_what_makes_no_pairs(documents, options, message):
    arguments = {"max_tokens": 10, **options}
    with pytest.raises(UserError, match=message):
        segment_pairs(np.array([2, 2, 2]), np.array(documents), np.arange(3), **arguments)


def test_one_document_has_an_order():
    pairs = segment_pairs(np.full(9, 2), np.zeros(9, dtype=np.int64), np.arange(9), 10, kind="order")
    assert len(pairs) > 9
