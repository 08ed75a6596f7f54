"""Tasks on single words: a tag, the word's identity, its position, the constituents above it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ._questions import Ask, AskedSentence, Kind, ProbeQuestion, always
from ._subtrees import above, universal

WORD_TYPES = 200
"""Number of types that `word` distinguishes: the most frequent ones in the training sentences."""
POSITIONS = 50
"""Number of positions that `position` distinguishes."""
ANCESTORS = {"parent": 1, "grandparent": 2, "great-grandparent": 3}
NO_ANCESTOR = "top"


def tag_kind(column: str, about: str | None = None) -> Kind:
    """The tag of each word in a column of the corpus; words tagged `_` (CoNLL-U: no value) are not probed."""

    def ask(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        for word, tag in enumerate(sentence.tags(column)):
            if str(tag) in ("_", ""):
                left_out["words without a tag"] += 1
            else:
                yield ProbeQuestion(first=(word, word + 1), label=str(tag))

    return Kind(unit="token", about=about or f"the tag `{column}` of a word", needs=(column,), begin=always(ask))


def ancestor_kind(generation: int, name: str) -> Kind:
    r"""The relation of the nth constituent above a word.

    Constituents are the subtrees of at least two words that contain the word, smallest first. The label is the
    universal relation of the constituent's head word (`nsubj` for a subject's noun phrase), or `top` if there are fewer
    than n. Dependencies are our choice: [@blevins2018] use the categories of phrase-structure trees.
    """

    def ask(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        heads, relations = sentence.heads(), sentence.tags("deprel")
        for word in range(len(heads)):
            found = above(word, heads)
            label = universal(relations[found[generation - 1]]) if len(found) >= generation else NO_ANCESTOR
            yield ProbeQuestion(first=(word, word + 1), label=label)

    about = f"the relation of the {name} constituent of a word, a subtree of at least two words"
    return Kind(unit="token", about=about, needs=("head", "deprel"), begin=always(ask))


def _word(train: Callable[[], Iterable[AskedSentence]]) -> Ask:
    counts = Counter(word for sentence in train() for word in sentence.words)
    common = sorted(counts, key=lambda word: (-counts[word], word))[:WORD_TYPES]
    kept = {word for word in common if counts[word] > 1}

    def ask(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        for place, word in enumerate(sentence.words):
            if word in kept:
                yield ProbeQuestion(first=(place, place + 1), label=word)
            else:
                left_out["words that are not frequent enough"] += 1

    return ask


def _position(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    for place in range(len(sentence.words)):
        if place < POSITIONS:
            yield ProbeQuestion(first=(place, place + 1), label=str(place))
        else:
            left_out[f"words after the first {POSITIONS}"] += 1


TOKEN_TASKS: dict[str, Kind] = {
    "upos": tag_kind("upos", "the universal part of speech of a word"),
    "xpos": tag_kind("xpos", "the treebank's part of speech of a word"),
    "deprel": tag_kind("deprel", "the relation of a word to its head, from the word alone"),
    "ccg": tag_kind("ccg", "the CCG supertag of a word"),
    "ner": tag_kind("ner", "the IOB2 tag of a word"),
    "word": Kind(unit="token", about=f"which of the {WORD_TYPES} most frequent words it is", begin=_word),
    "position": Kind(unit="token", about=f"the place of a word, 0 to {POSITIONS - 1}", begin=always(_position)),
    **{name: ancestor_kind(generation, name) for name, generation in ANCESTORS.items()},
}
