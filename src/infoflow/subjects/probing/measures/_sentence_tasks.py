"""Tasks on whole sentences: length, words, tree, number, tense, and whether the sentence was changed."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import dropwhile

import numpy as np

from ._questions import Ask, Kind, ProbeQuestion, QuestionedSentence, Written, always, bin_name, bins, is_word
from ._word_tasks import TREE, dependents, depth, span, subtrees, universal

# SentEval's tasks [@conneau2018cram] on the user's sentences; tasks that change them are below.


BINS = 6  # bins of `length` and `tree-depth`, with about the same number of training sentences each
CONTENT_WORDS = 1000  # number of words that `word-content` distinguishes
LEAST_OF_WORD = 5  # minimum number of training sentences that contain a word of `word-content`
SEQUENCES = 19  # number of sequences that `top-constituents` distinguishes; all others are one class
OTHER = "other"

Read = Iterable[QuestionedSentence]
_NUMBER = {"NN": "Sing", "NNS": "Plur", "Sing": "Sing", "Plur": "Plur"}
_TENSE = {"VBD": "Past", "VBP": "Pres", "VBZ": "Pres", "Past": "Past", "Pres": "Pres"}
_FINITE = ("aux", "cop")


def _whole(sentence: QuestionedSentence, label: str) -> ProbeQuestion:
    return ProbeQuestion(first=sentence.whole, label=label)


def _binned(value: Callable[[QuestionedSentence], int]) -> Callable[[Callable[[], Read]], Ask]:
    """A number computed for each sentence, in bins chosen on the training sentences."""

    def begin(train: Callable[[], Read]) -> Ask:
        bounds = bins([value(sentence) for sentence in train()], BINS)

        def ask(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
            yield _whole(sentence, bin_name(value(sentence), bounds))

        return ask

    return begin


def _word_content(train: Callable[[], Read]) -> Ask:
    """The one word of a list that a sentence contains; the list holds words of medium frequency.

    SentEval uses words of rank 2,000 to 3,000 in a large corpus. Here the list has the most frequent words after the
    first 100, if they occur in at least `LEAST_OF_WORD` training sentences.
    """
    counts = Counter(word for sentence in train() for word in {word.lower() for word in sentence.words})
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[100 : 100 + CONTENT_WORDS]
    listed = {word for word in ranked if counts[word] >= LEAST_OF_WORD and _is_letters(word)}

    def ask(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        found = [word.lower() for word in sentence.words if word.lower() in listed]
        if len(found) == 1:
            yield _whole(sentence, found[0])
        else:
            left_out["sentences with several words of the list" if found else "sentences with no word of the list"] += 1

    return ask


def _is_letters(word: str) -> bool:
    """Whether a word consists of letters, with combining marks as in Devanagari."""
    return all(unicodedata.category(sign)[0] in "LM" for sign in word)


def _top_constituents(train: Callable[[], Read]) -> Ask:
    """The relations of the root's dependents in order, with `root` among them; rare sequences form one class.

    SentEval uses the categories below S in a phrase-structure tree; the version for dependencies is ours.
    """
    counts = Counter(sequence for sentence in train() if (sequence := _below_root(sentence)))
    common = sorted(counts, key=lambda sequence: (-counts[sequence], sequence))[:SEQUENCES]

    def ask(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        if sequence := _below_root(sentence):
            yield _whole(sentence, sequence if sequence in common else OTHER)
        else:
            left_out["sentences without one root"] += 1

    return ask


def _below_root(sentence: QuestionedSentence) -> str | None:
    heads, relations = sentence.heads(), sentence.tags("deprel")
    if heads.count(-1) != 1:
        return None
    root = heads.index(-1)
    places = sorted([root, *dependents(root, heads)])
    return " ".join(universal(relations[word]) for word in places if universal(relations[word]) != "punct")


def _number_of(relation: str) -> Ask:
    """The number of the root's subject or object: from FEATS (column `number`), or else from `NN` and `NNS`."""

    def ask(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        heads, relations = sentence.heads(), sentence.tags("deprel")
        roots = [word for word, head in enumerate(heads) if head == -1]
        found = [word for root in roots for word in dependents(root, heads) if universal(relations[word]) == relation]
        values = _values(sentence, found, "number", _NUMBER)
        if len(values) == 1:
            yield _whole(sentence, values[0])
        else:
            left_out["sentences with several" if values else "sentences without a noun of known number there"] += 1

    return ask


def _tense(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """Past or present: the tense of the finite verb among the root and its auxiliaries and copula."""
    heads, relations = sentence.heads(), sentence.tags("deprel")
    roots = [word for word, head in enumerate(heads) if head == -1]
    below = [word for root in roots for word in dependents(root, heads) if universal(relations[word]) in _FINITE]
    values = _values(sentence, sorted([*roots, *below]), "tense", _TENSE, finite=True)
    if values:
        yield _whole(sentence, values[0])
    else:
        left_out["sentences whose main verb has no tense"] += 1


def _values(
    sentence: QuestionedSentence, words: Sequence[int], column: str, names: dict[str, str], finite: bool = False
) -> list[str]:
    """The values of these words in a feature's column, or else in `xpos`.

    Nouns and verbs with other values are skipped.
    """
    tags = sentence.sentence.tags
    read = sentence.tags(column if column in tags else "xpos")
    forms = sentence.tags("verbform") if finite and column in tags and "verbform" in tags else ["Fin"] * len(read)
    nominal = sentence.tags("upos") if not finite and column in tags else ["NOUN"] * len(read)
    return [
        names[read[word]] for word in words if read[word] in names and forms[word] == "Fin" and nominal[word] == "NOUN"
    ]


def _label(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    label = sentence.sentence.label
    if label:
        yield _whole(sentence, label)
    else:
        left_out["sentences without a label"] += 1


_sentence = partial(Kind, unit="sentence")
_NOUN = {"needs": (*TREE, "upos"), "either": ("number", "xpos")}
SENTENCE_TASKS: dict[str, Kind] = {
    "length": _sentence(about=f"its number of words, in {BINS} bins", begin=_binned(lambda s: len(s.words))),
    "word-content": _sentence(about="which one of a list of words it contains", begin=_word_content),
    "tree-depth": _sentence(
        about=f"the depth of its dependency tree, in {BINS} bins",
        needs=("head",),
        begin=_binned(lambda s: depth(s.heads())),
    ),
    "top-constituents": _sentence(
        about="the relations directly below its root, in order", needs=TREE, begin=_top_constituents
    ),
    "subject-number": _sentence(
        about="the number of the main clause's subject, a noun", begin=always(_number_of("nsubj")), **_NOUN
    ),
    "object-number": _sentence(
        about="the number of the main clause's object, a noun", begin=always(_number_of("obj")), **_NOUN
    ),
    "tense": _sentence(
        about="whether its main verb is past or present", needs=TREE, either=("tense", "xpos"), begin=always(_tense)
    ),
    "sentence-label": _sentence(about="the label in its row of the table", needs=("label",), begin=always(_label)),
}


# Tasks that detect a changed sentence: two words swapped, a word replaced, two clauses exchanged.


ORIGINAL, CHANGED = "original", "changed"
_REPLACED = {"NOUN", "VERB"}
_PAIRED = frozenset('()[]"“”‘’«»') | {"''", "``", "-LRB-", "-RRB-"}  # marks that a swap would separate
_CLOSEST = 10  # number of candidates for a replacement, nearest in frequency


def _half(sentence: QuestionedSentence, changed: Written) -> ProbeQuestion:
    """Either the original or the changed sentence; a hash of the text chooses, so that about half are changed."""
    original = sentence.draw("changed").random() < 0.5
    written = sentence.written if original else changed
    label = ORIGINAL if original else CHANGED
    return ProbeQuestion(first=(0, len(written.words)), label=label, written=written)


def _bigram_shift(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """Swaps two adjacent words at a random position where neither is punctuation nor part of a longer written word."""
    written = sentence.written
    words = written.words
    places = [
        index
        for index in range(len(words) - 1)
        if words[index].lower() != words[index + 1].lower()
        and is_word(words[index])
        and is_word(words[index + 1])
        and not any(map(written.splits, (index - 1, index, index + 1)))
    ]
    if not places:
        left_out["sentences without two different words that follow each other"] += 1
        return
    place = int(sentence.draw("swap").choice(places))
    swapped = (*words[:place], words[place + 1], words[place], *words[place + 2 :])
    yield _half(sentence, replace(written, words=swapped))


def _coordination_inversion(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """Exchanges two coordinated main clauses around the conjunction; only for sentences with exactly two."""
    changed = _exchanged(sentence)
    if changed is None:
        left_out["sentences that are not two coordinated clauses"] += 1
    else:
        yield _half(sentence, changed)


def _exchanged(sentence: QuestionedSentence) -> Written | None:
    """The sentence with its two clauses exchanged; None unless it consists of two clauses and one conjunction."""
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
    sentence: QuestionedSentence, first: tuple[int, int], middle: tuple[int, int], second: tuple[int, int], end: int
) -> Written:
    """Joins second clause, conjunction, first clause and final punctuation, and capitalises the new beginning."""
    words, spaces = list(sentence.written.words), [*sentence.written.spaces, ""]
    upos = sentence.tags("upos") if sentence.sentence.upos else [""] * len(words)
    if words[0][:1].isupper() and words[0] != "I" and upos[0] != "PROPN":
        words[0] = words[0][:1].lower() + words[0][1:]
        words[second[0]] = words[second[0]][:1].upper() + words[second[0]][1:]
    # The space after a clause belongs to its position in the sentence, not to the clause.
    spaces[first[1] - 1], spaces[second[1] - 1] = spaces[second[1] - 1], spaces[first[1] - 1]
    order = [*range(*second), *range(*middle), *range(*first), *range(end, len(words))]
    return Written(words=tuple(words[at] for at in order), spaces=tuple(spaces[at] for at in order[:-1]))


def _odd_man_out(train: Callable[[], Iterable[QuestionedSentence]]) -> Ask:
    """Replaces a noun or verb by another word of the same part of speech and a similar frequency.

    SentEval matches the frequencies of the bigrams with both neighbours in a very large corpus; here the frequency of
    the word is matched.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train():
        for word, tag in _tagged(sentence):
            if tag:
                counts[tag][word] += 1
    ranked = {tag: sorted(words, key=lambda w: (-words[w], w)) for tag, words in counts.items()}
    place = {(tag, word): rank for tag, words in ranked.items() for rank, word in enumerate(words)}

    def ask(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
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


def _tagged(sentence: QuestionedSentence) -> Iterator[tuple[str, str]]:
    """Each word with its finest part of speech, so that plurals replace plurals; "" for words that are not replaced."""
    upos = sentence.tags("upos")
    fine = sentence.tags("xpos") if "xpos" in sentence.sentence.tags else upos
    for word, tag, kind in zip(sentence.words, fine, upos, strict=True):
        yield word, (f"{kind} {tag}" if kind in _REPLACED else "")


def _like(word: str, ranked: list[str], rank: int, numbers: np.random.Generator) -> str:
    start = max(0, min(rank - _CLOSEST // 2, len(ranked) - _CLOSEST - 1))
    near = [other for other in ranked[start : start + _CLOSEST + 1] if other != word]
    return near[int(numbers.integers(len(near)))]


_changed = partial(_sentence, changes=True)
CHANGED_TASKS: dict[str, Kind] = {
    "bigram-shift": _changed(
        about="whether two words that follow each other were swapped", begin=always(_bigram_shift)
    ),
    "coordination-inversion": _changed(
        about="whether two coordinated main clauses were exchanged", needs=TREE, begin=always(_coordination_inversion)
    ),
    "odd-man-out": _changed(
        about="whether a noun or verb was replaced by another", needs=("upos",), begin=_odd_man_out
    ),
}
