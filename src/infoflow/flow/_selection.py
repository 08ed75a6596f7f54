"""Which occurrences the token sample holds, decided from tokens alone."""

import numpy as np

from infoflow.corpus import NOT_A_WORD
from infoflow.foundation import hash64_array

from ._activations import Regime
from ._reader import Reader, Row
from ._sample import Occurrences

_BUFFERED_ROWS = 20_000  # sentences between two prunings: bounds memory on any corpus


def select_occurrences(reader: Reader, stack: str, regime: Regime, num: int, draws: int = 1) -> Occurrences:
    """The `num` occurrences with the lowest hash of (seed, sentence id, word, draw), in that order.

    Hashing the word, not the token, makes models with different tokenizers sample the same words.
    """
    kept, buffer = _empty(), []
    for draw in range(draws):
        for row, sentence in reader.candidates(stack, regime, draw):
            buffer.append(_columns(reader, row, sentence, draw))
            if len(buffer) == _BUFFERED_ROWS:
                kept, buffer = _lowest([kept, *buffer], num, reader.seed), []
    return _named(_lowest([kept, *buffer], num, reader.seed))


def _columns(reader: Reader, row: int, sentence: Row, draw: int) -> np.ndarray:
    """(9, probe) int64, in the order of `Occurrences`' fields."""
    at = sentence.probes
    padded = np.concatenate([[-1], np.where(sentence.special, -1, sentence.clean), [-1]])
    constant = np.ones(len(at), dtype=np.int64)
    return np.stack(
        [
            constant * int(reader.corpus.ids[row]),
            constant * row,
            at,
            sentence.tokens[at],
            sentence.labels[at],
            padded[at],
            padded[at + 2],
            sentence.words[at],
            constant * draw,
        ]
    )


def _lowest(parts: list[np.ndarray], num: int, seed: int) -> np.ndarray:
    table = np.concatenate(parts, axis=1)
    sentence, _, position, *_, word, draw = table
    place = np.where(word == NOT_A_WORD, position, word)  # slow tokenizers know no words
    # Ties of 64-bit hashes are broken by place, so that the order never depends on batches or shards.
    order = np.lexsort((position, sentence, draw, hash64_array(("token-sample", seed), sentence, place, draw)))
    return table[:, order[:num]]


def _empty() -> np.ndarray:
    return np.empty((len(Occurrences.__dataclass_fields__), 0), dtype=np.int64)


def _named(table: np.ndarray) -> Occurrences:
    return Occurrences(**dict(zip(Occurrences.__dataclass_fields__, table, strict=True)))
