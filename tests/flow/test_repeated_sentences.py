"""A sentence written many times is one observation: its copies share a bootstrap block, and parts never share it."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from infoflow.corpus import Corpus, load_corpus, train_tokenizer
from infoflow.dynamics import evaluation_set
from infoflow.flow import measure
from infoflow.foundation import block_of
from infoflow.heads import Confidence
from infoflow.models import load_model
from infoflow.objectives import Vocabulary, make_objective
from infoflow.probing import AttentionProbe
from infoflow.representations import IntraSentence
from infoflow.training import TrainingData

COPIES = 10


@pytest.fixture(scope="module")
def once() -> Corpus:
    return load_corpus("grammar:60")


@pytest.fixture(scope="module")
def many(once) -> Corpus:
    return once.select(np.repeat(np.arange(len(once)), COPIES), "copies")


@pytest.fixture(scope="module")
def model(once):
    torch.manual_seed(0)
    tokenizer = train_tokenizer(list(once.column("text")), 100)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    return load_model(BertForMaskedLM(config), tokenizer=tokenizer)


def test_copies_share_a_block_and_others_keep_theirs(once, many):
    first = dict(zip(once.column("text"), block_of(once.content_ids), strict=True))
    assert [first[text] for text in many.column("text")] == block_of(many.content_ids).tolist()
    assert len(np.unique(many.content_ids)) == len(many)
    assert set(once.content_ids) <= set(many.content_ids)


def test_case_and_spacing_make_no_other_sentence():
    texts = ["It rains.", "it  rains.", "IT RAINS.", *(f"Sentence {number}." for number in range(100))]
    blocks = block_of(Corpus.from_sentences(texts).content_ids)
    assert len(set(blocks[:3])) == 1
    assert len(set(blocks)) > 30


@pytest.mark.parametrize("make", [IntraSentence, Confidence], ids=["representation", "head"])
def test_intervals_do_not_shrink_with_copies(model, once, many, make):
    (name,) = {make().name}
    expected, found = (measure(model, corpus, [make()])[name] for corpus in (once, many))
    for column in ("value", "low", "high"):
        # Copies of a word are pairs of equal states too: 3e-4 of the mean cosine that the one measure has as a control.
        np.testing.assert_allclose(found[column], expected[column], atol=1e-3)


def test_probes_are_scored_on_no_copy_of_what_they_were_trained_on(model, once, many):
    """Training sees every sentence ten times, so that values themselves differ a little."""
    probe = AttentionProbe(sentences=10_000, epochs=1)
    expected, found = (measure(model, corpus, [probe])["head_probe"] for corpus in (once, many))
    widths = [(frame["high"] - frame["low"]).to_numpy() for frame in (expected, found)]
    assert (widths[1] > 0.6 * widths[0]).all()


def test_parts_of_a_loss_allocation_share_no_text(once, many):
    tokenizer = train_tokenizer(list(once.column("text")), 100)
    data = TrainingData(source=many.encode(tokenizer), vocabulary=Vocabulary.from_tokenizer(tokenizer))
    found = evaluation_set("train", make_objective("causal-lm"), data, tokens=10**6, parts=3)
    texts = [{tuple(row) for batch in part for row in batch.input_ids.tolist()} for part in found.parts]
    assert sum(map(len, texts)) == len(set.union(*texts))
