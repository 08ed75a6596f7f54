"""One token of each row: of a part of the question or the evidence, or a random word as its baseline."""

# B row

import numpy as np

from infoflow.foundation import stream

from ._edges import question_keys
from ._inputs import EVIDENCE_PARTS, FactInputs, TokenPart

NOWHERE = -1
_NAMED = (TokenPart.MASK, TokenPart.SUBJECT, TokenPart.EVIDENCE_SUBJECT, TokenPart.EVIDENCE_OBJECT)


def last_token(inputs: FactInputs, part: TokenPart) -> np.ndarray:
    """The place of the last token of a part, int64 (row,); −1 where a row has none."""
    there = inputs.parts == part
    last = there.shape[1] - 1 - there[:, ::-1].argmax(axis=1)
    return np.where(there.any(axis=1), last, NOWHERE)


def random_word(inputs: FactInputs, purpose: str, seed: int, *, of_passage: bool = False) -> np.ndarray:
    """The place of a word of each row, int64 (row,): no special token, no mask, and neither the subject nor its object;
    −1 where a row has none.

    Args:
        inputs: The rows.
        purpose: A part of the key of the draw.
        seed: Likewise.
        of_passage: Among the words of the passage alone.
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
    """The places as bool (row, token)."""
    return np.arange(num_tokens) == places[:, None]
