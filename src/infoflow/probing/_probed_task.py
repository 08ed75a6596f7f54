"""A task over the corpus that a measure reads, with the states of its words, within size limits; cuts are counted."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from infoflow.flow import PassOptions, Reader
from infoflow.foundation import UserError, block_of, current_display, hash64_array

from ._controls import PARTS
from ._examples import Examples, Part, ProbeTask
from ._features import Pooling, WordFeatures
from ._shared_features import shared_features
from ._tasks import build_task, tasks


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskChoice:
    """The task to probe, and how much of the corpus to use."""

    name: str
    sentences: int
    """Maximum number of sentences, chosen by hash."""
    examples: int
    """Maximum number of examples in each part, from whole sentences chosen by hash."""
    seed: int
    """Seeds the choice of sentences, the parts, and the task's random choices."""
    pooling: Pooling = "mean"

    def __post_init__(self) -> None:
        if self.sentences < 3 or self.examples < 2:
            raise UserError(
                "sentences must be at least 3 and examples at least 2: a probe is trained, stopped and scored on "
                f"different ones. Got {self.sentences} and {self.examples}."
            )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbedTask:
    """A task whose examples all have states."""

    task: ProbeTask
    features: dict[str, WordFeatures]
    """Features by part."""

    def examples(self, part: str) -> Examples:
        return getattr(self.task, part).examples

    def blocks(self, part: str) -> Int[np.ndarray, " example"]:
        """The bootstrap block of each example's sentence."""
        asked: Part = getattr(self.task, part)
        return block_of(asked.corpus.content_ids[asked.examples.sentence])

    @property
    def stack(self) -> str:
        return self.features["train"].stack


def probed_task(choice: TaskChoice, reader: Reader, options: PassOptions, held: int | None = None) -> ProbedTask | None:
    """The task on the reader's corpus, with states that are shared by probes of the same sentences.

    None if the corpus lacks the columns of a task of the catalogue.

    Args:
        choice: The task, and how much of the corpus.
        reader: Reader of the model and the corpus.
        options: Options of the pass.
        held: Maximum bytes of one part's inputs if all are held in memory; examples are cut to fit.

    Raises:
        UserError: There is no such task, or `build_task` cannot build it from this corpus.
    """
    rows = chosen_sentences(reader, choice.sentences, choice.seed)
    task = asked_task(choice.name, reader, rows, choice.seed)
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


def asked_task(name: str, reader: Reader, rows: np.ndarray, seed: int) -> ProbeTask | None:
    """The task on these sentences of the reader's corpus.

    None if the corpus lacks the columns of a task of the catalogue.

    Raises:
        UserError: There is no such task, or `build_task` cannot build it from this corpus.
    """
    named, possible = ({task.name for task in tasks(corpus)} for corpus in (None, reader.corpus))
    return None if name in named - possible else build_task(name, reader.corpus, rows, seed=seed)


def features_of(
    task: ProbeTask, reader: Reader, rows: np.ndarray, pooling: Pooling, options: PassOptions
) -> dict[str, WordFeatures]:
    """Features by part; parts of one corpus share one pass, as do all probes of a model on the same sentences."""
    found: dict[str, WordFeatures] = {}
    for name in PARTS:
        corpus = getattr(task, name).corpus
        asked = rows if corpus.digest == reader.corpus.digest else np.arange(len(corpus))
        of_same = [found[other] for other in found if getattr(task, other).corpus.digest == corpus.digest]
        found[name] = of_same[0] if of_same else shared_features(reader, corpus, asked, pooling, options)
    return found


def _held(choice: TaskChoice, task: ProbeTask, features: WordFeatures, held: int) -> TaskChoice:
    paired = task.train.examples.second is not None
    most = max(2, held // (4 * features.num_states * features.width * (3 if paired else 1)))
    if most < min(choice.examples, len(task.train.examples)):
        current_display().note(f"{task.name}: at most {most:,} examples in each part (the byte budget).")
    return replace(choice, examples=min(choice.examples, most))


def taken(examples: Examples, index: np.ndarray) -> Examples:
    """The examples at these indices or under this mask."""
    second = None if examples.second is None else examples.second[index]
    return Examples(
        sentence=examples.sentence[index], first=examples.first[index], second=second, label=examples.label[index]
    )


def _capped(part: Part, choice: TaskChoice) -> Part:
    """Examples of the first sentences by hash, as many as fit, from at least one sentence."""
    sentences, number = np.unique(part.examples.sentence, return_inverse=True)
    place = np.empty(len(sentences), dtype=np.int64)
    hashes = hash64_array(("probe-examples", choice.seed), part.corpus.content_ids[sentences])
    place[np.argsort(hashes, kind="stable")] = np.arange(len(sentences))
    counts = np.cumsum(np.bincount(place[number]))
    fits = (counts <= choice.examples)[place[number]] | (place[number] == 0)
    return Part(corpus=part.corpus, examples=taken(part.examples, np.flatnonzero(fits)))


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
                "sentences, raise max_length or sample_bytes."
            )
        parts[name] = Part(corpus=part.corpus, examples=taken(part.examples, np.flatnonzero(kept)))
    if lost:
        current_display().note(
            f"{lost:,} examples of {task.name} are left out: their words are cut off, have no token, or are beyond the "
            "byte budget."
        )
    return replace(task, **parts)
