"""Train, validation and test parts by the hash of the source sentence, so that no source lies in two parts."""

import hashlib
import unicodedata
from collections.abc import Iterable

import numpy as np

from infoflow.foundation import UserError


def split_numbers(texts: Iterable[str], seed: int) -> np.ndarray:
    """A number in [0, 1) for each source sentence, a function of (seed, sentence) only.

    Case, spacing and compatibility forms are ignored (NFKC): a tokenizer that lower-cases or normalises would otherwise
    see one sentence in two parts: `Go.` and `go.`, `H₂O` and `H2O`, `é` written as one character or as two.
    """
    key = f"split-{seed}".encode()
    hashes = (hashlib.blake2b(_normal(text), key=key, digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(hashes), dtype="<u8") / 2.0**64


def check_shares(validation: float, test: float) -> None:
    """Raise a UserError unless the shares leave something for training."""
    for name, share in (("validation", validation), ("test", test)):
        if not 0 <= share < 1:
            raise UserError(f"{name} is a share of the corpus in [0, 1). Got {share}.")
    if validation + test >= 1:
        raise UserError(f"validation + test must be below 1, to leave a training part. Got {validation + test}.")


def _normal(text: str) -> bytes:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).encode("utf-8", "surrogatepass")
