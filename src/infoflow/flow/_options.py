"""How a corpus is run through a model."""

from dataclasses import dataclass, fields
from typing import Any

from infoflow.objectives import AbstractObjective


@dataclass(frozen=True, kw_only=True, slots=True)
class PassOptions:
    """How a corpus is run through a model.

    Only `seed`, `max_length`, `corruption` and the options of the sample affect results.
    """

    seed: int = 0
    tokens_per_batch: int = 4096  # padded tokens, at most: wide models read smaller batches on a CPU
    max_length: int = 512  # longer sentences are cut and counted
    attention_bytes: int = 1 << 28  # attention weights of all layers and heads held at a time
    sample_bytes: int = 1 << 30  # the token sample's states on disk, per stack and regime
    white_space_words: bool = False  # words are `running_words` for any tokenizer: `compare` across tokenizers
    decoder_states: bool = True  # also sample an encoder–decoder's decoder if the corpus has translations
    corruption: AbstractObjective | None = None  # how a masked LM's text was corrupted in training; None: `MaskedLM()`

    @property
    def key(self) -> dict[str, Any]:
        """Options that affect results, for content keys."""
        plain = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "corruption"}
        return plain if self.corruption is None else plain | {"corruption": [self.corruption.name, self.corruption]}
