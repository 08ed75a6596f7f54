"""A task that can be learned in seconds, and models small enough to be tuned in a test.

Imports of infoflow stay inside: the hook that checks it comes first.
"""

from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ElectraConfig,
    ElectraForPreTraining,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

WORDS = [f"w{number}" for number in range(30)]
_SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
VOCABULARY = len(WORDS) + len(_SPECIAL)
BERT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}


def small_tokenizer() -> PreTrainedTokenizerFast:
    """Words to ids, [CLS] x [SEP]."""
    core = Tokenizer(WordLevel({word: number for number, word in enumerate(_SPECIAL + WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = Whitespace()
    core.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        mask_token="[MASK]",
    )


def small_module(family: str) -> PreTrainedModel:
    """A random model of a family."""
    torch.manual_seed(0)
    return _MAKERS[family]().eval()


def small_model(family: str = "bert"):
    """A random model of a family with the tokenizer of words."""
    from infoflow.models import load_model

    return load_model(small_module(family), small_tokenizer())


def _encoder_decoder(**shape: int) -> PreTrainedModel:
    decoder = BertConfig(**{**BERT, **shape}, is_decoder=True, add_cross_attention=True)
    config = EncoderDecoderConfig.from_encoder_decoder_configs(BertConfig(**BERT), decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 1, 0, 2
    return EncoderDecoderModel(config)


def _plain_bert() -> PreTrainedModel:
    from infoflow.models import PlainBertConfig, PlainBertForMaskedLM

    return PlainBertForMaskedLM(PlainBertConfig(**BERT))


_SEQ2SEQ: dict[str, Any] = {"vocab_size": VOCABULARY, "d_model": 16, "pad_token_id": 0}
_MAKERS = {
    "bert": lambda: BertForMaskedLM(BertConfig(**BERT)),
    "causal-bert": lambda: BertLMHeadModel(BertConfig(**BERT, is_decoder=True)),
    "plain-bert": _plain_bert,
    "encoder-decoder": _encoder_decoder,
    "shallow-decoder": lambda: _encoder_decoder(num_hidden_layers=1),
    "roberta": lambda: RobertaForMaskedLM(RobertaConfig(**BERT)),
    "distilbert": lambda: DistilBertForMaskedLM(
        DistilBertConfig(vocab_size=VOCABULARY, dim=16, n_layers=2, n_heads=2, hidden_dim=32, pad_token_id=0)
    ),
    "albert": lambda: AlbertForMaskedLM(AlbertConfig(**BERT, embedding_size=8)),
    "electra": lambda: ElectraForPreTraining(ElectraConfig(**BERT, embedding_size=8)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=40, bos_token_id=1, eos_token_id=2
        )
    ),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**BERT, bos_token_id=1, eos_token_id=2)),
    "t5": lambda: T5ForConditionalGeneration(
        T5Config(**_SEQ2SEQ, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0, eos_token_id=2)
    ),
    "bart": lambda: BartForConditionalGeneration(
        BartConfig(
            **_SEQ2SEQ,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_position_embeddings=40,
            eos_token_id=2,
            bos_token_id=1,
            decoder_start_token_id=2,
        )
    ),
}


def small_data(num: int = 96, name: str = "first-half"):
    """Is there more of the first words or of the last ones? Three parts, two classes, texts of 3 to 8 words."""
    import numpy as np
    import pandas as pd

    from infoflow.adaptation import TaskData
    from infoflow.corpus import Corpus

    generator = np.random.default_rng(0)
    rows = []
    for _ in range(num):
        low = int(generator.integers(2))
        size = int(generator.integers(3, 9))
        ids = generator.integers(0, 15, size) + (0 if low else 15)
        ids[0] = generator.integers(0, 30)
        rows.append({"text": " ".join(WORDS[id] for id in ids), "label": "first" if low else "last"})
    frame = pd.DataFrame(rows)
    parts = {"train": frame[: num // 2], "dev": frame[num // 2 : 3 * num // 4], "test": frame[3 * num // 4 :]}
    corpora = {part: Corpus.from_frame(rows, label="label", name=part) for part, rows in parts.items()}
    return TaskData(name=name, shape="classification", labels=("first", "last"), **corpora)
