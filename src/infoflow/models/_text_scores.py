"""Scores of texts: corpus BLEU and ROUGE of generated texts; match, overlap and memorisation of answers."""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import (
    UserError,
    comparable,
    running_words,
    spacing_of,
    without_punctuation,
    words_and_signs,
    words_of,
)

# Corpus BLEU with its signature, and its sufficient statistics, which add up over groups of sentences, so that a
# bootstrap scores each group once.


BleuTokenizer = Literal["13a", "zh", "char"]
"""sacreBLEU's tokenizers: words and punctuation; the same with single Chinese characters; characters."""

_TOKENIZERS: dict[str, BleuTokenizer] = {"spaces": "13a", "han": "zh", "none": "char"}
_ORDER = 4


def bleu_tokenizer(references: Iterable[str]) -> BleuTokenizer:
    """The tokenizer for the script of the references: `13a` cannot split text without spaces.

    `13a` if most words are separated by spaces, `zh` for Chinese, `char` for other scripts without spaces (Japanese,
    Thai, Khmer, Lao, Burmese, Tibetan, …).

    >>> bleu_tokenizer(["He likes cats."]), bleu_tokenizer(["他喜欢猫。"]), bleu_tokenizer(["猫が好きです。"])
    ('13a', 'zh', 'char')
    """
    return _TOKENIZERS[spacing_of(references)]


@dataclass(frozen=True, kw_only=True, slots=True)
class BleuStatistics:
    """n-gram matches and lengths of a group of sentences."""

    counts: tuple[int, ...]  # ten: matched n-grams (n = 1..4), all n-grams of the hypotheses, lengths of both sides
    order: int = _ORDER  # the largest n that counts: words of the longest reference, at most 4
    signature: str = ""

    @classmethod
    def zero(cls) -> "BleuStatistics":
        return cls(counts=(0,) * (2 * _ORDER + 2), order=0)

    @classmethod
    def of(cls, counts: Sequence[float] | np.ndarray) -> "BleuStatistics":
        """The statistics from ten numbers as in `counts`, or from a sum of such arrays."""
        return cls(counts=tuple(int(number) for number in counts))

    def __add__(self, other: "BleuStatistics") -> "BleuStatistics":
        return BleuStatistics(
            counts=tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            order=max(self.order, other.order),
            signature=self.signature or other.signature,
        )

    def __mul__(self, weight: int) -> "BleuStatistics":
        """The group with multiplicity `weight`."""
        return replace(self, counts=tuple(weight * count for count in self.counts))

    @property
    def score(self) -> float:
        """Corpus BLEU in percent, as sacreBLEU computes it (exponential smoothing); 0 for no sentence."""
        *ngrams, said, right = self.counts
        if said == 0 or self.order == 0:
            return 0.0
        from sacrebleu.metrics.bleu import BLEU  # slow import

        return BLEU.compute_bleu(
            ngrams[: self.order],
            ngrams[_ORDER : _ORDER + self.order],
            said,
            right,
            smooth_method="exp",
            max_ngram_order=self.order,
        ).score


def bleu_by_block(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], blocks: np.ndarray
) -> dict[int, BleuStatistics]:
    """BLEU statistics of each block's sentences in lower case, with one tokenizer chosen from all references.

    Texts are lower-cased because the tokenizers of a study may do so; the signature shows it.
    """
    tokenizer = bleu_tokenizer(text for each in references for text in each)
    found = {}
    for block in np.unique(blocks).tolist():
        rows = np.flatnonzero(blocks == block)
        said, right = [hypotheses[row] for row in rows], [references[row] for row in rows]
        found[block] = bleu_statistics(said, right, lowercase=True, tokenizer=tokenizer)
    order = max((one.order for one in found.values()), default=0)
    return {block: replace(one, order=order) for block, one in found.items()}


def bleu_statistics(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    lowercase: bool = False,
    tokenizer: BleuTokenizer | None = None,
) -> BleuStatistics:
    """The statistics of a group of sentences, each with one or more references.

    Texts are normalised by `comparable` first. If no reference has four words, n-grams are counted only up to the
    longest reference's length, since sacreBLEU would give perfect translations 0.

    Groups that are added up need the same `tokenizer`, chosen from all references (`bleu_tokenizer`, the default here).

    Source: [@papineni2002], [@post2018].
    """
    references = [[comparable(text) for text in each] for each in references]
    every = [text for each in references for text in each]
    most = max(map(len, references))
    from sacrebleu.metrics.bleu import BLEU  # slow import

    # sacreBLEU needs as many streams as the largest number of references, with None where a sentence has fewer.
    streams = [[refs[i] if i < len(refs) else None for refs in references] for i in range(most)]
    tokenizer = tokenizer or bleu_tokenizer(every)
    # `force` silences a warning for output that looks tokenised; the signature still names the tokenizer.
    metric = BLEU(lowercase=lowercase, force=True, tokenize=tokenizer)
    found = metric.corpus_score([comparable(text) for text in hypotheses], streams)
    return BleuStatistics(
        counts=(*found.counts, *found.totals, found.sys_len, found.ref_len),
        order=_longest(metric.tokenizer, every),
        signature=str(metric.get_signature()),
    )


