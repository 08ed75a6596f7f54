"""Tasks that detect a changed sentence: two words swapped, a word replaced, two clauses exchanged."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import dropwhile

import numpy as np

from ._questions import Ask, AskedSentence, Kind, ProbeQuestion, Written, always, is_word
from ._subtrees import span, subtrees, universal

ORIGINAL, CHANGED = "original", "changed"
_REPLACED = {"NOUN", "VERB"}
_PAIRED = frozenset('()[]"“”‘’«»') | {"''", "``", "-LRB-", "-RRB-"}  # marks that a swap would separate
_CLOSEST = 10  # candidates for a replacement: the words of nearest frequency


def _half(sentence: AskedSentence, changed: Written) -> ProbeQuestion:
    """The original sentence or the changed one: a hash of the text picks one, each for half of the sentences."""
    original = sentence.draw("changed").random() < 0.5
    written = sentence.written if original else changed
    label = ORIGINAL if original else CHANGED
    return ProbeQuestion(first=(0, len(written.words)), label=label, written=written)


def _bigram_shift(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """Swaps two adjacent words at a random position where neither is punctuation nor part of a longer written word."""
    written = sentence.written
    words = written.words
    places = [
        place
        for place in range(len(words) - 1)
        if words[place].lower() != words[place + 1].lower()
        and is_word(words[place])
        and is_word(words[place + 1])
        and not any(map(written.splits, (place - 1, place, place + 1)))
    ]
    if not places:
        left_out["sentences without two different words that follow each other"] += 1
        return
    place = int(sentence.draw("swap").choice(places))
    swapped = (*words[:place], words[place + 1], words[place], *words[place + 2 :])
    yield _half(sentence, replace(written, words=swapped))


def _coordination_inversion(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """Exchanges two coordinated main clauses around the conjunction; needs sentences with exactly two."""
    changed = _exchanged(sentence)
    if changed is None:
        left_out["sentences that are not two coordinated clauses"] += 1
    else:
        yield _half(sentence, changed)


def _exchanged(sentence: AskedSentence) -> Written | None:
    """The sentence with its two clauses exchanged; None unless it is two clauses around one conjunction."""
    heads, relations = sentence.heads(), [universal(relation) for relation in sentence.tags("deprel")]
    if heads.count(-1) != 1 or _PAIRED.intersection(sentence.words):
        return None
    root = heads.index(-1)
    joined = [word for word, head in enumerate(heads) if head == root and relations[word] == "conj"]
    inside = subtrees(heads)[joined[0]] if len(joined) == 1 else []
    inside = list(dropwhile(lambda word: relations[word] == "punct", inside))  # a comma before the conjunction
    if len(inside) < 2 or relations[inside[0]] != "cc" or "cc" in [relations[word] for word in inside[1:]]:
        return None
    clause = span(inside[1:])
    before = next((word for word in range(inside[0], 0, -1) if relations[word - 1] != "punct"), 0)
    if clause is None or before == 0 or any(relations[word] != "punct" for word in range(clause[1], len(heads))):
        return None
    subjects = [word for word, relation in enumerate(relations) if relation == "nsubj"]
    if {root, joined[0]} - {heads[word] for word in subjects}:
        return None
    return _joined(sentence, (0, before), (before, clause[0]), clause, clause[1])


def _joined(
    sentence: AskedSentence, first: tuple[int, int], middle: tuple[int, int], second: tuple[int, int], end: int
) -> Written:
    """Second clause, conjunction, first clause, final punctuation; the capital letter stays at the front."""
    words, spaces = list(sentence.written.words), [*sentence.written.spaces, ""]
    upos = sentence.tags("upos") if sentence.sentence.upos else [""] * len(words)
    if words[0][:1].isupper() and words[0] != "I" and upos[0] != "PROPN":
        words[0] = words[0][:1].lower() + words[0][1:]
        words[second[0]] = words[second[0]][:1].upper() + words[second[0]][1:]
    # The space behind a clause belongs to its position in the sentence, not to the clause.
    spaces[first[1] - 1], spaces[second[1] - 1] = spaces[second[1] - 1], spaces[first[1] - 1]
    order = [*range(*second), *range(*middle), *range(*first), *range(end, len(words))]
    return Written(words=tuple(words[at] for at in order), spaces=tuple(spaces[at] for at in order[:-1]))


def _odd_man_out(train: Callable[[], Iterable[AskedSentence]]) -> Ask:
    """Replaces a noun or verb by another word of the same part of speech and a similar frequency.

    SentEval matches the frequency of the bigrams on both sides in a very large corpus; here the word's own is matched.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train():
        for word, tag in _tagged(sentence):
            if tag:
                counts[tag][word] += 1
    ranked = {tag: sorted(words, key=lambda w: (-words[w], w)) for tag, words in counts.items()}
    place = {(tag, word): rank for tag, words in ranked.items() for rank, word in enumerate(words)}

    def ask(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        tagged = list(_tagged(sentence))
        places = [index for index, (word, tag) in enumerate(tagged) if (tag, word) in place and len(ranked[tag]) > 1]
        if not places:
            left_out["sentences without a noun or verb that another could replace"] += 1
            return
        numbers = sentence.draw("odd")
        index = int(numbers.choice(places))
        word, tag = tagged[index]
        other = _like(word, ranked[tag], place[tag, word], numbers)
        words = sentence.written.words
        yield _half(sentence, replace(sentence.written, words=(*words[:index], other, *words[index + 1 :])))

    return ask


def _tagged(sentence: AskedSentence) -> Iterator[tuple[str, str]]:
    """Each word with its finest part of speech, so that plurals replace plurals; "" for words that are not replaced."""
    upos = sentence.tags("upos")
    fine = sentence.tags("xpos") if "xpos" in sentence.sentence.tags else upos
    for word, tag, kind in zip(sentence.words, fine, upos, strict=True):
        yield word, (f"{kind} {tag}" if kind in _REPLACED else "")


def _like(word: str, ranked: list[str], rank: int, numbers: np.random.Generator) -> str:
    start = max(0, min(rank - _CLOSEST // 2, len(ranked) - _CLOSEST - 1))
    near = [other for other in ranked[start : start + _CLOSEST + 1] if other != word]
    return near[int(numbers.integers(len(near)))]


CHANGED_TASKS: dict[str, Kind] = {
    "bigram-shift": Kind(
        unit="sentence",
        about="whether two words that follow each other were swapped",
        begin=always(_bigram_shift),
        changes=True,
    ),
    "coordination-inversion": Kind(
        unit="sentence",
        about="whether two coordinated main clauses were exchanged",
        needs=("head", "deprel"),
        begin=always(_coordination_inversion),
        changes=True,
    ),
    "odd-man-out": Kind(
        unit="sentence",
        about="whether a noun or verb was replaced by another",
        needs=("upos",),
        begin=_odd_man_out,
        changes=True,
    ),
}
