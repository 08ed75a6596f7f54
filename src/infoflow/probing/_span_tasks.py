"""Tasks that label a span: constituents, base noun phrases and verb groups, entities."""

from collections import Counter
from collections.abc import Iterator, Sequence

from infoflow.foundation import UserError, as_written
from infoflow.heads import read_mentions

from ._questions import AskedSentence, Kind, ProbeQuestion, Span, always
from ._subtrees import dependents, span, subtrees, universal

SPANS_SUFFIX = "-spans"
"""`NAME-spans` is the task of the labelled spans in the IOB2 column NAME."""

_NOMINAL = {"NOUN", "PROPN", "PRON"}
_OF_NOUN = {"det", "amod", "nummod", "compound", "nmod:poss", "flat", "advmod"}
_OF_VERB = {"aux", "cop"}


def iob_spans(tags: Sequence[str]) -> list[tuple[Span, str]]:
    """The labelled spans of IOB2 tags; an `I-` after another label also begins a span, as in conlleval.

    >>> iob_spans(["B-PER", "I-PER", "O", "B-LOC"])
    [((0, 2), 'PER'), ((3, 4), 'LOC')]

    Raises:
        UserError: A tag is neither `O` nor a label with `B-` or `I-`.
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

    def ask(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
        for found, label in iob_spans(sentence.tags(column)):
            yield ProbeQuestion(first=found, label=label)

    about = f"the label of each span of the IOB2 column `{column}`"
    return Kind(unit="span", about=about, needs=(column,), begin=always(ask))


ENTITY = "entity"
"""The column of coreference brackets, from `Corpus.from_conllu(path, misc=("Entity",))`."""


def _entities(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """The entity type of each mention in CorefUD's brackets: `(e12-person-1` is a person."""
    for mention in sorted(read_mentions(sentence.tags(ENTITY)), key=lambda m: (m.start, m.end)):
        if mention.kind:
            yield ProbeQuestion(first=(mention.start, mention.end + 1), label=mention.kind)
        else:
            left_out["mentions without a kind"] += 1


def _constituents(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
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


def _chunks(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """Noun phrases up to their noun, verbs with their auxiliaries, prepositions, other words alone."""
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
        left = [d for d in dependents(word, heads) if d < word and _allowed(relations[d], allowed)]
        while start > 0 and not taken[start - 1] and _inside(start - 1, left, word, heads):
            start -= 1
        taken[start : word + 1] = [True] * (word + 1 - start)
        yield ProbeQuestion(first=(start, word + 1), label=label)
    for word, tag in enumerate(upos):
        other = {"ADP": "PP", "ADJ": "ADJP", "ADV": "ADVP", "SCONJ": "SBAR"}.get(tag)
        if other and not taken[word]:
            yield ProbeQuestion(first=(word, word + 1), label=other)


def _allowed(relation: str, allowed: set[str]) -> bool:
    return relation in allowed or universal(relation) in allowed


def _inside(word: int, left: Sequence[int], head: int, heads: Sequence[int]) -> bool:
    """Whether a word is in the subtree of one of these dependents of the head."""
    while word not in (-1, head):
        if word in left:
            return True
        word = heads[word]
    return False


SPAN_TASKS: dict[str, Kind] = {
    "constituents": Kind(
        unit="span",
        about="the relation of a constituent's head word; constituents are subtrees of the dependency tree",
        needs=("head", "deprel"),
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
        about="the kind of the entity that a mention is of: person, place, ...",
        needs=(ENTITY,),
        begin=always(_entities),
    ),
}
