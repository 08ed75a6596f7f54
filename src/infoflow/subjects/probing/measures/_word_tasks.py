"""Tasks on words, spans and pairs of spans: tags, constituents, entities, arcs, coreference."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile

from infoflow.corpus import ENTITY
from infoflow.foundation import UserError, as_written
from infoflow.heads import read_mentions

from ._questions import Ask, Kind, ProbeQuestion, QuestionedSentence, Span, always

TREE = ("head", "deprel")


def universal(relation: str) -> str:
    """The universal part of a relation: `nmod` of `nmod:poss`."""
    return relation.partition(":")[0]


def upwards(word: int, heads: Sequence[int]) -> Iterator[int]:
    """The word, its head, the head's head, and so on up to a root."""
    while word != -1:
        yield word
        word = heads[word]


def subtrees(heads: Sequence[int]) -> list[list[int]]:
    """The words of each word's subtree, including the word itself, in order.

    >>> subtrees([1, -1, 1])
    [[0], [0, 1, 2], [2]]
    """
    found: list[list[int]] = [[] for _ in heads]
    for word in range(len(heads)):
        for upper in upwards(word, heads):
            found[upper].append(word)
    return found


def span(words: Sequence[int]) -> tuple[int, int] | None:
    """The span [start, end) of these words if they are contiguous, else None.

    >>> span([2, 3, 4]), span([2, 4])
    ((2, 5), None)
    """
    return (words[0], words[-1] + 1) if words[-1] - words[0] == len(words) - 1 else None


def above(word: int, heads: Sequence[int]) -> list[int]:
    """Head words of all subtrees that contain a word and at least one other, smallest first.

    >>> above(0, [1, 2, -1, 2]), above(1, [1, 2, -1, 2])
    ([1, 2], [1, 2])
    """
    return list(upwards(word if word in heads else heads[word], heads))


def dependents(word: int, heads: Sequence[int]) -> list[int]:
    """The words that depend on a word, in order."""
    return [other for other, head in enumerate(heads) if head == word]


def depth(heads: Sequence[int]) -> int:
    """Number of edges on the longest path from a root to a word.

    >>> depth([1, -1, 1, 2])
    2
    """
    return max((len(list(upwards(word, heads))) - 1 for word in range(len(heads))), default=0)


# Tasks on single words: a tag, the word's identity, its position, the constituents above it.


WORD_TYPES = 200  # number of types that `word` distinguishes: the most frequent ones in the training sentences
POSITIONS = 50  # number of positions that `position` distinguishes
ANCESTORS = {"parent": 1, "grandparent": 2, "great-grandparent": 3}
NO_ANCESTOR = "top"


