"""The loss of every predicted token of some sentences, and where it stands: kept for the measures that ask for it."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int

from infoflow.flow import PassOptions, Reader

from ._counted import counted_ngrams
from ._scored_tokens import scored_tokens


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TokenLosses:
    """Predicted tokens of the chosen sentences."""

    losses: Float[np.ndarray, " N"]  # nats
    unigram: Float[np.ndarray, " N"]  # of the same tokens, by their frequency in the counted corpus alone
    positions: Int[np.ndarray, " N"]  # among the sentence's ordinary tokens, from 1
    lengths: Int[np.ndarray, " N"]  # the last predicted position of the sentence
    blocks: Int[np.ndarray, " N"]


_HELD: WeakKeyDictionary[Reader, dict[Any, TokenLosses]] = WeakKeyDictionary()


def token_losses(reader: Reader, options: PassOptions, sentences: int | None) -> TokenLosses:
    """Losses on so many sentences by the hash of their text; the model runs once for all measures of a reader."""
    held = _HELD.setdefault(reader, {})
    key = (sentences, options)
    if key not in held:
        held[key] = _losses(reader, options, sentences)
    return held[key]


def _losses(reader: Reader, options: PassOptions, sentences: int | None) -> TokenLosses:
    parts: list[list[np.ndarray]] = [[], [], [], [], []]
    for batch in scored_tokens(reader, options, sentences, back=0):
        counts = counted_ngrams(reader, 1, batch.log_chances.shape[1])
        last = np.zeros(int(batch.sentences.max()) + 1, dtype=np.int64)
        np.maximum.at(last, batch.sentences, batch.positions)
        unigram = -np.log(counts.unigram[batch.labels])
        found = (batch.losses, unigram, batch.positions, last[batch.sentences], batch.blocks)
        for part, values in zip(parts, found, strict=True):
            part.append(values)
    kinds = (np.float64, np.float64, np.int64, np.int64, np.int64)
    losses, unigram, positions, lengths, blocks = (
        np.concatenate([np.empty(0, dtype=kind), *part]) for part, kind in zip(parts, kinds, strict=True)
    )
    return TokenLosses(losses=losses, unigram=unigram, positions=positions, lengths=lengths, blocks=blocks)
