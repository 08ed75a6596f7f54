"""What a probe is asked: spans of words, the label of each, and the parts it is trained and scored on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Int

from infoflow.corpus import Corpus

Unit = Literal["token", "span", "pair", "sentence"]
"""What is labelled: a word, a span of words, a pair of spans, or a whole sentence."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Examples:
    """Labelled spans of one corpus. A word is a span of one, a sentence the span of all its words."""

    sentence: Int[np.ndarray, " example"]
    """Row of the corpus."""
    first: Int[np.ndarray, "example 2"]
    """Words [start, end) of the span; of a pair, of the first one: the dependent, the mention that comes later."""
    second: Int[np.ndarray, "example 2"] | None
    """Of a pair, the other span: the head, the antecedent."""
    label: Int[np.ndarray, " example"]
    """Index into `ProbeTask.names`."""

    def __len__(self) -> int:
        return len(self.sentence)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """Sentences, and what is asked about them."""

    corpus: Corpus
    examples: Examples


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbeTask:
    """A task: the same labels over three parts that share no sentence."""

    name: str
    unit: Unit
    names: tuple[str, ...]
    """Label names, those of the training part first seen first; all K outputs exist from the start."""
    train: Part
    dev: Part
    test: Part
    ignored: tuple[str, ...] = ()
    """Labels that micro-F1 leaves out, such as "no_relation"."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """What was not asked, by reason: counts, never silent."""
