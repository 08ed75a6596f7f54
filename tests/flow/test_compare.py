"""Two models with different tokenizers on the same words."""

import copy
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from infoflow.corpus import Corpus, train_tokenizer
from infoflow.flow import PairMeasure, SampleRequest, TokenSample, compare, match_words
from infoflow.foundation import UserError, make_display, use_display
from infoflow.models import Model, load_model, tap
from infoflow.objectives import Vocabulary, make_objective
from infoflow.results import Column, TableSchema
from infoflow.training import ModelConfig, build_models


class Kept(PairMeasure):
    """Keeps the matched samples."""

    table: ClassVar[TableSchema] = TableSchema(
        name="kept",
        version=1,
        description="what was matched",
        columns=(Column(name="count", dtype="int64", unit="words", description="words matched"),),
    )

    def __init__(self, words: str = "token", occurrences: int = 20_000) -> None:
        self.words, self.request = words, SampleRequest(occurrences=occurrences)
        self._pair: tuple[TokenSample, ...] = ()
        self._states: tuple[np.ndarray, ...] = ()

    def compute(self, first: TokenSample, second: TokenSample) -> pd.DataFrame:
        self._pair = (first, second)
        # Read now: the sample's file goes with the comparison.
        self._states = tuple(np.stack([s.states(layer) for layer in range(s.num_states)]) for s in self._pair)
        return pd.DataFrame([{"count": len(first)}])


def make_model(corpus: Corpus, name: str, objective: str, width: int, layers: int, vocab_size: int) -> Model:
    tokenizer = train_tokenizer((sentence.text for sentence in corpus), vocab_size=vocab_size)
    tokenizer.padding_side = "left"
    config = ModelConfig(width=width, layers=layers, heads=2, feedforward=32, initializer_range=0.2, positions=64)
    modules = build_models([make_objective(objective)], config, Vocabulary.from_tokenizer(tokenizer), seed=width)
    model = load_model(modules[objective], tokenizer=tokenizer)
    model.module.eval()
    return renamed(model, name)


def renamed(model: Model, name: str) -> Model:
    return replace(model, name=name)


@pytest.fixture(scope="module")
def models(parallel_corpus) -> list[Model]:
    """Letters against words, width 16 against 32, two layers against three, one of them causal."""
    return [
        make_model(parallel_corpus, "letters", "masked-lm", 16, 2, vocab_size=30),
        make_model(parallel_corpus, "words", "causal-lm", 32, 3, vocab_size=120),
    ]


def words_by_hand(model: Model, corpus: Corpus, merge: str) -> dict[tuple[int, int], np.ndarray]:
    """(sentence id, word) → (L+1, D) states, every sentence alone and words cut at white space."""
    found = {}
    for sentence in corpus:
        encoding = model.tokenizer(sentence.text, return_offsets_mapping=True, return_tensors="pt")
        with tap(model, hidden=True) as tapped, torch.no_grad():
            model.module(input_ids=encoding["input_ids"])
        [states] = [torch.stack(layers)[:, 0].numpy() for layers in tapped.hidden.values()]
        start = 0
        for index, word in enumerate(sentence.text.split()):
            stop = sentence.text.index(word, start) + len(word)
            spans = encoding["offset_mapping"][0].tolist()
            own = [
                i for i, (a, b) in enumerate(spans) if a < b and a >= start and b <= stop
            ]  # a space before belongs to the word
            rows = {"mean": own, "first": own[:1], "last": own[-1:], "token": own[-1:]}[merge]
            found[int(sentence.id), index] = states[:, rows].mean(1)
            start = stop
    return found


@pytest.mark.parametrize("merge", ["token", "mean", "first", "last"])
def test_words_of_different_tokenizers_meet(models, parallel_corpus, merge):
    kept = Kept(merge)
    tables = compare(models, parallel_corpus, [kept])
    first, second = kept._pair
    keys = [list(zip(s.occurrences.row.tolist(), s.occurrences.word.tolist(), strict=True)) for s in kept._pair]
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == len(keys[0]) == tables["kept"]["count"].item()
    assert (first.width, second.width, first.num_states, second.num_states) == (16, 32, 3, 4)
    for model, states in zip(models, kept._states, strict=True):
        expected = words_by_hand(model, parallel_corpus, merge)
        assert set(keys[0]) == set(expected)
        np.testing.assert_allclose(states, np.stack([expected[key] for key in keys[0]], axis=1), atol=1e-5)


def test_equal_tokenizers_meet_in_tokens_unless_words_are_asked_for(models, parallel_corpus):
    twins = [models[0], renamed(models[0], "twin")]
    tokens, words = Kept(), Kept("mean")
    compare(twins, parallel_corpus, [tokens, words])
    assert len(tokens._pair[0]) > 2 * len(words._pair[0])
    assert len(words._pair[0]) == sum(len(sentence.text.split()) for sentence in parallel_corpus)


def test_words_that_one_model_sampled_alone_are_dropped_and_counted(models, parallel_corpus, capsys):
    kept = Kept(occurrences=60)
    with use_display(make_display("plain")):
        compare(models, parallel_corpus, [kept])
    told = capsys.readouterr()
    # Sixty tokens are fewer words of the model that spells.
    assert len(kept._pair[0]) < 40
    assert "sampled words of words are dropped" in told.out + told.err


def test_a_sample_without_shared_words_is_refused(models, parallel_corpus):
    kept = Kept()
    compare(models, parallel_corpus, [kept])
    first, second = kept._pair
    half = len(first) // 2
    with pytest.raises(UserError, match="letters and words share no sampled word"):
        match_words(first.take(np.arange(half)), second.take(np.arange(half, 2 * half)))


def test_tokens_of_a_slow_tokenizer_are_no_words(models, parallel_corpus):
    kept = Kept()
    compare(models, parallel_corpus, [kept])
    first, second = kept._pair
    unknown = TokenSample(replace(first.occurrences, word=np.full(len(first), -1)), kept._states[0], first.facts)
    with pytest.raises(UserError, match="tokenizer of letters is slow and does not report words"):
        match_words(unknown, second)


def test_nan_names_its_model_layer_and_sentence(models, parallel_corpus):
    broken = renamed(copy.deepcopy(models[1]), "broken")
    with torch.no_grad():
        broken.module.get_input_embeddings().weight[10:] = torch.nan
    with pytest.raises(UserError, match=r"broken has NaN or infinite states in its decoder, layer 0, sentence \d+"):
        compare([models[0], broken], parallel_corpus, [Kept()])
