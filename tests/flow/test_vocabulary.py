"""Token ids that have no embedding are told before the model runs, also where the tokenizer has few tokens."""

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from infoflow.flow import measure
from infoflow.foundation import UserError
from infoflow.heads import Confidence
from infoflow.models import load_model


@pytest.mark.parametrize("largest", [29, 30, 1000])
def test_token_ids_beyond_the_vocabulary(parallel_corpus, largest):
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "the": 2, "cat": largest}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]")
    config = GPT2Config(vocab_size=30, n_embd=8, n_layer=1, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=1)
    model = load_model(GPT2LMHeadModel(config), tokenizer=tokenizer, device="cpu")
    if largest < 30:
        assert len(measure(model, parallel_corpus, [Confidence()])["head_confidence"])
    else:
        with pytest.raises(UserError, match=rf"below 30, .* It gives {largest:,}\.\nGive the tokenizer"):
            measure(model, parallel_corpus, [Confidence()])
