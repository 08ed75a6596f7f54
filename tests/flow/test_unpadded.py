"""A model that padding changes is measured in batches of equal length, with the numbers of each sentence alone."""

import numpy as np
import pytest
import torch
from support.toy import build_toy
from transformers import PreTrainedTokenizerBase

from infoflow.corpus import train_tokenizer
from infoflow.flow import Reader, forward, measure
from infoflow.foundation import UserError
from infoflow.heads import Confidence
from infoflow.models import Model, load_model, tap


@pytest.fixture(scope="module")
def tokenizer(parallel_corpus) -> PreTrainedTokenizerBase:
    return train_tokenizer((sentence.text for sentence in parallel_corpus), vocab_size=40)


@pytest.fixture(scope="module")
def model(tokenizer) -> Model:
    return load_model(build_toy("padding"), tokenizer=tokenizer)


@pytest.fixture
def reader(model, parallel_corpus) -> Reader:
    return Reader(model, parallel_corpus, max_length=64, seed=0, decoder=False)


def test_batches_hold_sentences_of_one_length(reader):
    batches = reader.batches(200)
    lengths = [{reader.longest(np.array([row])) for row in rows} for rows in batches]
    assert all(len(each) == 1 for each in lengths)
    assert max(map(len, batches)) > 1
    assert sorted(np.concatenate(batches).tolist()) == list(range(40))


def test_a_padded_batch_is_refused(reader):
    rows = np.concatenate([batch[:1] for batch in reader.batches(200)])
    with pytest.raises(UserError, match="cannot read sentences of different lengths together"):
        reader.padded(rows)


def test_a_measure_has_the_numbers_of_sentences_alone(model, reader, parallel_corpus):
    found = measure(model, parallel_corpus, [Confidence()])["head_confidence"]
    largest = []
    for row in range(len(parallel_corpus)):
        batch = reader.padded(np.array([row]))
        with torch.no_grad(), tap(model, attention=True) as seen:
            forward(model, batch)
        valid = batch.streams["encoder"].valid[0]
        layers = torch.stack(seen.attention["encoder", "self"])[:, 0][..., valid, :][..., valid]
        largest.append(layers.amax(-1))  # (layer, head, query)
    expected = torch.cat(largest, dim=-1).mean(-1).flatten()
    np.testing.assert_allclose(found["value"].to_numpy(), expected.numpy(), rtol=1e-5)


def test_a_model_that_may_be_padded_keeps_its_batches(tokenizer, parallel_corpus):
    plain = Reader(load_model(build_toy(), tokenizer=tokenizer), parallel_corpus, max_length=64, seed=0, decoder=False)
    batches = [np.array([3, 1]), np.array([0, 2])]
    assert [one.tolist() for one in plain.even(np.arange(4), batches)] == [[3, 1], [0, 2]]
