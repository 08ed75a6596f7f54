"""The loss of every predicted token of some sentences, and its position: cached for all measures that need it."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float, Int

from infoflow.flow import PassOptions, Reader

from ._counted import counted_ngrams
from ._scored_tokens import ScoredTokens, scored_tokens


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TokenLosses:
    """Predicted tokens of the chosen sentences."""

    losses: Float[np.ndarray, " N"]  # nats
    unigram: Float[np.ndarray, " N"]  # of the same tokens, from their frequency in the counted corpus
    labels: Int[np.ndarray, " N"]
    positions: Int[np.ndarray, " N"]  # among the sentence's ordinary tokens, from 1
    lengths: Int[np.ndarray, " N"]  # the last predicted position of the sentence
    blocks: Int[np.ndarray, " N"]
    types: int  # that the model can predict


_HELD: WeakKeyDictionary[Reader, dict[Any, TokenLosses]] = WeakKeyDictionary()
_KINDS = {"losses": np.float64, "unigram": np.float64}


def token_losses(reader: Reader, options: PassOptions, sentences: int | None) -> TokenLosses:
    """Losses on `sentences` sentences, chosen by a hash of their text.

    The model runs once for all measures of a reader.
    """
    held = _HELD.setdefault(reader, {})
    key = (sentences, options)
    if key not in held:
        for _ in scored_and_kept(reader, options, sentences, back=0):
            pass
    return held[key]


def scored_and_kept(reader: Reader, options: PassOptions, sentences: int | None, back: int) -> Iterator[ScoredTokens]:
    """`scored_tokens`, whose losses are available in `token_losses` after all batches."""
    parts = list[TokenLosses]()
    for batch in scored_tokens(reader, options, sentences, back):
        parts.append(_losses(reader, batch))
        yield batch
    _HELD.setdefault(reader, {})[sentences, options] = _joined(parts)


def _losses(reader: Reader, batch: ScoredTokens) -> TokenLosses:
    counts = counted_ngrams(reader, 1, batch.log_chances.shape[1])
    last = np.zeros(int(batch.sentences.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(last, batch.sentences, batch.positions)
    return TokenLosses(
        losses=batch.losses,
        unigram=-np.log(counts.unigram[batch.labels]),
        labels=batch.labels,
        positions=batch.positions,
        lengths=last[batch.sentences],
        blocks=batch.blocks,
        types=batch.log_chances.shape[1],
    )


def _joined(parts: list[TokenLosses]) -> TokenLosses:
    joined = {}
    for name in (field.name for field in fields(TokenLosses) if field.name != "types"):
        empty = np.empty(0, dtype=_KINDS.get(name, np.int64))
        joined[name] = np.concatenate([empty, *(getattr(each, name) for each in parts)])
    return TokenLosses(**joined, types=parts[0].types if parts else 0)
