"""Texts to write, and models small enough to write them."""

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from infoflow.architectures import ModelConfig, build
from infoflow.corpus import Corpus, Vocabulary, train_tokenizer
from infoflow.foundation import stream

WORDS = {
    "cat": "chat", "dog": "chien", "house": "maison", "sees": "voit", "likes": "aime", "old": "vieux", "red": "rouge",
}  # fmt: skip
KINDS = ("bert encoder-decoder", "t5 encoder-decoder", "bert decoder", "gpt2 decoder")


def pairs(num: int = 20, seed: int = 0, most: int = 6) -> Corpus:
    """Texts of one to `most` words with their translations, word by word."""
    rng = stream("words to write", seed)
    found = []
    for _ in range(num):
        words = [str(word) for word in rng.choice(list(WORDS), size=rng.integers(1, most + 1))]
        found.append((" ".join(words), " ".join(WORDS[word] for word in words)))
    return Corpus.from_sentences(found)


def both_sides(corpus: Corpus, size: int = 60) -> PreTrainedTokenizerBase:
    """A tokenizer of texts and translations."""
    return train_tokenizer([*corpus.column("text"), *corpus.column("translation")], vocab_size=size)


def writer(kind: str, tokenizer: PreTrainedTokenizerBase, spread: float = 0.3, width: int = 32) -> PreTrainedModel:
    """A model with random weights that writes."""
    family, layout = kind.split()
    config = ModelConfig(
        width=width, layers=2, heads=4, feedforward=2 * width, initializer_range=spread, positions=64, dropout=0.0
    )
    return build(family, layout, config, Vocabulary.from_tokenizer(tokenizer), seed=0).eval()
