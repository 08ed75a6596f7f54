"""Data about sampled tokens that need no model."""

from dataclasses import dataclass, fields, replace

import numpy as np


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Occurrences:
    """Data about each sampled token that need no model: columns of equal length, in sampling order."""

    sentence: np.ndarray  # int64, `Corpus.content_ids`
    row: np.ndarray  # int64, row of the encoded corpus
    position: np.ndarray  # int64, index among the row's tokens, special tokens included
    token: np.ndarray  # int64, input id as the model reads it (after corruption)
    label: np.ndarray  # int64, id to predict, −100 where nothing is predicted
    previous: np.ndarray  # int64, id of the preceding token, uncorrupted; −1 at the start or after a special token
    next: np.ndarray  # int64, id of the following token, uncorrupted; −1 at the end or before a special token
    word: np.ndarray  # int64, index of its word
    draw: np.ndarray  # int64, number of the pass over the corpus (training regime repeats with new noise)
    subword: np.ndarray  # int64, index of the token in its word: 0 = first
    subwords: np.ndarray  # int64, number of tokens of its word
    word_type: np.ndarray  # int64, hash of the word's token ids: equal words have equal numbers

    def __len__(self) -> int:
        return len(self.sentence)

    def take(self, index: np.ndarray) -> "Occurrences":
        return replace(self, **{field.name: getattr(self, field.name)[index] for field in fields(self)})
