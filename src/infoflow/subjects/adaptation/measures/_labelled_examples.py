"""Labelled examples: tasks of the built-in grammar, the subset that is trained on, and leaked test texts."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from infoflow.corpus import WHOLE_COLUMNS, Corpus, Sentence, generate_grammar, repeated
from infoflow.foundation import (
    UserError,
    as_written,
    current_display,
    hash64,
    hash64_array,
    running_word_spans,
    running_words,
    stream,
)

from ._tables import TASK_LEAKAGE
from ._task import Shape, TaskData, listed, several

DEV_SHARE, TEST_SHARE = 0.1, 0.2
_SENTENCES_EACH = 8  # maximum number of sentences to try per example
_FEWEST = 20
_VERBS_FROM = 5000  # sentences
_OTHER = {"nsubj", "obj", "nmod", "obl", "conj"}  # dependency relations of the nouns that may replace an object

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
    | `grammar-agreement` | classification | whether the main verb agrees with its subject: `good` or `bad`            |
    | `grammar-pairs`     | classification | whether the second text (three words) states who does what in the first   |
    | `grammar-span`      | span           | the head word of the subject of the verb in the question                  |
    | `grammar-summary`   | generation     | a text of subject, main verb and object                                   |

    Sentences are generated with a different seed than in a study of `grammar`, so they differ from its training data
    but have the same words. No two examples have the same text. The same arguments give the same task.
    """
    if name not in BUILT_IN_TASKS:
        raise UserError(f"There is no task {as_written(name)}. Built in: {', '.join(BUILT_IN_TASKS)}.")
    if size < _FEWEST:
        raise UserError(f"A built-in task has at least {_FEWEST} examples. Got {size}.")
    kind = _KINDS[name]
    rows = _rows(name, kind, size, seed)
    bounds = [round(size * (1 - DEV_SHARE - TEST_SHARE)), round(size * (1 - TEST_SHARE))]
    parts = {"train": rows[: bounds[0]], "dev": rows[bounds[0] : bounds[1]], "test": rows[bounds[1] :]}
    labels = tuple(dict.fromkeys(label for row in parts["train"] for label in _own(kind.shape, row)))
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
    """A pair of texts. A false second text has another noun of the first as object, so it alone reveals nothing."""
    main, words = _main(sentence), sentence.words or []
    if main is None:
        return None
    subject, verb, thing = main
    nouns = [
        index
        for index, relation in enumerate(sentence.deprel or ())
        if relation in _OTHER and words[index] not in (words[subject], words[thing])
    ]
    if not nouns:
        return None
    right = bool(draws.integers(2))
    thing = thing if right else int(draws.choice(nouns))
    second = f"{words[subject]} {words[verb]} {words[thing]}"
    return {"text": sentence.text, "second": second, "label": "so" if right else "not-so"}


def _span(sentence: Sentence, draws: np.random.Generator) -> Row | None:
    words, heads = sentence.words or [], sentence.head or []
    subjects = [index for index, relation in enumerate(sentence.deprel or ()) if relation == "nsubj"]
    candidates = [place for place in subjects if words.count(words[heads[place]]) == 1 and _is_noun(sentence, place)]
    if not candidates:
        return None
    subject = int(draws.choice(candidates))
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
        relation: index
        for index, (head, relation) in enumerate(zip(sentence.head or (), sentence.deprel or (), strict=True))
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


# The labelled examples used for training: all, a subset, or with shuffled labels.

_PER_EXAMPLE = {"classification": ("label",), "regression": ("label",), "choice": ("label",)} | {
    "generation": ("translation", "references")
}


def training_part(data: TaskData, examples: int, control: str) -> Corpus:
    """The training part on which a model is tuned; classes without examples are noted.

    `examples` (0: all) are chosen by content, the same for every model and nested in larger subsets. Each class keeps
    its share, up to one example, so a rare class may have none. The control "shuffled-labels" permutes labels over the
    examples (tags over words; answer positions within passages).
    """
    corpus = data.train
    if examples > len(corpus):
        raise UserError(
            f"tune.examples must be at most the {len(corpus):,} training examples of {data.name}. Got {examples:,}. "
            "Lower it, or leave it out for all."
        )
    if examples:
        order = subset_order(data)
        corpus = corpus.select(np.sort(order[:examples]), f"{corpus.name}[{examples}]")
        if data.shape == "classification":
            _check_classes(data, corpus, order)
    return shuffled(replace(data, train=corpus)) if control else corpus


