"""How a corpus is run through a model."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PassOptions:
    """How a corpus is run through a model; no option changes a result but for `seed`, `max_length` and the sample's."""

    seed: int = 0
    tokens_per_batch: int = 4096  # padded, at most: wide models read smaller batches on a CPU
    max_length: int = 512  # longer sentences are cut, and counted
    attention_bytes: int = 1 << 28  # attention weights of all layers and heads held at a time
    sample_bytes: int = 1 << 30  # the token sample's states on disk, per stack and regime
    white_space_words: bool = False  # words of running text end at white space: `compare` across tokenizers
    decoder_states: bool = True  # sample the decoder of an encoder–decoder too, where the corpus has translations
