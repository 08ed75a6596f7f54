"""Token ids that have no embedding are told before the model runs, also where the tokenizer has few tokens."""

import dataclasses

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    ImageGPTConfig,
    ImageGPTForCausalImageModeling,
    PreTrainedTokenizerFast,
)

from infoflow.flow import measure
from infoflow.foundation import UserError
from infoflow.heads import Confidence
from infoflow.lenses import Lens
from infoflow.models import load_model


def make_tokenizer(largest):
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "the": 2, "cat": largest}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]")


def load(tokenizer):
    config = GPT2Config(vocab_size=30, n_embd=8, n_layer=1, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=1)
    return load_model(GPT2LMHeadModel(config), tokenizer=tokenizer, device="cpu")


def test_the_last_embedding_can_be_read(parallel_corpus):
    assert len(measure(load(make_tokenizer(29)), parallel_corpus, [Confidence()])["head_confidence"])


@pytest.mark.parametrize("largest", [30, 1000])
def test_token_ids_beyond_the_vocabulary(parallel_corpus, largest):
    with pytest.raises(UserError, match=rf"its largest token id is {largest}, the model's 29\. Use the tokenizer"):
        load(make_tokenizer(largest))
    exchanged = dataclasses.replace(load(make_tokenizer(29)), tokenizer=make_tokenizer(largest))
    with pytest.raises(UserError, match=rf"below 30, .* Got {largest:,}\.\nGive the tokenizer"):
        measure(exchanged, parallel_corpus, [Confidence()])


def test_a_token_that_is_read_but_never_predicted_is_no_target(parallel_corpus):
    """ImageGPT predicts all tokens but its start."""
    config = ImageGPTConfig(vocab_size=30, n_embd=8, n_layer=1, n_head=2, n_positions=64, n_inner=16)
    scored = {}
    for largest in (28, 29):
        model = load_model(ImageGPTForCausalImageModeling(config).eval(), make_tokenizer(largest), device="cpu")
        lens = measure(model, parallel_corpus, [Lens()])["lens"]
        scored[largest] = lens.loc[lens["metric"] == "loss", "count"].sum()
    assert 0 < scored[29] < scored[28]
