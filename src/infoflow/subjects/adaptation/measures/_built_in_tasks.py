"""Tasks of the built-in grammar: labelled data of every shape that needs no file and no network."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from infoflow.corpus import Corpus, Sentence, generate_grammar
from infoflow.foundation import UserError, as_written, hash64, stream

from ._task import Shape, TaskData

DEV_SHARE, TEST_SHARE = 0.1, 0.2
_SENTENCES_EACH = 8
"""Maximum number of sentences to try per example."""
_FEWEST = 20
_VERBS_FROM = 5000  # sentences
_OTHER = {"nsubj", "obj", "nmod", "obl", "conj"}  # relations of nouns that may replace an object

Row = dict[str, Any]
Rows = Callable[[Sentence, np.random.Generator], Row | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """How a task is built from sentences."""

    shape: Shape
    columns: tuple[str, ...]
    row: Rows
    about: str


def built_in_task(name: str, size: int = 1000, seed: int = 0) -> TaskData:
    """A task of the built-in grammar with `size` examples, a tenth for development and a fifth for the test.

    | name                | shape          | what is asked                                                             |
    |---------------------|----------------|---------------------------------------------------------------------------|
    | `grammar-tags`      | tagging        | the CCG supertag of each word                                             |
    | `grammar-agreement` | classification | does the main verb agree with its subject: `good`, or `bad`               |
    | `grammar-pairs`     | classification | does the second text, of three words, say who does what in the first      |
    | `grammar-span`      | span           | who does what the verb in the question says: the head word of its subject |
    | `grammar-summary`   | generation     | write subject, main verb and object                                       |

    Sentences use their own seed, so they differ from the training data of a study of `grammar` but share its words; no
    two examples have the same text. The same arguments give the same task.

    Raises:
        UserError: There is no such task, or it has fewer than 20 examples.
    """
    if name not in BUILT_IN_TASKS:
        raise UserError(f"There is no task {as_written(name)}. Built in: {', '.join(BUILT_IN_TASKS)}.")
    if size < _FEWEST:
        raise UserError(f"A built-in task has at least {_FEWEST} examples. Got {size}.")
    kind = _KINDS[name]
    rows = _rows(name, kind, size, seed)
    bounds = [round(size * (1 - DEV_SHARE - TEST_SHARE)), round(size * (1 - TEST_SHARE))]
    parts = {"train": rows[: bounds[0]], "dev": rows[bounds[0] : bounds[1]], "test": rows[bounds[1] :]}
    labels = _labels(kind.shape, parts["train"])
    known, left_out = set(labels), dict[str, int]()
    for part in ("dev", "test"):
        kept = [row for row in parts[part] if known >= set(_own(kind.shape, row))]
        if lost := len(parts[part]) - len(kept):
            left_out[f"{part}: label that training lacks"] = lost
        parts[part] = kept
    corpora = {part: Corpus.from_rows(own, kind.columns, f"{name}[{part}]") for part, own in parts.items()}
    return TaskData(name=name, shape=kind.shape, labels=labels, left_out=left_out, **corpora)


def _rows(name: str, kind: _Kind, size: int, seed: int) -> list[Row]:
    """As many examples with different texts as requested."""
    draws, own = stream("built-in-task", name, seed), hash64("built-in-task", name, seed) % 2**32
    found: dict[str, Row] = {}
    for sentence in generate_grammar(size * _SENTENCES_EACH, seed=own):
        row = kind.row(sentence, draws)
        if row is not None and row["text"] not in found:
            found[row["text"]] = row
        if len(found) == size:
            return list(found.values())
    raise UserError(f"{name} has at most {len(found):,} distinct examples. Got {size:,}. Lower the size.")


def _own(shape: Shape, row: Row) -> Iterator[str]:
    """The labels of an example; empty for shapes without classes."""
    if shape == "tagging":
        yield from row["tag"]
    elif shape == "classification":
        yield row["label"]


def _labels(shape: Shape, rows: list[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(label for row in rows for label in _own(shape, row)))


# -- the tasks --------------------------------------------------------------------------------------------------------


def _tagged(sentence: Sentence, draws: np.random.Generator) -> Row:
    return {"text": sentence.text, "words": sentence.words, "tag": sentence.tags["ccg"]}


def _agreement(sentence: Sentence, draws: np.random.Generator) -> Row | None:
    words, root, forms = list(sentence.words or ()), _root(sentence), _other_forms()
    if words[root] not in forms:
        return None
    good = bool(draws.integers(2))
    words[root] = words[root] if good else forms[words[root]]
    return {"text": " ".join(words), "label": "good" if good else "bad"}


def _pair(sentence: Sentence, draws: np.random.Generator) -> Row | None:
    """The false second text has another noun of the first text as its object, so that alone it gives nothing away."""
    main, words = _main(sentence), sentence.words or []
    if main is None:
        return None
    subject, verb, thing = main
    nouns = [
        place
        for place, relation in enumerate(sentence.deprel or ())
        if relation in _OTHER and words[place] not in (words[subject], words[thing])
    ]
    if not nouns:
        return None
    right = bool(draws.integers(2))
    thing = thing if right else int(draws.choice(nouns))
    second = f"{words[subject]} {words[verb]} {words[thing]}"
    return {"text": sentence.text, "second": second, "label": "so" if right else "not-so"}


def _span(sentence: Sentence, draws: np.random.Generator) -> Row | None:
    words, heads = sentence.words or [], sentence.head or []
    subjects = [place for place, relation in enumerate(sentence.deprel or ()) if relation == "nsubj"]
    asked = [place for place in subjects if words.count(words[heads[place]]) == 1 and _is_noun(sentence, place)]
    if not asked:
        return None
    subject = int(draws.choice(asked))
    start = len(" ".join([*words[:subject], ""]))
    question = f"who {words[heads[subject]]} ?"
    return {"text": sentence.text, "question": question, "answers": [words[subject]], "answer_starts": [start]}


def _summary(sentence: Sentence, draws: np.random.Generator) -> Row | None:
    main, words = _main(sentence), sentence.words or []
    return main and {"text": sentence.text, "translation": " ".join(words[place] for place in main)}


def _root(sentence: Sentence) -> int:
    return (sentence.head or []).index(-1)


def _is_noun(sentence: Sentence, place: int) -> bool:
    return (sentence.upos or [])[place] in ("NOUN", "PROPN")


def _main(sentence: Sentence) -> tuple[int, int, int] | None:
    """The positions of subject, verb and object of the main clause, if it has an object."""
    root = _root(sentence)
    places = {
        relation: place
        for place, (head, relation) in enumerate(zip(sentence.head or (), sentence.deprel or (), strict=True))
        if head == root and relation in ("nsubj", "obj")
    }
    return (places["nsubj"], root, places["obj"]) if len(places) == 2 else None


@cache
def _other_forms() -> Mapping[str, str]:
    """The other number form of each verb form: `sees` and `see`."""
    verbs = {
        word
        for sentence in generate_grammar(_VERBS_FROM, seed=hash64("verbs") % 2**32)
        for word, tag in zip(sentence.words or (), sentence.upos or (), strict=True)
        if tag == "VERB"
    }
    pairs = [(verb, verb + end) for verb in sorted(verbs) for end in ("s", "es") if verb + end in verbs]
    return dict(pairs) | {singular: plural for plural, singular in pairs}


_QUESTION = ("text", "question", "answers", "answer_starts")
_KINDS: Mapping[str, _Kind] = {
    "grammar-tags": _Kind(
        shape="tagging", columns=("text", "words", "tag"), row=_tagged, about="the CCG supertag of each word"
    ),
    "grammar-agreement": _Kind(
        shape="classification", columns=("text", "label"), row=_agreement, about="does the main verb agree"
    ),
    "grammar-pairs": _Kind(
        shape="classification", columns=("text", "second", "label"), row=_pair, about="does the first text say so"
    ),
    "grammar-span": _Kind(shape="span", columns=_QUESTION, row=_span, about="the subject of the verb in the question"),
    "grammar-summary": _Kind(
        shape="generation", columns=("text", "translation"), row=_summary, about="subject, main verb and object"
    ),
}
BUILT_IN_TASKS: Mapping[str, str] = {name: kind.about for name, kind in _KINDS.items()}
"""Description of each built-in task."""
