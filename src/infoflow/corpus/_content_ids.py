"""A number of each sentence that its text decides: what is chosen by it does not depend on the order of lines."""

import hashlib
import json
from collections.abc import Callable, Iterable

import numpy as np

from infoflow.foundation import hash64_array

Rest = Callable[[np.ndarray], Iterable[object]]


def content_ids(texts: Iterable[str], rest: Rest) -> np.ndarray:
    """int64 (sentence,): a hash of the text and of the sentence's number among those of the same text.

    Sentences of one text are numbered in the order of a hash of everything else that is known of them: of their
    translations and trees. Those that are equal in all are the same sentence, whichever comes first.

    Args:
        texts: Of every sentence.
        rest: What else the sentences at these rows have, as plain values; asked for repeated texts only.
    """
    own = text_hashes(texts)
    number = np.zeros(len(own), dtype=np.int64)
    _, of_text, copies = np.unique(own, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(copies[of_text] > 1)
    if len(repeated):
        others = _hashes(json.dumps(each, sort_keys=True).encode() for each in rest(repeated))
        order = np.lexsort((others, own[repeated]))
        ordered = own[repeated][order]
        number[repeated[order]] = np.arange(len(order)) - np.searchsorted(ordered, ordered, side="left")
    hashes = hash64_array(("sentence",), own.view(np.int64), number)
    return (hashes >> np.uint64(1)).astype(np.int64)


def text_hashes(texts: Iterable[str]) -> np.ndarray:
    """uint64 (sentence,): a hash of each text."""
    return _hashes(text.encode("utf-8", "surrogatepass") for text in texts)


def _hashes(values: Iterable[bytes]) -> np.ndarray:
    parts = (hashlib.blake2b(value, digest_size=8).digest() for value in values)
    return np.frombuffer(b"".join(parts), dtype="<u8").astype(np.uint64)
