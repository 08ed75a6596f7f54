"""The lexicon of `grammar`: lemmas by word class, frequent ones first, each with its translation and gender."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from math import gcd

from infoflow.foundation import UserError, hash64


def listed(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


ENGLISH: dict[str, tuple[str, ...]] = {
    "noun": listed(
        """man house dog guard river child walk teacher garden cook woman street cat dream friend play doctor
        tree guide city book judge horse window nurse king song bird dance road letter rest farmer table
        pilot door talk ship boy paint girl queen mountain watch village soldier lamp bridge painter box
        church fox lady story market glass island wolf picture visit forest baker chair answer sailor tower
        key writer bottle"""
    ),
    "name": listed(
        """Mary John Anna Peter Clara Paul Emma Tom Lucy David Julia Mark Nora Simon Alice Leo Sarah Felix
        Laura Hugo"""
    ),
    "transitive": listed(
        """see know guard find like watch guide help judge follow love hear paint carry nurse visit remember
        call answer touch teach describe admire build catch fear hide lift push greet"""
    ),
    "intransitive": listed(
        "sleep walk run wait dance talk laugh rest sing dream smile play arrive swim fall work travel cry"
    ),
    "adjective": listed(
        """old small big young good new red quiet white happy black tall poor kind green strong rich blue tired
        brave clever sad dark cold gentle heavy famous strange warm proud"""
    ),
    "frequency": ("often", "never", "always", "rarely", "usually"),
    "manner": listed("quickly quietly slowly happily well badly carefully calmly loudly gladly early late"),
    "degree": ("very", "quite", "too", "rather", "extremely"),
    "preposition": ("in", "near", "with", "behind", "on", "for", "under", "beside", "without", "above"),
}
"""Word lists by class.

