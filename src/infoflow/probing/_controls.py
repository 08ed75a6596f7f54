"""Control tasks: random labels of word types, which a probe can only memorise."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, hash64, running_words, stream

from ._batched import NOT_ASKED
from ._examples import Examples, Part, ProbeTask

PARTS = ("train", "dev", "test")
ARC_LABELS = frozenset({"arc", "none"})
"""Labels of a task that decides whether the second word is the head of the first."""
_HEADS = 3  # the word itself, the first word, the last


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ExampleTypes:
    """The type of each example, which determines its control label."""

    names: tuple[str, ...]
    """The types, each once."""
    of: Mapping[str, Int[np.ndarray, " example"]]
    """Index into `names`, by part ("train", "dev", "test")."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ControlLabels:
    """A control task: the label of every type, and through it of every example."""

    label_of: Int[np.ndarray, " type"]
    """`NOT_ASKED` for a type whose examples keep their own labels."""
    of: Mapping[str, Int[np.ndarray, " example"]]
    """Labels by part."""


def example_types(task: ProbeTask) -> ExampleTypes:
    """The type of each example of a task.

    | unit     | type                                                            |
    |----------|-----------------------------------------------------------------|
    | token    | the word                                                        |
    | span     | the first word of the span                                      |
    | pair     | the first word of the first span: of an arc, the dependent       |
    | sentence | the text of the sentence, so that its label is random               |

    For spans, pairs and sentences the source defines no type: all spans have a first word, and a type must be
    recognisable by identity.
    """
    numbers: dict[str, int] = {}
    of = {name: _types(getattr(task, name), task.unit == "sentence", numbers) for name in PARTS}
    return ExampleTypes(names=tuple(numbers), of=of)


def _types(part: Part, whole: bool, numbers: dict[str, int]) -> Int[np.ndarray, " example"]:
    words, asked = words_of(part.corpus, part.examples.sentence), part.examples
    found = np.empty(len(asked), dtype=np.int64)
    for index, (row, first) in enumerate(zip(asked.sentence.tolist(), asked.first[:, 0].tolist(), strict=True)):
        name = " ".join(words[row]) if whole else words[row][first]
        found[index] = numbers.setdefault(name, len(numbers))
    return found


def words_of(corpus: Corpus, rows: Int[np.ndarray, " example"]) -> dict[int, list[str]]:
    """The words of these sentences, by row: the corpus's own, else those of running text."""
    chosen = np.unique(rows)
    if len(chosen) == 0:
        return {}
    sentences = corpus.select(chosen)
    return {
        row: list(sentence.words) if sentence.words is not None else running_words(sentence.text)
        for row, sentence in zip(chosen.tolist(), sentences, strict=True)
    }


def control_labels(
    types: ExampleTypes,
    labels: Mapping[str, Int[np.ndarray, " example"]],
    classes: int,
    seed: int = 0,
    corrupted: float = 1.0,
) -> ControlLabels:
    """Assign each type one label, drawn from the distribution of the labels in the training part.

    The draw depends only on (seed, the type's text), not on other types or their order. If only a share is corrupted,
    types are taken by hash until they cover that share of the examples of all parts.

    Args:
        types: From `example_types`.
        labels: The task's own labels by part.
        classes: Number of labels of the task.
        seed: Seeds the map from types to labels.
        corrupted: Share of the examples whose types get a random label; the others keep their own.

    Raises:
        UserError: `corrupted` lies outside [0, 1].

    Source: [@hewitt2019control].
    """
    if not 0 <= corrupted <= 1:
        raise UserError(f"corrupted must lie in 0..1, as a share of the examples. Got {corrupted}.")
    shares = np.cumsum(np.bincount(labels["train"], minlength=classes) / max(1, len(labels["train"])))
    drawn = np.array([hash64("control", seed, name) / 2**64 for name in types.names])
    label_of = np.minimum(np.searchsorted(shares, drawn, side="right"), classes - 1)
    if corrupted < 1:
        label_of[~_first_types(types, seed, corrupted)] = NOT_ASKED
    own = {part: label_of[types.of[part]] for part in PARTS}
    of = {part: np.where(own[part] == NOT_ASKED, labels[part], own[part]) for part in PARTS}
    return ControlLabels(label_of=label_of, of=of)


def _first_types(types: ExampleTypes, seed: int, share: float) -> np.ndarray:
    counts = np.bincount(np.concatenate([types.of[part] for part in PARTS]), minlength=len(types.names))
    order = np.argsort([hash64("corrupted", seed, name) for name in types.names], kind="stable")
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[np.cumsum(counts[order]) <= share * counts.sum()]] = True
    return chosen


def control_heads(words: Sequence[str], seed: int = 0) -> Int[np.ndarray, " word"]:
    """A random head for each word, by its type: the word itself, or the first or last word of the sentence.

    Source: [@hewitt2019control].
    """
    ends = (None, 0, len(words) - 1)
    heads = (ends[hash64("control-head", seed, word) % _HEADS] for word in words)
    return np.array([at if head is None else head for at, head in enumerate(heads)], dtype=np.int64)


def is_arcs(task: ProbeTask) -> bool:
    """Whether the task decides if one word is the head of another."""
    return task.unit == "pair" and set(task.names) == ARC_LABELS


def control_arcs(part: Part, names: Sequence[str], seed: int = 0) -> Examples:
    """The control of `arc`: the first word of each pair with its random head, and with one other word.

    The other word is drawn at random and is never the head; a sentence of one word has none.
    """
    words = words_of(part.corpus, part.examples.sentence)
    asked = np.unique(np.stack([part.examples.sentence, part.examples.first[:, 0]], axis=1), axis=0)
    arcs = np.array(list(_drawn_arcs(asked.tolist(), words, seed)), dtype=np.int64).reshape(-1, 4)
    return Examples(
        sentence=arcs[:, 0],
        first=arcs[:, [1, 1]] + [0, 1],
        second=arcs[:, [2, 2]] + [0, 1],
        label=np.where(arcs[:, 3], tuple(names).index("arc"), tuple(names).index("none")),
    )


def _drawn_arcs(
    asked: list[list[int]], words: Mapping[int, Sequence[str]], seed: int
) -> Iterator[tuple[int, int, int, bool]]:
    """Row, word, other word, and whether that is its head."""
    heads = {row: control_heads(each, seed) for row, each in words.items()}
    for row, word in asked:
        head, length = int(heads[row][word]), len(heads[row])
        if length < 2:
            continue
        other = int(stream("control-arc", seed, " ".join(words[row]), word).integers(length - 1))
        yield row, word, head, True
        yield row, word, other + (other >= head), False
