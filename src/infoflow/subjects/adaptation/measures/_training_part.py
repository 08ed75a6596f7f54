"""Which labelled examples are used for training, and test texts that a model may have seen."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from infoflow.corpus import WHOLE_COLUMNS, Corpus, repeated
from infoflow.foundation import (
    UserError,
    as_written,
    current_display,
    hash64_array,
    running_word_spans,
    running_words,
    stream,
)

from ._tables import TASK_LEAKAGE
from ._task import TaskData, listed, several

# Which labelled examples are used for training: fewer of them, or with shuffled labels.


_PER_EXAMPLE = {"classification": ("label",), "regression": ("label",), "choice": ("label",)} | {
    "generation": ("translation", "references")
}


def training_part(data: TaskData, examples: int, control: str) -> Corpus:
    """The training part that a model is tuned on; classes without examples are noted.

    Args:
        data: The task.
        examples: Number of examples, chosen by content: the same for every model, nested in larger subsets. Each class
            keeps its share, up to one example, so a rare class may have none. 0 takes all.
        control: "shuffled-labels" permutes the labels over the examples (tags over words; answer positions within
            passages).

    Raises:
        UserError: There are fewer examples than requested, or all examples of the subset have the same label.
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
    """Raise a UserError for a subset with only one label; note missing classes."""
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
            f"tune.examples must leave examples of at least two classes. Of {data.name} the first {len(subset):,} are "
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
    """The training part with shuffled labels; the shuffle depends on content, not on the order of lines."""
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
    """Answers of the same number of words at random positions in the passage; questions without an answer stay so."""
    texts, answers = list(corpus.column("text")), list(corpus.column("answers"))
    starts = [[0] * len(each) for each in answers]
    for row in order:
        words = running_word_spans(texts[row])
        for place, answer in enumerate(answers[row]):
            length = min(max(len(running_words(answer)), 1), len(words))
            first = int(drawn.integers(len(words) - length + 1))
            begin, end = words[first][0], words[first + length - 1][1]
            answers[row][place], starts[row][place] = texts[row][begin:end], begin
    corpus = corpus.with_column("answers", answers)
    return corpus.with_column("answer_starts", starts) if "answer_starts" in corpus.columns else corpus


# Test texts of a task that a model may have seen before.


def leakage(data: TaskData, others: Mapping[str, Corpus]) -> pd.DataFrame:
    """How many distinct test texts of a task occur in training data: the table TASK_LEAKAGE.

    Both texts of a pair count; for questions about a text only the text does, since many texts share questions. Equal
    and near are defined as in `Corpus.split`; `near` includes equal texts. Texts are matched as a whole: a paragraph is
    not found in a corpus of sentences.

    Args:
        data: The task; its own training part gives the row `train`.
        others: Corpora by role: `pretraining`, `domain`.
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
