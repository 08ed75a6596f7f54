"""One token of each row: from a part of the question or evidence, or a random word as baseline."""

# B row

import numpy as np

from infoflow.foundation import stream

from ._edges import question_keys
from ._inputs import EVIDENCE_PARTS, FactInputs, TokenPart

NOWHERE = -1
_NAMED = (TokenPart.MASK, TokenPart.SUBJECT, TokenPart.EVIDENCE_SUBJECT, TokenPart.EVIDENCE_OBJECT)


def last_token(inputs: FactInputs, part: TokenPart) -> np.ndarray:
    """The position of the last token of a part, int64 (row,); −1 if a row has none."""
    there = inputs.parts == part
    last = there.shape[1] - 1 - there[:, ::-1].argmax(axis=1)
    return np.where(there.any(axis=1), last, NOWHERE)


def random_word(inputs: FactInputs, purpose: str, seed: int, *, of_passage: bool = False) -> np.ndarray:
    """The position of a random word in each row, int64 (row,); −1 if there is none.

    Special tokens, masks, the subject and its object are excluded.

    Args:
        inputs: Input rows.
        purpose: Part of the key of the draw.
        seed: Also part of the key.
        of_passage: Draw only from the words of the passage.
    """
    left_out = [TokenPart.PAD, TokenPart.SPECIAL, *_NAMED]
    there = ~np.isin(inputs.parts, left_out)
    if of_passage:
        there &= np.isin(inputs.parts, EVIDENCE_PARTS)
    found = np.full(len(inputs), NOWHERE)
    for row, key in enumerate(question_keys(inputs)):
        places = np.flatnonzero(there[row])
        if len(places):
            found[row] = stream("evidence-word", purpose, seed, *key).choice(places)
    return found


def at(places: np.ndarray, num_tokens: int) -> np.ndarray:
    """The positions as bool (row, token)."""
    return np.arange(num_tokens) == places[:, None]