`guard`, `walk`, `dream`, `play` and a dozen others are nouns and verbs; `frequency` adverbs come before the verb,
`manner` adverbs after it.
"""

IRREGULAR_PLURALS = {"man": "men", "woman": "women", "child": "children", "wolf": "wolves"}

FUNCTION_WORDS = ("the", "a", "an", "that", "and", "or", "but", ".")

ALL_ENGLISH = frozenset(word for words in ENGLISH.values() for word in words) | {
    *FUNCTION_WORDS,
    *IRREGULAR_PLURALS.values(),
}


WordClass = str
"""`noun`, `name`, `transitive`, `intransitive`, `adjective`, `frequency`, `manner`, `degree` or `preposition`."""

SHARES = {
    "noun": 0.40,
    "name": 0.10,
    "transitive": 0.15,
    "intransitive": 0.10,
    "adjective": 0.17,
    "frequency": 0.02,
    "manner": 0.06,
}
"""Shares of the open vocabulary. The closed classes, `degree` and `preposition`, are listed above."""

MINIMUM_VOCABULARY = 100

_ONSETS = listed("b br c cl d dr f fl g gl gr h j k l m n p pl pr qu r s sc sl sp st t tr v w")
_VOWELS = listed("a e i o u ai ea oo")
_CODAS = listed("b d g k l m n nd nt p r rd rk rm rn t")  # none that changes before the ending -s
_TARGET_ONSETS = listed("b d f g j k l m n p r s t v z dj ts kr pr tr")
_TARGET_VOWELS = listed("a e i o u")
_TARGET_CODAS = listed("l n r k t x")


@dataclass(frozen=True, slots=True)
class Lemma:
    """A lemma. `plural` is the plural of a noun; for other words, verbs included, it is the lemma itself."""

    lemma: str
    singular: str
    plural: str
    target: str  # stem in the target language; a name is copied
    feminine: bool  # of nouns and names; not visible in the source


Lexicon = Mapping[WordClass, tuple[Lemma, ...]]
"""Entries by word class, most frequent first."""


@cache
def make_lexicon(vocabulary: int = 1000) -> Lexicon:
    """The lexicon with about `vocabulary` lemmas in its open classes: English words first, then invented ones.

    It is one fixed language, so a larger vocabulary only adds rarer words.
    Some words are both noun and verb (`the guards guard the walks`), with two translations.
    """
    if vocabulary < MINIMUM_VOCABULARY:
        raise UserError(f"vocabulary must be at least {MINIMUM_VOCABULARY}. Got {vocabulary}.")
    targets = _TargetStems()
    entries: dict[WordClass, tuple[Lemma, ...]] = {}
    for word_class, real in ENGLISH.items():
        size = max(5, round(SHARES[word_class] * vocabulary)) if word_class in SHARES else len(real)
        invented = invented_words(word_class)
        lemmas = [*real[:size], *islice(invented, max(0, size - len(real)))]
        entries[word_class] = tuple(_entry(word_class, lemma, targets) for lemma in lemmas)
    return entries


def _entry(word_class: WordClass, lemma: str, targets: "_TargetStems") -> Lemma:
    is_verb = word_class in ("transitive", "intransitive")
    with_s = add_s(lemma) if is_verb or word_class == "noun" else lemma
    singular, plural = (with_s, lemma) if is_verb else (lemma, with_s)
    feminine = bool(hash64("grammar-gender", lemma) % 2) if word_class in ("noun", "name") else False
    target = lemma if word_class == "name" else targets.stem(word_class, lemma)
    return Lemma(lemma, singular, plural, target, feminine)


def add_s(lemma: str) -> str:
    """The form in -s of a noun (plural; a few are irregular) or a verb (third person singular)."""
    if lemma in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[lemma]
    if lemma.endswith(("s", "x", "z", "ch", "sh")):
        return f"{lemma}es"
    if lemma.endswith("y") and lemma[-2] not in "aeiou":
        return f"{lemma[:-1]}ies"
    return f"{lemma}s"


def invented_words(word_class: WordClass) -> Iterator[str]:
    """An endless stream of English-looking words, in an order that hides their construction; classes share no words."""
    number = sorted(SHARES).index(word_class)
    ending = {"manner": "ly", "frequency": "times"}.get(word_class, "")
    for syllables in (2, 3, 4):
        for stem in _stems(syllables, _ONSETS, _VOWELS, _CODAS):
            if hash64("grammar-class", stem) % len(SHARES) == number and stem not in ALL_ENGLISH:
                word = stem + ending
                yield word.capitalize() if word_class == "name" else word


def _stems(syllables: int, onsets: tuple[str, ...], vowels: tuple[str, ...], codas: tuple[str, ...]) -> Iterator[str]:
    """Every stem with this many syllables, in a fixed pseudo-random order."""
    openings = list(product(onsets, vowels))
    total = len(openings) ** syllables * len(codas)
    step = int(total * 0.6180339887) | 1
    while gcd(step, total) != 1:  # a step coprime to the total visits each number once
        step += 2
    for visit in range(total):
        index = (visit * step + step // 2) % total
        index, coda = divmod(index, len(codas))
        parts: list[str] = []
        for _ in range(syllables):
            index, opening = divmod(index, len(openings))
            parts.append("".join(openings[opening]))
        yield "".join(parts) + codas[coda]


class _TargetStems:
    """Makes stems of the target language, each at most once."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def stem(self, word_class: WordClass, lemma: str) -> str:
        """A stem determined by class and lemma, unless an earlier lemma took it."""
        attempt = 0
        while (stem := self._stem(hash64("grammar-target", word_class, lemma, attempt))) in self._used:
            attempt += 1
        self._used.add(stem)
        return stem

    def _stem(self, number: int) -> str:
        parts: list[str] = []
        for inventory in (_TARGET_ONSETS, _TARGET_VOWELS, _TARGET_ONSETS, _TARGET_VOWELS, _TARGET_CODAS):
            number, choice = divmod(number, len(inventory))
            parts.append(inventory[choice])
        return "".join(parts)
