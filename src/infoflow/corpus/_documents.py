"""Documents: numbered while reading, hashed by their sentences, and their unbroken stretches."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from infoflow.foundation import UserError, as_written, hash64, hash64_array

from ._columns import Row
from ._values import is_missing


def number_documents(rows: Iterable[Row | None], where: str) -> Iterator[Row | None]:
    """The rows with a number, from 0, for each name in `document`.

    Raises:
        UserError: A row has no document, or one that ended before.
    """
    seen: set[int] = set()  # hashes: names may be long
    current: Any = None
    for number, row in enumerate(rows, start=1):
        if row is not None:
            name = row["document"]
            if is_missing(name) or not isinstance(name, str | int | float | np.integer | np.floating) or name == "":
                raise UserError(
                    f"{where}, {number}: the document column must not be empty. Got {as_written(name)}.\n"
                    "Fill in the name or number of the document in every row, or name another column."
                )
            if not seen or name != current:
                current, key = name, hash64("document", str(name))
                if key in seen:
                    raise UserError(
                        f"{where}, {number}: the sentences of a document must be consecutive. "
                        f"{as_written(name)} occurs again after another document.\nSort the rows by document."
                    )
                seen.add(key)
            row = {**row, "document": len(seen) - 1}
        yield row


def stretches(documents: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """int64 (sentence,): a number, from 0, for each run of consecutive sentences of one document.

    A part of a corpus may lack sentences of a document: the texts before and after the gap are not contiguous.

    Args:
        documents: Document of each sentence, int64 (sentence,).
        ids: `Corpus.ids` of the same sentences.
    """
    if len(documents) == 0:
        return np.zeros(0, dtype=np.int64)
    begins = (np.diff(documents) != 0) | (np.diff(ids) != 1)
    return np.concatenate([[0], np.cumsum(begins)])


def document_hashes(hashes: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """uint64 (sentence,): a hash of each sentence's document, from its sentences' hashes in order.

    Args:
        hashes: Hash of each sentence, uint64 (sentence,).
        documents: Document of each sentence, int64 (sentence,).
    """
    order = np.argsort(documents, kind="stable")
    starts = np.flatnonzero(np.diff(documents[order], prepend=documents[order][:1] - 1))
    lengths = np.diff(starts, append=len(order))
    places = np.arange(len(order)) - np.repeat(starts, lengths)
    sums = np.add.reduceat(hash64_array(("place",), hashes[order].view(np.int64), places), starts)  # modulo 2^64
    result = np.empty(len(order), dtype=np.uint64)
    result[order] = np.repeat(hash64_array(("document",), sums.view(np.int64), lengths), lengths)
    return result


def most_of_document(found: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Whether at least half of the sentences of each sentence's document were found: bool (sentence,)."""
    _, document, sizes = np.unique(documents, return_inverse=True, return_counts=True)
    return (2 * np.bincount(document, weights=found, minlength=len(sizes)) >= sizes)[document]
