"""ROUGE of what decoders write, beside a copy of what their encoders read: a greedy loop and an LCS by hand."""

import re

import numpy as np
import pytest
import torch
from snowballstemmer import stemmer

from infoflow.architectures import ModelConfig, build
from infoflow.corpus import Corpus, Vocabulary, train_tokenizer
from infoflow.foundation import block_of, replicate_weights
from infoflow.models import load_model
from infoflow.objectives import OBJECTIVES, make_objective
from infoflow.studies import rouge_scores
from infoflow.training import TrainingData

WRITING = {
    *("seq2seq-lm", "prefix-lm", "denoise-full", "denoise-mask", "deshuffling"),
    *("replace-spans", "drop-tokens", "span-corruption", "bart"),
}


def words(text: str) -> list[str]:
    """As rouge-score reads a text."""
    found = re.sub(r"[^a-z0-9]+", " ", text.lower()).split()
    return [stemmer("porter").stemWord(word) if len(word) > 3 else word for word in found]


def f_of_subsequence(said: str, right: str) -> float:
    first, second = words(said), words(right)
    table = np.zeros((len(first) + 1, len(second) + 1), dtype=int)
    for row, one in enumerate(first):
        for column, other in enumerate(second):
            best = max(table[row, column + 1], table[row + 1, column])
            table[row + 1, column + 1] = table[row, column] + 1 if one == other else best
    common = table[-1, -1]
    return 2 * common / (len(first) + len(second)) if common else 0.0


def greedily(module, source: list[int], longest: int) -> list[int]:
    ids = torch.tensor([source])
    written = [module.config.decoder_start_token_id]
    while len(written) < longest:  # the last token is the end
        reads = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        logits = module(**reads, decoder_input_ids=torch.tensor([written]), use_cache=False).logits[0, -1]
        written.append(int(logits.argmax()))
        if written[-1] == 3:
            break
    return written


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    rng = np.random.default_rng(0)
    nouns, verbs = ("cat", "dog", "bird", "man"), ("met", "saw", "bit", "fed")
    texts = [" ".join(rng.choice(nouns if at % 2 else verbs) for at in range(rng.integers(2, 9))) for _ in range(24)]
    return Corpus.from_sentences(texts)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "family"), [("seq2seq-lm", "bert"), ("deshuffling", "t5"), ("span-corruption", "bert"), ("bart", "t5")]
)
def test_the_score_is_that_of_a_greedy_loop_and_of_a_copy(corpus, name, family) -> None:
    objective = make_objective(name)
    tokenizer = train_tokenizer(corpus.column("text"), 60, sentinels=objective.num_sentinels(32))
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    shape = ModelConfig(width=16, layers=1, heads=2, feedforward=32, positions=64)
    module = build(family, objective.layout, shape, vocabulary, seed=4).eval()
    for number, parameter in enumerate(module.parameters()):
        parameter.add_(0.4 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
    data = TrainingData(source=corpus.encode(tokenizer), vocabulary=vocabulary, tokenizer=tokenizer)
    model, ids = load_model(module, tokenizer), corpus.content_ids
    found = rouge_scores(model, objective, data, ids, 10**6, 1, "test").iloc[0]

    single = [np.array([at]) for at in range(len(corpus))]
    batches = [data.batch(objective.for_evaluation(), at, ("evaluation-noise", 0), 0) for at in single]
    wanted = [batch.labels[0][batch.labels[0] != -100].tolist() for batch in batches]
    longest = 2 * max(map(len, wanted)) + 10
    values, copies = [], []
    for batch, right in zip(batches, wanted, strict=True):
        source = batch.input_ids[0].tolist()
        told = [greedily(module, source, longest), source, right]
        said, read, text = (tokenizer.decode(one, skip_special_tokens=True) for one in told)
        values.append(f_of_subsequence(said, text))
        copies.append(f_of_subsequence(read, text))
    assert (found["split"], found["metric"], found["count"]) == ("test", "rougeL", len(corpus))
    assert found["value"] == pytest.approx(np.mean(values), abs=1e-9)
    assert found["baseline"] == pytest.approx(np.mean(copies), abs=1e-9)
    weights = replicate_weights()[:, block_of(ids)]
    drawn = (weights @ np.array(values)) / weights.sum(axis=1)
    np.testing.assert_allclose(np.asarray(found["replicates"]), drawn, atol=1e-6)
    assert found["low"] <= found["value"] <= found["high"]

    few = rouge_scores(model, objective, data, ids, 7, 1, "test").iloc[0]
    assert few["count"] == 7
    again = rouge_scores(model, objective, data, ids, 7, 1, "test").iloc[0]
    assert few["value"] == again["value"]


def test_those_write_whose_decoder_follows_from_what_the_encoder_reads() -> None:
    assert {name for name in OBJECTIVES if make_objective(name).can_write} == WRITING
