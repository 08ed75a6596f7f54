"""What one batch of probes is trained and scored on: a task and its control over the same examples, or one of both."""

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
    """`Corpus.content_ids`, or any numbers that tell sentences apart."""
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
    """Examples in three parts, and the sets of labels that their probes learn."""

    train: AskedPart
    dev: AskedPart
    test: AskedPart
    classes: int
    sets: Mapping[str, Sequence[int]]
    """Of "task" and "control", for each seed its row of `labels`."""

    def of_share(self, share: float, seed: int = 0) -> "ProbeProblem":
        """With this share of the training sentences: the first by hash, one at least, so that less is part of more."""
        if share >= 1:
            return self
        every = np.unique(self.train.sentences)
        order = np.argsort(hash64_array(("probe-share", seed), every), kind="stable")
        chosen = every[order[: math.ceil(share * len(every))]]
        kept = np.flatnonzero(np.isin(self.train.sentences, chosen))
        return replace(self, train=self.train.take(kept))

    @property
    def seen(self) -> Bool[np.ndarray, " example"]:
        """Which test examples are of a type that is in the training part."""
        return np.isin(self.test.types, self.train.types)
