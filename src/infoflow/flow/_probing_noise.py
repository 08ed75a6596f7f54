"""The training regime of a masked LM: its own corruption, with occurrences that distinguish input from output.

Mutual information with the input and with the output differs only at positions where the two differ, so Voita, Sennrich
and Titov (2019) keep the occurrences whose input is a *random replacement* of the token to predict. Natural corruption
yields 1.5 % of them. Here a quarter of the selected positions, rounded at random so that every token has the same
chance for any sentence length, gets a replacement drawn uniformly from the most frequent types; all others are
corrupted as usual. If few positions are selected (short sentences), the context is distributed as in training; in long
sentences slightly more of it is replaced.
"""

from dataclasses import dataclass

import numpy as np

from infoflow.corpus import Vocabulary
from infoflow.foundation import stream
from infoflow.objectives import AbstractObjective

from ._corruption import corrupt_text

PROBED_SHARE = 0.25
"""Share of the positions that the objective selects."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NoisySentence:
    inputs: np.ndarray
    labels: np.ndarray
    probes: np.ndarray  # positions whose input is a replacement and differs from the label


class ProbingNoise:
    """Corrupts sentences; the noise depends only on (seed, draw, sentence id)."""

    def __init__(
        self, objective: AbstractObjective, vocabulary: Vocabulary, replacements: np.ndarray, seed: int
    ) -> None:
        self._objective, self._vocabulary = objective, vocabulary
        self._replacements, self._seed = replacements, seed

    def __call__(self, tokens: np.ndarray, draw: int, sentence_id: int) -> NoisySentence:
        generator = stream("probing-noise", self._seed, draw, sentence_id)
        tokens = tokens.astype(np.int64)
        corrupted = corrupt_text(self._objective, tokens, generator, self._vocabulary)
        selected = np.flatnonzero(corrupted.selected)
        probes = generator.permutation(selected)[: int(PROBED_SHARE * len(selected) + generator.random())]
        inputs, labels = corrupted.input_ids.copy(), corrupted.labels.copy()
        inputs[probes] = self._replacements[generator.integers(len(self._replacements), size=len(probes))]
        labels[probes] = tokens[probes]
        return NoisySentence(inputs=inputs, labels=labels, probes=np.sort(probes[inputs[probes] != tokens[probes]]))