def _longest(divide: Callable[[str], str], texts: Iterable[str]) -> int:
    """Number of words of the longest text, at most four."""
    longest = 0
    for text in texts:
        longest = max(longest, len(divide(text).split()))
        if longest >= _ORDER:
            return _ORDER
    return longest


ROUGE = ("rougeL", "rouge1", "rouge2")


def rouge(said: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    r"""ROUGE-L, 1 and 2 of each text, from 0 to 1, float64 (text,).

    They are the F1 of the longest common subsequence, of words and of word pairs, each with the closest reference
    ([@lin2004]).

    $$ F = \frac{2 m}{|x| + |y|} $$

    where m is the number of matching words of text x and reference y. Words are those of `words_of`, ignoring case and
    compatibility forms; each character of a script without spaces is a word. In a text without words, such as emoji,
    symbols count as words. Porter's algorithm stems English words of more than three letters, as in ROUGE-1.5.5.
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
    """Number of words in the longest common subsequence, and in both texts together.

    In bit-parallel form: `row` has a 0 at each word of `said` where the subsequence up to the current word grows.
    """
    places: dict[str, int] = {}
    for index, word in enumerate(said):
        places[word] = places.get(word, 0) | 1 << index
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


Numbers = Tensor | np.ndarray | Sequence[Any]

_PUNCTUATION = str.maketrans("", "", string.punctuation)  # includes Unicode symbols such as $
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalise_answer(text: str) -> str:
    """The text in compatibility form and lower case, without punctuation and articles, with one space between words.

    Each character of a script without spaces is a word.

    Source: the evaluation script of [@rajpurkar2016]; punctuation and scripts without spaces are handled as in the
    script of [@lewis2020mlqa].

    >>> normalise_answer("The  Beatles' (band)!"), normalise_answer("北京大学。")
    ('beatles band', '北 京 大 学')
    """
    text = comparable(text).lower()
    return " ".join(running_words(_ARTICLES.sub(" ", without_punctuation(text.translate(_PUNCTUATION)))))


def exact_match(prediction: str, answers: str | Sequence[str]) -> bool:
    """Whether the prediction equals an answer after `normalise_answer`."""
    return normalise_answer(prediction) in map(normalise_answer, _several(answers))


def token_f1(prediction: str, answers: str | Sequence[str]) -> float:
    """F1 of the words shared by prediction and answer, the best over answers; words as in `normalise_answer`.

    If either side has no words, F1 is 1 if both have none, else 0.
    """
    return max(_f1(normalise_answer(prediction).split(), normalise_answer(one).split()) for one in _several(answers))


def contains_answer(passage: str, answers: str | Sequence[str]) -> bool:
    """Whether the passage contains an answer's words in sequence, ignoring case and the encoding of accents.

    Articles count as words, as does each character of a script without spaces. An answer without words is never
    contained.
    """
    words = _answer_words(passage)
    return any(_contiguous(words, _answer_words(answer)) for answer in _several(answers))


def memorisation_ratio(answers: Sequence[str], old: Sequence[str], new: Sequence[str]) -> float:
    r"""\(p_o / (p_o + p_s)\): among queries whose passage contradicts memory, the share answered from memory.

    \(p_o\) and \(p_s\) are the shares of queries answered with the old object (from training) and with the new object
    (from the passage); NaN where both are 0.

    Source: [@longpre2021entity].
    """
    if not len(answers) == len(old) == len(new):
        raise UserError(f"Each answer needs an old and a new object. Got {len(answers)}, {len(old)} and {len(new)}.")
    remembered = sum(exact_match(said, one) for said, one in zip(answers, old, strict=True))
    read = sum(exact_match(said, one) for said, one in zip(answers, new, strict=True))
    return remembered / (remembered + read) if remembered + read else float("nan")


def stored_bits(log_probabilities: Numbers, choices: Numbers | int) -> Float[Tensor, " fact"]:
    r"""\(\log_2 m + \log_2 p(o)\): bits that a model stores about each fact; negative if it is confidently wrong.

    Args:
        log_probabilities: (fact,), \(\log p(o)\) in nats, renormalised over the m objects of the relation.
        choices: m for each fact, or one for all.
    """
    logs = torch.as_tensor(log_probabilities)
    counts = torch.as_tensor(choices, dtype=logs.dtype, device=logs.device)
    if bool((counts < 1).any()) or (counts.ndim and counts.shape != logs.shape):
        raise UserError(
            f"choices must be at least 1: one number for all or for each of {len(logs)} facts. Got {choices}."
        )
    return (counts.log() + logs) / np.log(2)


def _several(answers: str | Sequence[str]) -> Sequence[str]:
    several = [answers] if isinstance(answers, str) else answers
    if not several:
        raise UserError("A prediction is compared with at least one answer. Got none.\nLeave the question out.")
    return several


def _f1(said: list[str], wanted: list[str]) -> float:
    if not said or not wanted:
        return float(said == wanted)
    return _f(_shared, said, wanted)


def _answer_words(text: str) -> list[str]:
    return words_of(comparable(text, decompose=True).lower())


def _contiguous(words: list[str], wanted: list[str]) -> bool:
    size = len(wanted)
    return size > 0 and any(words[start : start + size] == wanted for start in range(len(words) - size + 1))
