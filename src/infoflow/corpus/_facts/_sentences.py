"""Wordings of facts: five frames, four synonyms of each relation."""

from itertools import product

import numpy as np

from infoflow.foundation import hash64_array

from ._config import FactConfig
from ._fact import Question
from ._words import FactWords

# R relation, X subject, Y object; the rest are function words.
_FRAMES = (
    "the R of X is Y",
    "X has Y as R",
    "Y is the R of X",
    "as for the R of X , it is Y",
    "it is known that the R of X is Y",
)
_ROLES = {"R": "relation", "X": "subject", "Y": "object"}
_PASSAGE_SYNONYMS, _QUERY_SYNONYMS = (0, 1), (2, 3)
TEST_WORDINGS = ((4, 3), (0, 2))
"""Frames and synonyms of queries reserved for testing."""
TRAINING_WORDINGS = tuple(pair for pair in product(range(len(_FRAMES)), _QUERY_SYNONYMS) if pair not in TEST_WORDINGS)
"""The other eight."""


def sentence(
    fact: int, name: tuple[str, ...], relation: int, answer: tuple[str, ...], wording: tuple[int, int], words: FactWords
) -> Question:
    """The fact that `name` has `answer` in the relation, in the frame and synonym of `wording`."""
    frame, synonym = wording
    parts = {"R": (words.relations[relation][synonym],), "X": name, "Y": answer}
    spelt = [(word, _ROLES.get(slot, "")) for slot in _FRAMES[frame].split() for word in parts.get(slot, (slot,))]
    return Question(fact, tuple(word for word, _ in spelt), tuple(role for _, role in spelt), frame, synonym)


def query_wording(wording: tuple[int, int], config: FactConfig) -> tuple[int, int]:
    """The frame and synonym of a query: those of passages if the wording is the same."""
    frame, synonym = wording
    return (frame, synonym - len(_PASSAGE_SYNONYMS)) if config.wording == "same" else wording


def passage_wordings(facts: np.ndarray, seed: int) -> list[tuple[int, int]]:
    """Frame and synonym of each fact's sentence in its passage, by its hash."""
    frames = hash64_array(("facts-passage-frame", seed), facts) % np.uint64(len(_FRAMES))
    synonyms = hash64_array(("facts-passage-synonym", seed), facts) % np.uint64(len(_PASSAGE_SYNONYMS))
    return list(zip(frames.astype(int).tolist(), synonyms.astype(int).tolist(), strict=True))
