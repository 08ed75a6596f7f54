"""Tasks on whole sentences: length, a contained word, the tree, number and tense, a label.

SentEval's tasks [@conneau2018cram] on the user's sentences; see `_changed_sentences` for tasks that change them.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from ._questions import Ask, AskedSentence, Kind, ProbeQuestion, always, bin_name, bins
from ._subtrees import dependents, depth, universal

BINS = 6
"""Bins of `length` and `tree-depth`, with about the same number of training sentences each."""
CONTENT_WORDS = 1000
"""Number of words that `word-content` distinguishes."""
LEAST_OF_WORD = 5
"""Minimum number of training sentences that contain a word of `word-content`."""
SEQUENCES = 19
"""Number of sequences that `top-constituents` distinguishes; all others are one class."""
OTHER = "other"

Read = Iterable[AskedSentence]
_NUMBER = {"NN": "Sing", "NNS": "Plur", "Sing": "Sing", "Plur": "Plur"}
_TENSE = {"VBD": "Past", "VBP": "Pres", "VBZ": "Pres", "Past": "Past", "Pres": "Pres"}
_FINITE = ("aux", "cop")


def _whole(sentence: AskedSentence, label: str) -> ProbeQuestion:
    return ProbeQuestion(first=sentence.whole, label=label)


def _binned(value: Callable[[AskedSentence], int]) -> Callable[[Callable[[], Read]], Ask]:
    """A number of each sentence, binned by the training sentences."""

    def begin(train: Callable[[], Read]) -> Ask:
        bounds = bins([value(sentence) for sentence in train()], BINS)

        def ask(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
            yield _whole(sentence, bin_name(value(sentence), bounds))

        return ask

    return begin


def _word_content(train: Callable[[], Read]) -> Ask:
    """The one word of a list that a sentence contains; the list has words of medium frequency.

    SentEval takes words of rank 2,000 to 3,000 in a large corpus. Here: the most frequent words after the first 100
    that occur in at least `LEAST_OF_WORD` training sentences.
    """
    counts = Counter(word for sentence in train() for word in {word.lower() for word in sentence.words})
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[100 : 100 + CONTENT_WORDS]
    listed = {word for word in ranked if counts[word] >= LEAST_OF_WORD and _is_letters(word)}

    def ask(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        found = [word.lower() for word in sentence.words if word.lower() in listed]
        if len(found) == 1:
            yield _whole(sentence, found[0])
        else:
            left_out["sentences with several words of the list" if found else "sentences with no word of the list"] += 1

    return ask


def _is_letters(word: str) -> bool:
    """Whether a word is letters, with combining marks as in Devanagari."""
    return all(unicodedata.category(sign)[0] in "LM" for sign in word)


def _top_constituents(train: Callable[[], Read]) -> Ask:
    """The relations of the root's dependents in order, with `root` among them; rare sequences are one class.

    SentEval uses the categories below S in a phrase-structure tree; the version for dependencies is ours.
    """
    counts = Counter(sequence for sentence in train() if (sequence := _below_root(sentence)))
    common = sorted(counts, key=lambda sequence: (-counts[sequence], sequence))[:SEQUENCES]

    def ask(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        if sequence := _below_root(sentence):
            yield _whole(sentence, sequence if sequence in common else OTHER)
        else:
            left_out["sentences without one root"] += 1

    return ask


def _below_root(sentence: AskedSentence) -> str | None:
    heads, relations = sentence.heads(), sentence.tags("deprel")
    if heads.count(-1) != 1:
        return None
    root = heads.index(-1)
    places = sorted([root, *dependents(root, heads)])
    return " ".join(universal(relations[word]) for word in places if universal(relations[word]) != "punct")


def _number_of(relation: str) -> Ask:
    """The number of the root's subject or object: from FEATS (column `number`), else from `NN` and `NNS`."""

    def ask(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        heads, relations = sentence.heads(), sentence.tags("deprel")
        roots = [word for word, head in enumerate(heads) if head == -1]
        found = [word for root in roots for word in dependents(root, heads) if universal(relations[word]) == relation]
        values = _values(sentence, found, "number", _NUMBER)
        if len(values) == 1:
            yield _whole(sentence, values[0])
        else:
            left_out["sentences with several" if values else "sentences without a noun of known number there"] += 1

    return ask


def _tense(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
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
    sentence: AskedSentence, words: Sequence[int], column: str, names: dict[str, str], finite: bool = False
) -> list[str]:
    """The values of these words in a feature's column, else in `xpos`.

    Nouns and verbs with other values are skipped.
    """
    tags = sentence.sentence.tags
    read = sentence.tags(column if column in tags else "xpos")
    forms = sentence.tags("verbform") if finite and column in tags and "verbform" in tags else ["Fin"] * len(read)
    nominal = sentence.tags("upos") if not finite and column in tags else ["NOUN"] * len(read)
    return [
        names[read[word]] for word in words if read[word] in names and forms[word] == "Fin" and nominal[word] == "NOUN"
    ]


def _label(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    label = sentence.sentence.label
    if label:
        yield _whole(sentence, label)
    else:
        left_out["sentences without a label"] += 1


_TREE = ("head", "deprel")
SENTENCE_TASKS: dict[str, Kind] = {
    "length": Kind(
        unit="sentence", about=f"its number of words, in {BINS} bins", begin=_binned(lambda s: len(s.words))
    ),
    "word-content": Kind(unit="sentence", about="which one of a list of words it holds", begin=_word_content),
    "tree-depth": Kind(
        unit="sentence",
        about=f"the depth of its dependency tree, in {BINS} bins",
        needs=("head",),
        begin=_binned(lambda s: depth(s.heads())),
    ),
    "top-constituents": Kind(
        unit="sentence",
        about="the relations right below its root, in their order",
        needs=_TREE,
        begin=_top_constituents,
    ),
    "subject-number": Kind(
        unit="sentence",
        about="the number of the main clause's subject, a noun",
        needs=(*_TREE, "upos"),
        either=("number", "xpos"),
        begin=always(_number_of("nsubj")),
    ),
    "object-number": Kind(
        unit="sentence",
        about="the number of the main clause's object, a noun",
        needs=(*_TREE, "upos"),
        either=("number", "xpos"),
        begin=always(_number_of("obj")),
    ),
    "tense": Kind(
        unit="sentence",
        about="whether its main verb is past or present",
        needs=_TREE,
        either=("tense", "xpos"),
        begin=always(_tense),
    ),
    "sentence-label": Kind(
        unit="sentence", about="the label that its row of the table has", needs=("label",), begin=always(_label)
    ),
}