def _check_classes(data: TaskData, subset: Corpus, order: np.ndarray) -> None:
    labels = list(subset.column("label"))
    if len(set(labels)) == 1 and len(data.labels) > 1:
        by_order = np.array(list(data.train.column("label")), dtype=str)[order]
        others = np.flatnonzero(by_order != by_order[0])
        enough = (
            f"Raise it to {others[0] + 1:,} at least, or leave it out for all."
            if len(others)
            else "Use other examples."
        )
        raise UserError(
            f"tune.examples must leave examples of at least two classes. The first {len(subset):,} of {data.name} are "
            f"all {as_written(labels[0])}. {enough}"
        )
    known = set(data.labels)
    found = {one for label in labels for one in ([label] if label in known else several(label))}
    if lacking := [label for label in data.labels if label not in found]:
        current_display().note(
            f"{data.name}: {len(subset):,} training examples do not cover all {len(known):,} classes: there is none of "
            f"{listed(lacking)}."
        )


def subset_order(data: TaskData) -> np.ndarray:
    """Rows of the training part, int64 (example,): the first n are the subset of size n.

    Examples are ordered by a hash of their content. With classes, the k-th of the n examples of a class gets position
    (k + 1/2) / n, so that every subset has each class's share, up to one example.
    """
    hashes = hash64_array(("labelled-subset",), data.train.content_ids)
    if data.shape != "classification":
        return np.argsort(hashes, kind="stable")
    labels = np.array(list(data.train.column("label")), dtype=str)
    places = np.empty(len(labels))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        places[rows[np.argsort(hashes[rows], kind="stable")]] = (np.arange(len(rows)) + 0.5) / len(rows)
    return np.lexsort((hashes, places))


def shuffled(data: TaskData) -> Corpus:
    """The training part with shuffled labels; the permutation depends on content, not on the order of lines."""
    corpus = data.train
    order = np.argsort(corpus.content_ids, kind="stable")
    drawn = stream("shuffled-labels", data.name)
    if data.shape == "tagging":
        return _shuffled_tags(corpus, order, drawn)
    if data.shape == "span":
        return _shuffled_spans(corpus, order, drawn)
    source = np.empty(len(corpus), dtype=np.int64)
    source[order] = order[drawn.permutation(len(corpus))]
    for name in _PER_EXAMPLE[data.shape]:
        if name in corpus.columns:
            values = list(corpus.column(name))
            corpus = corpus.with_column(name, [values[row] for row in source])
    return corpus


def _shuffled_tags(corpus: Corpus, order: np.ndarray, drawn: np.random.Generator) -> Corpus:
    """Tags permuted over all words, with the same permutation for each column."""
    words = list(corpus.column("words"))
    ends = np.cumsum([len(words[row]) for row in order])
    permutation = drawn.permutation(int(ends[-1]))
    for name in sorted(corpus.columns - WHOLE_COLUMNS - {"words"}):
        values = list(corpus.column(name))
        flat = [value for row in order for value in values[row]]
        mixed = [flat[place] for place in permutation]
        new: list[list] = [[] for _ in values]
        for row, end in zip(order, ends, strict=True):
            new[row] = mixed[end - len(values[row]) : end]
        corpus = corpus.with_column(name, new)
    return corpus


def _shuffled_spans(corpus: Corpus, order: np.ndarray, drawn: np.random.Generator) -> Corpus:
    """Move each answer to a random span of as many words; questions without an answer stay without one."""
    texts, answers = list(corpus.column("text")), list(corpus.column("answers"))
    starts = [[0] * len(each) for each in answers]
    for row in order:
        words = running_word_spans(texts[row])
        for index, answer in enumerate(answers[row]):
            length = min(max(len(running_words(answer)), 1), len(words))
            first = int(drawn.integers(len(words) - length + 1))
            begin, end = words[first][0], words[first + length - 1][1]
            answers[row][index], starts[row][index] = texts[row][begin:end], begin
    corpus = corpus.with_column("answers", answers)
    return corpus.with_column("answer_starts", starts) if "answer_starts" in corpus.columns else corpus


# Test texts of a task that a model may have seen before.


def leakage(data: TaskData, others: Mapping[str, Corpus]) -> pd.DataFrame:
    """The table TASK_LEAKAGE: how many distinct test texts of a task occur in its own training data and in `others`
    (role → corpus).

    Both texts of a pair count; for questions about a text, only the text counts, since many texts share questions.
    Equal and near are defined as in `Corpus.split`; `near` includes equal texts. Texts are compared as a whole, so a
    paragraph is not found in a corpus of sentences.
    """
    rows = []
    for within, corpus in {**others, "train": data.train}.items():
        texts, same, near = repeated(_texts(data.test), partial(_texts, corpus))
        rows.append({"task": data.name, "within": within, "texts": texts, "same": same, "near": near})
    return TASK_LEAKAGE.conform(pd.DataFrame(rows))


def _texts(corpus: Corpus) -> Iterator[str]:
    for name in ("text", "second"):
        if name in corpus.columns:
            yield from corpus.column(name)
