"""Classes of tokens, and sums of sentences by bootstrap block."""

# B sentence, T token, C class of tokens

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from infoflow.flow import Intervention, PaddedBatch, PassOptions, Reader, Stream
from infoflow.foundation import NUM_BLOCKS, UserError
from infoflow.heads._head_measure import Roles
from infoflow.results import Column

CLASSES = ("first", "special", "punctuation", "other")
TOKEN = Column(
    "token",
    "string",
    "",
    "each token is in one class: first, the sentence's first token, whatever it is; special, other special tokens; "
    "punctuation; other",
)
PADDING = -1


class AbstractSentenceMeasure(Intervention):
    """A measure of at most `sentences` sentences, chosen by the hash of their text, in batches."""

    def __init__(self, sentences: int = 1000) -> None:
        if sentences < 1:
            raise UserError(f"sentences must be at least 1. Got {sentences}.")
        self.sentences = sentences

    def batches(self, reader: Reader, options: PassOptions) -> Iterator[PaddedBatch]:
        for rows in reader.batches(options.tokens_per_batch, reader.rows[: self.sentences]):
            yield reader.padded(rows).to(reader.model.device)

    @abstractmethod
    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame: ...


def classes_of(roles: Roles, stream: Stream, stack: str) -> Int[Tensor, "sentence token"]:
    """The index in `CLASSES` of each token; −1 at padding."""
    found = torch.full_like(stream.position, CLASSES.index("other"))
    found[roles.where(stream, stack, "punctuation")] = CLASSES.index("punctuation")
    found[roles.where(stream, stack, "special")] = CLASSES.index("special")
    found[stream.position == 0] = CLASSES.index("first")
    return found.masked_fill(~stream.real, PADDING)


class BlockSums:
    """Sums over sentences by place, name and bootstrap block; memory does not grow with the corpus."""

    def __init__(self) -> None:
        self._sums: dict[tuple[Any, ...], dict[str, np.ndarray]] = {}

    def add(self, place: tuple[Any, ...], name: str, values: Tensor, blocks: Tensor) -> None:
        """Add values (B, …) of sentences in `blocks` (B,)."""
        values = values.double().cpu()
        sums = torch.zeros(NUM_BLOCKS, *values.shape[1:], dtype=torch.float64).index_add_(0, blocks.cpu(), values)
        own = self._sums.setdefault(place, {})
        own[name] = own[name] + sums.numpy() if name in own else sums.numpy()

    def __iter__(self) -> Iterator[tuple[tuple[Any, ...], dict[str, np.ndarray]]]:
        """Each place, in order, with its sums (64, …) by name."""
        return iter(sorted(self._sums.items(), key=lambda one: one[0]))
