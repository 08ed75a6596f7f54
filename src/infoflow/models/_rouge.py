"""ROUGE: the overlap of a generated text with a reference."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import pairwise

import numpy as np

from infoflow.foundation import comparable, words_and_signs, words_of

ROUGE = ("rougeL", "rouge1", "rouge2")


def rouge(said: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    r"""ROUGE-L, 1 and 2 of each text, from 0 to 1, float64 (text,).

    F of the longest common subsequence, of words and of word pairs, with the closest reference ([@lin2004]).

    $$ F = \frac{2 m}{|x| + |y|} $$

    where m is the number of matching words of text x and reference y. Words are those of `words_of`, ignoring case and
    compatibility forms; each character of a script without spaces is one. In a text without words, such as emoji,
    symbols count as words. English words of more than three letters are stemmed by Porter's algorithm, as in
    ROUGE-1.5.5.
    """
    known = {text: _words(text) for text in {*said, *(one for right in references for one in right)}}
    each = [[(known[text], known[one]) for one in right] for text, right in zip(said, references, strict=True)]
    return {
        kind: np.array([max((_f(_MATCHES[kind], *pair) for pair in pairs), default=0.0) for pairs in each])
        for kind in ROUGE
    }


def _words(text: str) -> list[str]:
    plain = comparable(text).lower().replace("_", " ")
    words = words_of(plain) or words_and_signs(plain)
    return [_stem(word) if len(word) > 3 and word.isascii() else word for word in words]


@lru_cache(1 << 16)
def _stem(word: str) -> str:
    return _stemmer()(word)


@cache
def _stemmer() -> Callable[[str], str]:
    from snowballstemmer import stemmer  # slow import

    return stemmer("porter").stemWord


def _f(matches: Callable[[list[str], list[str]], tuple[int, int]], said: list[str], right: list[str]) -> float:
    matched, of = matches(said, right)
    return 2 * matched / of if of else 0.0


def _subsequence(said: list[str], right: list[str]) -> tuple[int, int]:
    """Number of words of the longest common subsequence, and of both texts.

    In bit-parallel form: `row` has a 0 at each word of `said` where the subsequence up to the current word grows.
    """
    places: dict[str, int] = {}
    for place, word in enumerate(said):
        places[word] = places.get(word, 0) | 1 << place
    every = (1 << len(said)) - 1
    row = every
    for word in right:
        hits = row & places.get(word, 0)
        row = (row + hits | row - hits) & every
    return len(said) - row.bit_count(), len(said) + len(right)


def _shared(said: Sequence, right: Sequence) -> tuple[int, int]:
    return (Counter(said) & Counter(right)).total(), len(said) + len(right)


_MATCHES: dict[str, Callable[[list[str], list[str]], tuple[int, int]]] = {
    "rougeL": _subsequence,
    "rouge1": _shared,
    "rouge2": lambda said, right: _shared(list(pairwise(said)), list(pairwise(right))),
}
