"""Features of probes against one sentence at a time, without padding."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from infoflow.corpus import Corpus, generate_grammar, train_tokenizer
from infoflow.flow import PassOptions
from infoflow.foundation import UserError, make_display, use_display
from infoflow.models import Model, load_model
from infoflow.objectives import Vocabulary, make_objective
from infoflow.probing import Examples, collect_features
from infoflow.training import ModelConfig, build_models

ROWS = np.arange(0, 40, 2)


def build(corpus: Corpus, objective: str = "masked-lm", side: str = "right") -> Model:
    tokenizer = train_tokenizer((sentence.text for sentence in corpus), vocab_size=60)
    tokenizer.padding_side = side
    config = ModelConfig(width=16, layers=2, heads=2, feedforward=32, initializer_range=0.3, positions=128)
    modules = build_models([make_objective(objective)], config, Vocabulary.from_tokenizer(tokenizer), seed=0)
    return load_model(modules[objective], tokenizer=tokenizer)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return generate_grammar(40, seed=1)


@pytest.fixture(scope="module")
def model(corpus) -> Model:
    return build(corpus)


def one_by_one(model: Model, corpus: Corpus, row: int, pooling: str, max_length: int = 512) -> list[np.ndarray | None]:
    """States (L+1, D) of each word of a sentence that is read alone; None: it has no token."""
    sentence = corpus[row]
    words = sentence.words or sentence.text.split()
    encoded = model.require_tokenizer()(
        words, is_split_into_words=True, truncation=True, max_length=max_length, return_tensors="pt"
    )
    with torch.no_grad():
        states = model.module.base_model(input_ids=encoded["input_ids"], output_hidden_states=True).hidden_states
    found: list[np.ndarray | None] = []
    for word in range(len(words)):
        at = [i for i, w in enumerate(encoded.word_ids()) if w == word]
        at = {"mean": at, "first": at[:1], "last": at[-1:]}[pooling]
        found.append(np.stack([state[0, at].mean(0).numpy() for state in states]) if at else None)
    return found


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_states_are_those_of_sentences_read_alone(corpus, tmp_path, pooling, side):
    model = build(corpus, side=side)
    found = collect_features(model, corpus, ROWS, folder=tmp_path, pooling=pooling)
    assert found.sentences.tolist() == ROWS.tolist()
    assert (found.num_states, found.width, found.stack) == (3, 16, "encoder")
    for s, row in enumerate(ROWS.tolist()):
        expected = one_by_one(model, corpus, row, pooling)
        here = found.rows(np.arange(found.starts[s], found.starts[s + 1]))
        np.testing.assert_allclose(here, np.stack([each for each in expected if each is not None]), atol=2e-5)


def test_neither_batches_nor_the_order_of_rows_matter(model, corpus, tmp_path):
    (tmp_path / "b").mkdir()
    first = collect_features(model, corpus, ROWS, folder=tmp_path)
    options = PassOptions(tokens_per_batch=50)
    second = collect_features(model, corpus, ROWS[::-1].copy(), folder=tmp_path / "b", options=options)
    np.testing.assert_allclose(first.states, second.states, atol=2e-5)
    assert np.array_equal(first.starts, second.starts)


def test_words_of_running_text_end_at_white_space(model, corpus, tmp_path):
    text = Corpus.from_sentences([sentence.text for sentence in corpus])
    found = collect_features(model, text, np.arange(40), folder=tmp_path)
    assert np.diff(found.starts).tolist() == text.word_counts.tolist()
    assert found.present.all()


def test_a_cut_sentence_lacks_its_last_words(model, corpus, tmp_path):
    found = collect_features(model, corpus, ROWS, folder=tmp_path, options=PassOptions(max_length=12))
    assert 0 < found.present.mean() < 1
    for s, row in enumerate(ROWS.tolist()):
        expected = one_by_one(model, corpus, row, "mean", max_length=12)
        there = [each is not None for each in expected]
        words = np.arange(found.starts[s], found.starts[s + 1])
        assert found.present[words].tolist() == there
        assert not found.rows(words[~np.array(there)]).any()
        examples = Examples(
            sentence=np.full(len(words), row),
            first=np.stack([np.zeros_like(words), np.arange(len(words)) + 1], axis=1),
            second=None,
            label=np.zeros(len(words), dtype=np.int64),
        )
        assert found.kept(examples).tolist() == [all(there[: n + 1]) for n in range(len(words))]


def test_a_byte_budget_takes_fewer_sentences_and_says_so(model, corpus, tmp_path):
    notes = []
    display = make_display("silent")
    display.note = notes.append
    word = 4 * 3 * 16
    budgets = [int(corpus.word_counts.sum()) * word // share for share in (8, 2, 1)]
    held = []
    for budget in budgets:
        folder = tmp_path / str(budget)
        folder.mkdir()
        with use_display(display):
            options = PassOptions(sample_bytes=budget)
            found = collect_features(model, corpus, np.arange(40), folder=folder, options=options)
        assert found.states.nbytes <= budget
        held.append(set(found.sentences.tolist()))
    assert held[0] < held[1] < held[2] == set(range(40))
    said = [f"Probes read {len(each)} of 40 sentences of {corpus.name} (the byte budget)." for each in held[:2]]
    assert notes == said
    with pytest.raises(UserError, match="sample_bytes must hold"):
        collect_features(model, corpus, ROWS, folder=tmp_path, options=PassOptions(sample_bytes=word))


def test_examples_of_sentences_beyond_the_budget_are_not_kept(model, corpus, tmp_path):
    found = collect_features(model, corpus, ROWS, folder=tmp_path)
    pair = Examples(
        sentence=np.array([0, 1, 2]),
        first=np.array([[0, 1]] * 3),
        second=np.array([[1, 3]] * 3),
        label=np.zeros(3, dtype=np.int64),
    )
    assert found.kept(pair).tolist() == [True, False, True]
    wrong = replace(pair, second=np.array([[1, 3], [1, 3], [5, 500]]))
    with pytest.raises(UserError, match=r"A span must lie within .* Got \[5, 500\) in sentence 2"):
        found.kept(wrong)


def test_a_decoder_is_read_too(corpus, tmp_path):
    model = build(corpus, "causal-lm")
    found = collect_features(model, corpus, ROWS[:3], folder=tmp_path)
    expected = one_by_one(model, corpus, int(ROWS[0]), "mean")
    np.testing.assert_allclose(found.rows(np.arange(found.starts[1])), np.stack(expected), atol=2e-5)
    assert found.stack == "decoder"


def test_no_rows_are_refused(model, corpus, tmp_path):
    with pytest.raises(UserError, match="A probe needs sentences"):
        collect_features(model, corpus, np.array([], dtype=np.int64), folder=tmp_path)
