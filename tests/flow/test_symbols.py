"""Which tokens are punctuation."""

import numpy as np
import pytest
from transformers import BertConfig, BertForMaskedLM

from infoflow.corpus import Corpus, train_tokenizer
from infoflow.flow import PassOptions, Reader, TokenSample, collect
from infoflow.models import load_model
from infoflow.representations import IdentityNeighbours

TEXTS = ["She said: “wait … 3 minutes”!", "L'été, déjà? -- 日本 ½ हि", "a_b c-d e@f"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS * 3, 200)


@pytest.fixture(scope="module")
def model(tokenizer):
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    return load_model(BertForMaskedLM(config), tokenizer=tokenizer)


def symbols(model, *texts):
    reader = Reader(model, Corpus.from_sentences(list(texts)), max_length=512, seed=0, decoder=False)
    return {model.tokenizer.decode([i]).strip() for i in reader.symbols("encoder")}


def test_symbols_have_neither_letter_nor_digit(model):
    every = {model.tokenizer.decode([i]).strip() for i in range(len(model.tokenizer))}
    found = symbols(model, *TEXTS, *every)
    assert {",", "?", "!", "-", "_", "@", "“"} <= found
    assert not found & {"a", "3", "é", "日", "½", "[MASK]"}
    assert symbols(model, "a , a") - {""} == {","}


def test_samples_know_the_symbols_of_their_corpus(model, tokenizer, tmp_path):
    (tmp_path / "text.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    corpus = Corpus.from_text(tmp_path / "text.txt")
    samples = collect(model, corpus, [IdentityNeighbours(k=1, few="cap")], tmp_path, PassOptions()).samples
    sample = samples["encoder", "clean"]
    reader = Reader(model, corpus, max_length=512, seed=0, decoder=False)
    assert sample.facts.symbols == reader.symbols("encoder")
    assert {"!", "“"} <= {tokenizer.decode([i]).strip() for i in sample.facts.symbols}
    sample.save(tmp_path)
    np.save(tmp_path / "states.npy", np.stack([sample.states(layer) for layer in range(2)]))
    assert TokenSample.load(tmp_path).facts.symbols == sample.facts.symbols
