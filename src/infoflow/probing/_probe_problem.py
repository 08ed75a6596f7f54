"""The data of one batch of probes: a task and its control over the same examples, or one of the two."""

# N example, R set of labels, S seed

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

from infoflow.foundation import hash64_array

from ._batched import LabelledRows
from ._probe_inputs import ChosenRows, InputRows


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AskedPart:
    """The examples of one part."""

    rows: InputRows
    labels: Int[np.ndarray, "set example"]
    sentences: Int[np.ndarray, " example"]
    """`Corpus.content_ids`, or any numbers that identify sentences."""
    types: Int[np.ndarray, " example"]

    @property
    def labelled(self) -> LabelledRows:
        return LabelledRows(rows=self.rows, labels=self.labels)

    def take(self, index: Int[np.ndarray, " chosen"]) -> "AskedPart":
        return AskedPart(
            rows=ChosenRows(self.rows, index),
            labels=self.labels[:, index],
            sentences=self.sentences[index],
            types=self.types[index],
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbeProblem:
    """Examples in three parts, and the label sets that their probes learn."""

    train: AskedPart
    dev: AskedPart
    test: AskedPart
    classes: int
    sets: Mapping[str, Sequence[int]]
    """For "task" and "control": the row of `labels` that each seed learns."""

    def of_share(self, share: float, seed: int = 0) -> "ProbeProblem":
        """Keeps this share of the training sentences, at least one, by hash: smaller shares nest in larger ones."""
        if share >= 1:
            return self
        every = np.unique(self.train.sentences)
        order = np.argsort(hash64_array(("probe-share", seed), every), kind="stable")
        chosen = every[order[: math.ceil(share * len(every))]]
        kept = np.flatnonzero(np.isin(self.train.sentences, chosen))
        return replace(self, train=self.train.take(kept))

    @property
    def seen(self) -> Bool[np.ndarray, " example"]:
        """Which test examples have a type that occurs in the training part."""
        return np.isin(self.test.types, self.train.types)
