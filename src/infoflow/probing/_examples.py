"""What a probe predicts: spans of words, the label of each, and the parts for training and scoring."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Int

from infoflow.corpus import Corpus

Unit = Literal["token", "span", "pair", "sentence"]
"""What carries the label: a word, a span of words, a pair of spans, or a whole sentence."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Examples:
    """Labelled spans of one corpus. A word is a span of length one, a sentence the span of all its words."""

    sentence: Int[np.ndarray, " example"]
    """Row of the corpus."""
    first: Int[np.ndarray, "example 2"]
    """Words [start, end) of the span; for a pair, of the first span: the dependent, or the later mention."""
    second: Int[np.ndarray, "example 2"] | None
    """For a pair, the second span: the head, or the antecedent."""
    label: Int[np.ndarray, " example"]
    """Index into `ProbeTask.names`."""

    def __len__(self) -> int:
        return len(self.sentence)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """Sentences with their examples."""

    corpus: Corpus
    examples: Examples


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbeTask:
    """A task: the same labels over three parts that share no sentence."""

    name: str
    unit: Unit
    names: tuple[str, ...]
    """Label names, in order of first occurrence in the training part; all K outputs exist from the start."""
    train: Part
    dev: Part
    test: Part
    ignored: tuple[str, ...] = ()
    """Labels that micro-F1 leaves out, such as "no_relation"."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of examples left out, by reason."""