def tag_kind(column: str, about: str | None = None) -> Kind:
    """The tag of each word in a column of the corpus; words tagged `_` (CoNLL-U: no value) are not probed."""

    def ask(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        for word, tag in enumerate(sentence.tags(column)):
            if str(tag) in ("_", ""):
                left_out["words without a tag"] += 1
            else:
                yield ProbeQuestion(first=(word, word + 1), label=str(tag))

    return Kind(unit="token", about=about or f"the tag `{column}` of a word", needs=(column,), begin=always(ask))


def ancestor_kind(generation: int, name: str) -> Kind:
    r"""The relation of the nth constituent above a word.

    Constituents are the subtrees of at least two words that contain the word, smallest first. The label is the
    universal relation of the constituent's head word (`nsubj` for the noun phrase of a subject), or `top` if there are
    fewer than n constituents. Dependencies are our choice: [@blevins2018] use the categories of phrase-structure trees.
    """

    def ask(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        heads, relations = sentence.heads(), sentence.tags("deprel")
        for word in range(len(heads)):
            found = above(word, heads)
            label = universal(relations[found[generation - 1]]) if len(found) >= generation else NO_ANCESTOR
            yield ProbeQuestion(first=(word, word + 1), label=label)

    about = f"the relation of the {name} constituent of a word, a subtree of at least two words"
    return Kind(unit="token", about=about, needs=TREE, begin=always(ask))


def _word(train: Callable[[], Iterable[QuestionedSentence]]) -> Ask:
    counts = Counter(word for sentence in train() for word in sentence.words)
    common = sorted(counts, key=lambda word: (-counts[word], word))[:WORD_TYPES]
    kept = {word for word in common if counts[word] > 1}

    def ask(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        for index, word in enumerate(sentence.words):
            if word in kept:
                yield ProbeQuestion(first=(index, index + 1), label=word)
            else:
                left_out["words that are not frequent enough"] += 1

    return ask


def _position(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    for index in range(len(sentence.words)):
        if index < POSITIONS:
            yield ProbeQuestion(first=(index, index + 1), label=str(index))
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


# Tasks that label a span: constituents, base noun phrases and verb groups, entities.


SPANS_SUFFIX = "-spans"  # `NAME-spans` is the task of the labelled spans in the IOB2 column NAME

_NOMINAL = {"NOUN", "PROPN", "PRON"}
_OF_NOUN = {"det", "amod", "nummod", "compound", "nmod:poss", "flat", "advmod"}
_OF_VERB = {"aux", "cop"}


def iob_spans(tags: Sequence[str]) -> list[tuple[Span, str]]:
    """The labelled spans of IOB2 tags; an `I-` after another label also begins a span, as in conlleval.

    >>> iob_spans(["B-PER", "I-PER", "O", "B-LOC"])
    [((0, 2), 'PER'), ((3, 4), 'LOC')]
    """
    found: list[tuple[int, int, str]] = []
    for word, tag in enumerate(tags):
        if tag in ("O", "_"):
            continue
        prefix, hyphen, label = tag.partition("-")
        if prefix not in ("B", "I") or not hyphen or not label:
            raise UserError(
                f"Spans are read from IOB2 tags: O, B-LABEL or I-LABEL. Got {as_written(tag)}.\n"
                "Ask for the tags themselves: name the column without -spans."
            )
        if prefix == "I" and found and found[-1][1:] == (word, label):
            found[-1] = (found[-1][0], word + 1, label)
        else:
            found.append((word, word + 1, label))
    return [((start, end), label) for start, end, label in found]


def iob_kind(column: str) -> Kind:
    """The label of each annotated span; only annotated spans are probed, as in [@tenney2019]."""

    def ask(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        for found, label in iob_spans(sentence.tags(column)):
            yield ProbeQuestion(first=found, label=label)

    about = f"the label of each span of the IOB2 column `{column}`"
    return Kind(unit="span", about=about, needs=(column,), begin=always(ask))


def _entities(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """The entity type of each mention in CorefUD's brackets; `(e12-person-1` is a person."""
    for mention in sorted(read_mentions(sentence.tags(ENTITY)), key=lambda m: (m.start, m.end)):
        if mention.kind:
            yield ProbeQuestion(first=(mention.start, mention.end + 1), label=mention.kind)
        else:
            left_out["mentions without a kind"] += 1


def _constituents(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """The relation of the head word of each subtree of at least two contiguous words."""
    heads, relations = sentence.heads(), sentence.tags("deprel")
    for word, inside in enumerate(subtrees(heads)):
        if len(inside) == 1:
            continue
        found = span(inside)
        if found is None:
            left_out["constituents with a gap"] += 1
        else:
            yield ProbeQuestion(first=found, label=universal(relations[word]))


def _chunks(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """Noun phrases up to their noun, verb groups, and prepositions, adjectives, adverbs, subordinators outside them."""
    heads, relations, upos = sentence.heads(), sentence.tags("deprel"), sentence.tags("upos")
    taken = [False] * len(heads)
    for word in range(len(heads)):
        label = {"VERB": "VP", "AUX": "VP"}.get(upos[word], "NP" if upos[word] in _NOMINAL else None)
        if label is None or (upos[word] == "AUX" and universal(relations[word]) in _OF_VERB):
            continue
        if label == "NP" and relations[word] in _OF_NOUN:
            continue  # part of another noun's phrase
        allowed = _OF_NOUN if label == "NP" else _OF_VERB
        start = word
        left = [d for d in dependents(word, heads) if d < word and allowed & {relations[d], universal(relations[d])}]
        while start > 0 and not taken[start - 1] and _inside(start - 1, left, word, heads):
            start -= 1
        taken[start : word + 1] = [True] * (word + 1 - start)
        yield ProbeQuestion(first=(start, word + 1), label=label)
    for word, tag in enumerate(upos):
        other = {"ADP": "PP", "ADJ": "ADJP", "ADV": "ADVP", "SCONJ": "SBAR"}.get(tag)
        if other and not taken[word]:
            yield ProbeQuestion(first=(word, word + 1), label=other)


def _inside(word: int, left: Sequence[int], head: int, heads: Sequence[int]) -> bool:
    """Whether a word is in the subtree of one of these dependents of the head."""
    return any(upper in left for upper in takewhile(lambda upper: upper != head, upwards(word, heads)))


SPAN_TASKS: dict[str, Kind] = {
    "constituents": Kind(
        unit="span",
        about="the relation of a constituent's head word; constituents are subtrees of the dependency tree",
        needs=TREE,
        begin=always(_constituents),
    ),
    "chunks": Kind(
        unit="span",
        about="the kind of a chunk: base noun phrase, verb group, preposition, ..., from the dependency tree",
        needs=("head", "deprel", "upos"),
        begin=always(_chunks),
    ),
    f"ner{SPANS_SUFFIX}": iob_kind("ner"),
    f"{ENTITY}{SPANS_SUFFIX}": Kind(
        unit="span",
        about="the kind of entity that a mention refers to: person, place, ...",
        needs=(ENTITY,),
        begin=always(_entities),
    ),
}


# Tasks on two spans of a sentence: whether an arc joins them, its label, coreference.


def _arc(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """Pairs of each word with its head, and with one other word of the sentence, drawn once per seed."""
    heads = sentence.heads()
    for word, head in enumerate(heads):
        others = [other for other in range(len(heads)) if other not in (word, head)]
        if head == -1 or not others:
            left_out["roots" if head == -1 else "words without another word that is not their head"] += 1
            continue
        other = int(sentence.draw("arc", word).choice(others))
        yield ProbeQuestion(first=(word, word + 1), second=(head, head + 1), label="arc")
        yield ProbeQuestion(first=(word, word + 1), second=(other, other + 1), label="none")


def _arc_label(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    for word, (head, relation) in enumerate(zip(sentence.heads(), sentence.tags("deprel"), strict=True)):
        if head == -1:
            left_out["roots"] += 1
        else:
            yield ProbeQuestion(first=(word, word + 1), second=(head, head + 1), label=universal(relation))


def _coreference(sentence: QuestionedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """Pairs of mentions of one entity; for each, also its later mention with an earlier mention of another entity."""
    mentions = sorted(read_mentions(sentence.tags(ENTITY)), key=lambda m: (m.start, m.end))
    spans: list[Span] = [(m.start, m.end + 1) for m in mentions]
    for later in range(len(mentions)):
        before = [earlier for earlier in range(later) if spans[earlier][1] <= spans[later][0]]
        same = [earlier for earlier in before if mentions[earlier].entity == mentions[later].entity]
        other = [earlier for earlier in before if mentions[earlier].entity != mentions[later].entity]
        drawn = sentence.draw("coreference", later).permutation(len(other))[: len(same)]
        left_out["coreferent pairs without one of another entity"] += len(same) - len(drawn)
        for earlier in same:
            yield ProbeQuestion(first=spans[later], second=spans[earlier], label="coreferent")
        for place in sorted(drawn.tolist()):
            yield ProbeQuestion(first=spans[later], second=spans[other[place]], label="different")


PAIR_TASKS: dict[str, Kind] = {
    "arc": Kind(
        unit="pair",
        about="whether the second word is the head of the first; one other word is drawn for each",
        needs=("head",),
        begin=always(_arc),
    ),
    "arc-label": Kind(
        unit="pair", about="the relation between a word and its head", needs=TREE, begin=always(_arc_label)
    ),
    "coreference": Kind(
        unit="pair",
        about="whether two mentions of a sentence are of one entity; half of the pairs are not",
        needs=(ENTITY,),
        begin=always(_coreference),
    ),
}
