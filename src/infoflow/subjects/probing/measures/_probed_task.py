"""A task on a measure's corpus, with the states of its words, and its control: random labels for word types."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, Reader
from infoflow.foundation import UserError, block_of, current_display, hash64, hash64_array, running_words, stream

from ._batched import NO_ANSWER
from ._features import Pooling, WordFeatures, shared_features
from ._questions import PARTS, Examples, Part, ProbeTask
from ._tasks import build_task, tasks

ARC_LABELS = frozenset({"arc", "none"})
"""Label names of a task that decides whether the second word is the head of the first."""
_HEADS = 3  # the word itself, the first word, the last


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ExampleTypes:
    """The type of each example, which determines its control label."""

    names: tuple[str, ...]  # the types, each once
    of: Mapping[str, Int[np.ndarray, " example"]]  # index into `names`, by part ("train", "dev", "test")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ControlLabels:
    """A control task: a label for every type, and thereby for every example."""

    label_of: Int[np.ndarray, " type"]  # `NO_ANSWER` for a type whose examples keep their own labels
    of: Mapping[str, Int[np.ndarray, " example"]]  # labels by part


def example_types(task: ProbeTask) -> ExampleTypes:
    """The type of each example of a task.

    | unit     | type                                                            |
    |----------|-----------------------------------------------------------------|
    | token    | the word                                                        |
    | span     | the first word of the span                                      |
    | pair     | the first word of the first span: of an arc, the dependent       |
    | sentence | the text of the sentence, so that its label is random               |

    The source defines types only for tokens. The first word is our choice for spans and pairs, since every span has
    one, and types must be recognisable by their text.
    """
    numbers: dict[str, int] = {}
    of = {name: _types(getattr(task, name), task.unit == "sentence", numbers) for name in PARTS}
    return ExampleTypes(names=tuple(numbers), of=of)


def _types(part: Part, whole: bool, numbers: dict[str, int]) -> Int[np.ndarray, " example"]:
    words, examples = words_of(part.corpus, part.examples.sentence), part.examples
    found = np.empty(len(examples), dtype=np.int64)
    for index, (row, first) in enumerate(zip(examples.sentence.tolist(), examples.first[:, 0].tolist(), strict=True)):
        name = " ".join(words[row]) if whole else words[row][first]
        found[index] = numbers.setdefault(name, len(numbers))
    return found


def words_of(corpus: Corpus, rows: Int[np.ndarray, " example"]) -> dict[int, list[str]]:
    """The words of these sentences, by row: the corpus's own, or else those of running text."""
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

    The draw depends only on (seed, the type's text), not on other types or their order. If `corrupted` is below 1, only
    some types get such a label; they are selected by hash until they cover that share of the examples of all parts.

    Source: [@hewitt2019control].
    """
    if not 0 <= corrupted <= 1:
        raise UserError(f"corrupted must lie in 0..1, as a share of the examples. Got {corrupted}.")
    shares = np.cumsum(np.bincount(labels["train"], minlength=classes) / max(1, len(labels["train"])))
    drawn = np.array([hash64("control", seed, name) / 2**64 for name in types.names])
    label_of = np.minimum(np.searchsorted(shares, drawn, side="right"), classes - 1)
    if corrupted < 1:
        label_of[~_first_types(types, seed, corrupted)] = NO_ANSWER
    own = {part: label_of[types.of[part]] for part in PARTS}
    of = {part: np.where(own[part] == NO_ANSWER, labels[part], own[part]) for part in PARTS}
    return ControlLabels(label_of=label_of, of=of)


def _first_types(types: ExampleTypes, seed: int, share: float) -> np.ndarray:
    counts = np.bincount(np.concatenate([types.of[part] for part in PARTS]), minlength=len(types.names))
    order = np.argsort([hash64("corrupted", seed, name) for name in types.names], kind="stable")
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order[np.cumsum(counts[order]) <= share * counts.sum()]] = True
    return chosen


def control_heads(words: Sequence[str], seed: int = 0) -> Int[np.ndarray, " word"]:
    """A head for each word, drawn for its type: the word itself, or the first or last word of the sentence.

    Source: [@hewitt2019control].
    """
    ends = (None, 0, len(words) - 1)
    heads = (ends[hash64("control-head", seed, word) % _HEADS] for word in words)
    return np.array([at if head is None else head for at, head in enumerate(heads)], dtype=np.int64)


def is_arcs(task: ProbeTask) -> bool:
    """Whether the task decides if one word is the head of another."""
    return task.unit == "pair" and set(task.names) == ARC_LABELS


def control_arcs(part: Part, names: Sequence[str], seed: int = 0) -> Examples:
    """The control of `arc`: pairs of each dependent with its random head, and with one other word.

    The other word is drawn at random and is never the head; a sentence of one word has none.
    """
    words = words_of(part.corpus, part.examples.sentence)
    dependents = np.unique(np.stack([part.examples.sentence, part.examples.first[:, 0]], axis=1), axis=0)
    arcs = np.array(list(_drawn_arcs(dependents.tolist(), words, seed)), dtype=np.int64).reshape(-1, 4)
    return Examples(
        sentence=arcs[:, 0],
        first=arcs[:, [1, 1]] + [0, 1],
        second=arcs[:, [2, 2]] + [0, 1],
        label=np.where(arcs[:, 3], tuple(names).index("arc"), tuple(names).index("none")),
    )


def _drawn_arcs(
    pairs: list[list[int]], words: Mapping[int, Sequence[str]], seed: int
) -> Iterator[tuple[int, int, int, bool]]:
    """Row, word, other word, and whether the other word is its head."""
    heads = {row: control_heads(each, seed) for row, each in words.items()}
    for row, word in pairs:
        head, length = int(heads[row][word]), len(heads[row])
        if length < 2:
            continue
        other = int(stream("control-arc", seed, " ".join(words[row]), word).integers(length - 1))
        yield row, word, head, True
        yield row, word, other + (other >= head), False


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskChoice:
    """The task to probe, and how much of the corpus to use."""

    name: str
    sentences: int  # maximum number of sentences, chosen by hash
    examples: int  # maximum number of examples in each part, from whole sentences chosen by hash
    seed: int  # seeds the choice of sentences, the parts, and the task's random choices
    pooling: Pooling = "mean"

    def __post_init__(self) -> None:
        if self.sentences < 3 or self.examples < 2:
            raise UserError(
                "sentences must be at least 3 and examples at least 2: a probe is trained, stopped and scored on "
                f"different sentences and examples. Got {self.sentences} and {self.examples}."
            )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbedTask:
    """A task whose examples all have states."""

    task: ProbeTask
    features: dict[str, WordFeatures]  # features by part

    def examples(self, part: str) -> Examples:
        return getattr(self.task, part).examples

    def blocks(self, part: str) -> Int[np.ndarray, " example"]:
        """The bootstrap block of each example's sentence."""
        chosen: Part = getattr(self.task, part)
        return block_of(chosen.corpus.content_ids[chosen.examples.sentence])

    @property
    def stack(self) -> str:
        return self.features["train"].stack


def probed_task(choice: TaskChoice, reader: Reader, options: PassOptions, held: int | None = None) -> ProbedTask | None:
    """The task on the reader's corpus; all probes of the same sentences share its states.

    None if the corpus lacks the columns of a task of the catalogue.
    """
    rows = chosen_sentences(reader, choice.sentences, choice.seed)
    task = requested_task(choice.name, reader, rows, choice.seed)
    if task is None:
        return None
    features = features_of(task, reader, rows, choice.pooling, options)
    task = with_states(task, features)
    if held is not None:
        choice = _held(choice, task, features["train"], held)
    return ProbedTask(
        task=replace(task, **{name: _capped(getattr(task, name), choice) for name in PARTS}), features=features
    )


def chosen_sentences(reader: Reader, most: int, seed: int) -> np.ndarray:
    """At most this many of the sentences that have tokens, by hash."""
    ids = reader.corpus.content_ids[reader.rows]
    return reader.rows[np.argsort(hash64_array(("probe", seed), ids), kind="stable")[:most]]


def requested_task(name: str, reader: Reader, rows: np.ndarray, seed: int) -> ProbeTask | None:
    """The task on these sentences of the reader's corpus.

    None if the corpus lacks the columns of a task of the catalogue.
    """
    named, possible = ({task.name for task in tasks(corpus)} for corpus in (None, reader.corpus))
    return None if name in named - possible else build_task(name, reader.corpus, rows, seed=seed)


def features_of(
    task: ProbeTask, reader: Reader, rows: np.ndarray, pooling: Pooling, options: PassOptions
) -> dict[str, WordFeatures]:
    """Features by part. The parts of one corpus share a pass, and so do all probes of a model on the same sentences."""
    found: dict[str, WordFeatures] = {}
    for name in PARTS:
        corpus = getattr(task, name).corpus
        read = rows if corpus.digest == reader.corpus.digest else np.arange(len(corpus))
        of_same = [found[other] for other in found if getattr(task, other).corpus.digest == corpus.digest]
        found[name] = of_same[0] if of_same else shared_features(reader, corpus, read, pooling, options)
    return found


def _held(choice: TaskChoice, task: ProbeTask, features: WordFeatures, held: int) -> TaskChoice:
    paired = task.train.examples.second is not None
    most = max(2, held // (4 * features.num_states * features.width * (3 if paired else 1)))
    if most < min(choice.examples, len(task.train.examples)):
        current_display().note(f"{task.name}: at most {most:,} examples in each part (the byte budget).")
    return replace(choice, examples=min(choice.examples, most))


def _capped(part: Part, choice: TaskChoice) -> Part:
    """Examples of the sentences with the lowest hashes, as many as fit; at least one sentence."""
    sentences, number = np.unique(part.examples.sentence, return_inverse=True)
    place = np.empty(len(sentences), dtype=np.int64)
    hashes = hash64_array(("probe-examples", choice.seed), part.corpus.content_ids[sentences])
    place[np.argsort(hashes, kind="stable")] = np.arange(len(sentences))
    counts = np.cumsum(np.bincount(place[number]))
    fits = (counts <= choice.examples)[place[number]] | (place[number] == 0)
    return part.take(fits)


def with_states(task: ProbeTask, features: dict[str, WordFeatures]) -> ProbeTask:
    """The task without the examples whose words lack a state; their number is reported."""
    parts, lost = {}, 0
    for name in PARTS:
        part: Part = getattr(task, name)
        kept = features[name].kept(part.examples)
        lost += int((~kept).sum())
        if not kept.any():
            raise UserError(
                f"Probes of {task.name} need words that the model reads. No example of the part {name} has states: its "
                "sentences are cut, their words have no token, or they are beyond the byte budget. Give more "
                "sentences, or raise max_length or sample_bytes."
            )
        parts[name] = part.take(kept)
    if lost:
        current_display().note(
            f"{lost:,} examples of {task.name} are left out: their words are cut off, have no token, or are beyond the "
            "byte budget."
        )
    return replace(task, **parts)
