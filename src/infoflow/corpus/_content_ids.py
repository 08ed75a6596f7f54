"""Sentence numbers derived from the text, so that choices and blocks do not depend on line order."""

import hashlib
import json
from collections.abc import Callable, Iterable

import numpy as np

from infoflow.foundation import block_of, hash64_array

from ._near_duplicates import normalised

Rest = Callable[[np.ndarray], Iterable[object]]


def content_ids(texts: Iterable[str], rest: Rest) -> np.ndarray:
    """int64 (sentence,): a hash of the text and of the sentence's index among those with the same text.

    Sentences with the same text are numbered by a hash of their other columns: their translations and trees. Sentences
    equal in all columns are interchangeable.

    Sentences that differ only in case, spacing and compatibility forms share a bootstrap block. `block_of` depends only
    on the id, so a repeat's id is drawn until it falls into the block of the first.

    Args:
        texts: The text of every sentence.
        rest: The other columns of the sentences at these rows, as plain values; called for repeated texts only.
    """
    own, alike = _own_and_normalised(texts)
    number = np.zeros(len(own), dtype=np.int64)
    _, of_text, copies = np.unique(own, return_inverse=True, return_counts=True)
    repeated = np.flatnonzero(copies[of_text] > 1)
    if len(repeated):
        others = _hashes(json.dumps(each, sort_keys=True).encode() for each in rest(repeated))
        order = np.lexsort((others, own[repeated]))
        ordered = own[repeated][order]
        number[repeated[order]] = np.arange(len(order)) - np.searchsorted(ordered, ordered, side="left")
    return _in_blocks(own.view(np.int64), number, alike)


def text_ids(texts: Iterable[str]) -> np.ndarray:
    """int64 (sentence,): a hash of each text without regard to case, spacing and compatibility forms."""
    return (_hashes(_bytes(normalised(text)) for text in texts) >> np.uint64(1)).astype(np.int64)


def text_hashes(texts: Iterable[str]) -> np.ndarray:
    """uint64 (sentence,): a hash of each text."""
    return _hashes(_bytes(text) for text in texts)


def _in_blocks(own: np.ndarray, number: np.ndarray, alike: np.ndarray) -> np.ndarray:
    """Ids of sentences whose texts have these hashes; sentences with equal `alike` get ids of one block."""
    ids = _ids(own, number)
    _, of_group, sizes = np.unique(alike, return_inverse=True, return_counts=True)
    several = np.flatnonzero(sizes[of_group] > 1)
    if len(several) == 0:
        return ids
    # The first of a group would be in the corpus without repeats too: its id stays.
    ordered = several[np.lexsort((own[several], number[several], of_group[several]))]
    starts = np.concatenate([[True], of_group[ordered][1:] != of_group[ordered][:-1]])
    wanted = block_of(ids[ordered[starts]])[starts.cumsum() - 1]
    rows, attempt = ordered, 0
    while (wrong := block_of(ids[rows]) != wanted).any():
        rows, wanted, attempt = rows[wrong], wanted[wrong], attempt + 1
        ids[rows] = _ids(own[rows], number[rows], np.full(len(rows), attempt))
    return ids


def _ids(*columns: np.ndarray) -> np.ndarray:
    return (hash64_array(("sentence",), *columns) >> np.uint64(1)).astype(np.int64)


def _own_and_normalised(texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of each text and of its normalised form, in one pass."""
    both = _hashes(_bytes(each) for text in texts for each in (text, normalised(text))).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1].copy()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _hashes(values: Iterable[bytes]) -> np.ndarray:
    parts = (hashlib.blake2b(value, digest_size=8).digest() for value in values)
    return np.frombuffer(b"".join(parts), dtype="<u8").astype(np.uint64)
