"""Tiny models with heads, and a tokenizer of a few words."""

import pytest

WORDS = (
    *("the", "a", "old", "red", "big", "cat", "dog", "house", "sees", "likes", "runs", "sleeps", "good", "bad"),
    *("very", "not"),
)


@pytest.fixture(scope="session")
def tokenizer():
    from infoflow.corpus import train_tokenizer
    from infoflow.foundation import stream

    rng = stream("adaptation-tokenizer")
    texts = [" ".join(rng.choice(WORDS, size=8)) for _ in range(200)]
    return train_tokenizer(texts, vocab_size=120)


@pytest.fixture(scope="session")
def vocabulary(tokenizer):
    from infoflow.corpus import Vocabulary

    return Vocabulary.from_tokenizer(tokenizer)


@pytest.fixture
def headed(vocabulary):
    """Make a tiny model of a family with the head of a task, random weights, in evaluation mode."""
    import torch
    import transformers

    size = {"vocab_size": vocabulary.size, "pad_token_id": vocabulary.pad}
    small = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 24}
    ids = {"bos_token_id": vocabulary.start, "eos_token_id": vocabulary.end}
    bart = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    bart |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "decoder_start_token_id": vocabulary.end}
    t5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    configs = {
        "bert": lambda: transformers.BertConfig(**size, **small, max_position_embeddings=64),
        "causal-bert": lambda: transformers.BertConfig(**size, **small, max_position_embeddings=64, is_decoder=True),
        "gpt2": lambda: transformers.GPT2Config(**size, **ids, n_embd=16, n_layer=2, n_head=2, n_positions=64),
        "bart": lambda: transformers.BartConfig(**size, **ids, **bart, max_position_embeddings=64),
        "t5": lambda: transformers.T5Config(**size, eos_token_id=vocabulary.end, decoder_start_token_id=0, **t5),
    }

    def make(family, head, num_labels=2, **more):
        torch.manual_seed(0)
        config = configs[family]()
        config.num_labels = num_labels
        for name, value in more.items():
            setattr(config, name, value)
        module = getattr(transformers, head).from_config(config)
        for parameter in module.parameters():
            if parameter.dim() > 1:  # weights large enough for outputs to differ
                torch.nn.init.normal_(parameter, std=0.2)
        return module.eval()

    return make


@pytest.fixture
def texts():
    """Random sentences of uneven length."""
    from infoflow.foundation import stream

    def draw(count, seed=0, longest=12):
        rng = stream("adaptation-texts", seed)
        return [" ".join(rng.choice(WORDS, size=rng.integers(1, longest))) for _ in range(count)]

    return draw


@pytest.fixture
def corpus_of():
    """A corpus from columns in memory."""
    import pandas as pd

    from infoflow.corpus import Corpus

    def make(name="made", **columns):
        return Corpus.from_frame(pd.DataFrame(columns), name=name, **{column: column for column in columns})

    return make


@pytest.fixture
def tagged():
    """A corpus of words and tags in memory."""
    from datasets import Dataset

    from infoflow.corpus import Corpus

    def make(sentences, tags, name="tagged"):
        dataset = Dataset.from_dict({"words": sentences, "tag": tags})
        return Corpus.from_dataset(dataset, text=None, words="words", tags=("tag",), name=name)

    return make


@pytest.fixture(scope="session")
def tuned(tmp_path_factory):
    """Two models tuned from `toy_before()` with other seeds."""
    from adaptation.toy_task import ToyTask, toy_before, toy_module, tune

    return [
        tune(toy_module(toy_before(), seed), ToyTask(), tmp_path_factory.mktemp("tuned") / "run", seed=seed)
        for seed in (0, 1)
    ]
