"""Texts of 6 to 40 words with the frequencies of Zipf, and a small GPT-2 that reads them."""

from typing import Any

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import infoflow
from infoflow.corpus import Corpus, train_tokenizer

TYPES = 2000


def corpus_of(num: int) -> Corpus:
    random = np.random.default_rng(0)
    chances = 1 / np.arange(1, TYPES + 1)
    lengths = random.integers(6, 41, num)
    words = [random.choice(TYPES, length, p=chances / chances.sum()).tolist() for length in lengths]
    return Corpus.from_sentences([" ".join(f"w{word}" for word in row) for row in words])


def model_of(corpus: Corpus, **config: Any) -> infoflow.models.Model:
    """Random weights."""
    tokenizer = train_tokenizer((one.text for one in corpus), TYPES)
    torch.manual_seed(0)
    ends = {"bos_token_id": None, "eos_token_id": None}
    module = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_head=4, **ends, **config))
    return infoflow.load_model(module, tokenizer, "cpu")
