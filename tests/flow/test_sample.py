"""The token sample: strata by frequency, tags, words of several tokens, ranks from another corpus."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from transformers import BertConfig, BertForMaskedLM

from infoflow.corpus import Corpus, load_corpus, tag_columns, train_tokenizer
from infoflow.flow import (
    Intervention,
    PassOptions,
    RankStrata,
    Reader,
    SampleMeasure,
    SampleRequest,
    TokenSample,
    collect,
    measure,
)
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.results import Column, TableSchema


def _table(name: str) -> TableSchema:
    return TableSchema(
        name=name,
        version=1,
        description="what was seen",
        columns=(Column(name="count", dtype="int64", unit="tokens", description="tokens seen"),),
    )


class Seen(SampleMeasure):
    """Keeps the sample it was served."""

    table: ClassVar[TableSchema] = _table("seen")

    def __init__(self, request: SampleRequest, out: list[TokenSample]) -> None:
        self.request, self._out = request, out

    def __deepcopy__(self, memo: dict) -> "Seen":
        return self

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        self._out.append(sample)
        return pd.DataFrame([{"count": len(sample)}])


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus("grammar:400")


@pytest.fixture(scope="module")
def model(corpus):
    tokenizer = train_tokenizer(corpus.column("text"), 60)  # so few that most words have several tokens
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    return load_model(BertForMaskedLM(config), tokenizer=tokenizer)


def served(model, corpus, folder: Path, *requests: SampleRequest, options=None, ranks_from=None) -> list[TokenSample]:
    out: list[TokenSample] = []
    collect(model, corpus, [Seen(request, out) for request in requests], folder, options, ranks_from)
    return out


def tokens_of(model, corpus) -> list[tuple[int, int, int]]:
    """(sentence, position, token) of every token, read one sentence at a time."""
    found = []
    for sentence in corpus:
        ids = model.tokenizer(sentence.words, is_split_into_words=True)["input_ids"]
        found += [
            (sentence.id, at, token) for at, token in enumerate(ids) if token not in model.tokenizer.all_special_ids
        ]
    return found


def test_strata_hold_the_lowest_hashes_of_each_bin(model, corpus, tmp_path) -> None:
    edges = (1, 4, 10, 40)
    random, whole, binned = served(
        model,
        corpus,
        tmp_path,
        SampleRequest(occurrences=50),
        SampleRequest(occurrences=10**6),
        SampleRequest(strata=RankStrata(edges=edges, per_bin=30)),
    )
    counts = Counter(token for _, _, token in tokens_of(model, corpus))
    by_count = sorted(counts, key=lambda token: (-counts[token], token))
    rank = {token: index for index, token in enumerate(by_count, start=1)}
    assert len(random) == 50
    assert len(whole) == sum(counts.values())
    expected: list[tuple[int, int]] = []
    at = whole.occurrences  # in sampling order
    for low, high in pairwise(edges):
        inside = [i for i, token in enumerate(at.token.tolist()) if low <= rank[token] < high]
        expected += [(int(at.sentence[i]), int(at.position[i])) for i in inside[:30]]
    chosen = binned.occurrences
    assert sorted(zip(chosen.sentence.tolist(), chosen.position.tolist(), strict=True)) == sorted(expected)
    np.testing.assert_array_equal(np.bincount(binned.rank_bins(edges)), [30, 30, 30])
    np.testing.assert_array_equal(binned.ranks, [rank[token] for token in chosen.token.tolist()])


def test_types_have_their_occurrences_also_where_the_random_sample_has_none(model, corpus, tmp_path) -> None:
    random, typed = served(
        model, corpus, tmp_path, SampleRequest(occurrences=5), SampleRequest(strata=RankStrata.of_types(6, 9))
    )
    assert len(random) == 5
    assert Counter(typed.ranks.tolist()) == dict.fromkeys(range(1, 7), 9)


def test_a_random_sample_is_the_same_beside_a_stratified_one(model, corpus, tmp_path) -> None:
    (alone,) = served(model, corpus, tmp_path / "a", SampleRequest(occurrences=70))
    beside, _ = served(
        model,
        corpus,
        tmp_path / "b",
        SampleRequest(occurrences=70),
        SampleRequest(strata=RankStrata(edges=(1, 60), per_bin=200)),
    )
    np.testing.assert_array_equal(alone.occurrences.position, beside.occurrences.position)
    np.testing.assert_array_equal(alone.states(1), beside.states(1))


def test_ranks_come_from_the_corpus_that_is_given(model, corpus, tmp_path) -> None:
    other = corpus.select(np.arange(5))
    (sample,) = served(model, corpus, tmp_path, SampleRequest(occurrences=500), ranks_from=other)
    counts = Counter(token for _, _, token in tokens_of(model, other))
    most = max(counts, key=lambda token: (counts[token], -token))
    assert set(sample.ranks[sample.occurrences.token == most].tolist()) == {1}
    unseen = [token not in counts for token in sample.occurrences.token.tolist()]
    assert any(unseen)
    np.testing.assert_array_equal(sample.ranks == 0, unseen)
    assert (sample.rank_bins((1, 1000))[np.array(unseen)] == -1).all()


def test_the_byte_budget_takes_the_same_share_of_every_stratum_and_of_the_plain_sample(model, corpus, tmp_path) -> None:
    strata = RankStrata(edges=(1, 3, 8, 60), per_bin=60)
    requests = [SampleRequest(occurrences=100), SampleRequest(strata=strata)]
    plain, whole = served(model, corpus, tmp_path / "whole", *requests)
    affordable = len({*key_of(plain), *key_of(whole)}) // 2
    options = PassOptions(sample_bytes=affordable * 2 * 8 * 4)
    fewer, cut = served(model, corpus, tmp_path / "cut", *requests, options=options)
    total = len({*key_of(fewer), *key_of(cut)})
    assert affordable - 4 <= total <= affordable
    assert key_of(fewer) == key_of(plain)[: len(fewer)]
    before, after = (np.bincount(each.rank_bins(strata.edges), minlength=3) for each in (whole, cut))
    assert (before == 60).all()
    assert (after >= 60 * len(fewer) / len(plain) - 1).all()
    for index in range(3):
        own = cut.take(np.flatnonzero(cut.rank_bins(strata.edges) == index))
        of_whole = whole.take(np.flatnonzero(whole.rank_bins(strata.edges) == index))
        assert key_of(own) == key_of(of_whole)[: len(own)]


def key_of(sample) -> list[tuple[int, int]]:
    return list(zip(sample.occurrences.sentence.tolist(), sample.occurrences.position.tolist(), strict=True))


@pytest.mark.parametrize("merge", ["mean", "first", "last"])
def test_words_merge_the_states_of_their_tokens(model, corpus, tmp_path, merge) -> None:
    (tokens,) = served(model, corpus, tmp_path, SampleRequest(occurrences=300))
    words = tokens.words(merge)
    at, states = tokens.occurrences, tokens.states(1)
    groups: dict[tuple[int, int], list[int]] = {}
    for i, key in enumerate(zip(at.row.tolist(), at.word.tolist(), strict=True)):
        groups.setdefault(key, []).append(i)
    complete = {}
    for (sentence, word), rows in groups.items():
        text = next(s for s in corpus if s.id == sentence).words[word]
        length = len(model.tokenizer([text], is_split_into_words=True, add_special_tokens=False)["input_ids"])
        rows.sort(key=lambda i: at.position[i])
        if len(rows) == length:
            complete[sentence, word] = (
                states[rows].mean(0) if merge == "mean" else states[rows[0 if merge == "first" else -1]]
            )
    assert len(words) == len(complete) < len(tokens)
    keys = list(zip(words.occurrences.row.tolist(), words.occurrences.word.tolist(), strict=True))
    np.testing.assert_allclose(words.states(1), np.stack([complete[key] for key in keys]), atol=1e-6)
    half = words.take(np.arange(len(words))[::2])
    np.testing.assert_array_equal(half.states(1), words.states(1)[::2])


def test_equal_words_have_equal_types(model, corpus, tmp_path) -> None:
    (tokens,) = served(model, corpus, tmp_path, SampleRequest(occurrences=2000))
    words = tokens.words().occurrences
    texts = {s.id: s.words for s in corpus}
    names = [
        texts[sentence][word].lower() for sentence, word in zip(words.row.tolist(), words.word.tolist(), strict=True)
    ]
    assert len(set(zip(names, words.word_type.tolist(), strict=True))) == len(set(names)) == len(set(words.word_type))


def test_tags_are_those_of_the_words(model, corpus, tmp_path) -> None:
    (sample,) = served(model, corpus, tmp_path, SampleRequest(occurrences=200))
    assert set(sample.tags) == {"upos", "deprel", "ccg", "ccg_left", "ccg_right"}
    sentences = {s.id: s for s in corpus}
    at = sample.occurrences
    for name in ("upos", "ccg_left"):
        tag = sample.tags[name]
        for i in range(len(sample)):
            sentence = sentences[int(at.row[i])]
            values = sentence.upos if name == "upos" else sentence.tags[name]
            assert tag.names[tag.codes[i]] == values[at.word[i]]
    few = sample.words("first").take(np.arange(5))
    np.testing.assert_array_equal(few.tags["upos"].codes, sample.words("mean").tags["upos"].codes[:5])


def test_tags_may_have_holes(model, tmp_path) -> None:
    lines = "the\tDT\ncat\t_\nsleeps\tVBZ\n\nthe\tDT\ndog\tNN\n\n" * 10
    (tmp_path / "tagged.txt").write_text(lines)
    tagged = Corpus.from_tagged(tmp_path / "tagged.txt")
    (sample,) = served(model, tagged, tmp_path / "s", SampleRequest(occurrences=1000))
    tag = sample.tags["tag"]
    assert tag.names == ("DT", "NN", "VBZ")
    holes = (sample.occurrences.word == 1) & (sample.occurrences.row % 2 == 0)
    assert holes.any()
    np.testing.assert_array_equal(tag.codes == -1, holes)


def test_a_saved_sample_is_read_back_whole(model, corpus, tmp_path) -> None:
    (sample,) = served(model, corpus, tmp_path, SampleRequest(occurrences=100))
    again = TokenSample.load(tmp_path / "encoder-clean")
    np.testing.assert_array_equal(again.states(1), sample.states(1))
    np.testing.assert_array_equal(again.facts.ranks, sample.facts.ranks)
    assert again.tags["ccg"].names == sample.tags["ccg"].names
    np.testing.assert_array_equal(again.tags["ccg"].codes, sample.tags["ccg"].codes)
    np.testing.assert_array_equal(again.occurrences.subwords, sample.occurrences.subwords)


def test_words_are_merged_in_known_ways_only(model, corpus, tmp_path) -> None:
    (sample,) = served(model, corpus, tmp_path, SampleRequest(occurrences=10))
    with pytest.raises(UserError, match='"mean", "first" or "last"'):
        sample.words("median")


class TokensRead(Intervention):
    """Counts what its own passes read."""

    table: ClassVar[TableSchema] = _table("tokens_read")

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        batches = [reader.padded(rows) for rows in reader.batches(options.tokens_per_batch)]
        count = sum(int(batch.streams["encoder"].valid.sum()) for batch in batches)
        return pd.DataFrame([{"count": count}])


def test_an_intervention_runs_the_model_itself(model, corpus) -> None:
    tables = measure(model, corpus, [TokensRead()])
    assert tables["tokens_read"]["count"].tolist() == [len(tokens_of(model, corpus))]


def test_the_number_of_a_document_is_no_tag(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text("# newdoc\n1\ta\t_\tX\tY\t_\t0\troot\t_\t_\n", encoding="utf-8")
    plain, documents = (Corpus.from_conllu(path, documents=known) for known in (False, True))
    assert tag_columns(documents) == tag_columns(plain) == ["deprel", "upos", "xpos"]
