"""Usable information: how much a simple classifier can extract about a token from a layer's states."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Float32, Int, Int64
from scipy.special import ndtri
from torch import Tensor

from infoflow.flow import NO_LABEL, SAMPLE_COLUMNS, Regime, SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import NUM_BLOCKS, Interval, UserError, block_interval, block_of, current_display
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate, estimate_columns, linear_replicates

from ._entropy import BlockCounts
from ._gaussian_classifier import LabelledMoments
from ._information_estimate import bias_draws, standard_noise, wider
from ._information_measure import most_frequent, regime_refusal
from ._information_table import CONVERGED, INFORMATION_KEYS
from ._views import as_labels, as_view

_LEAST_TOKENS = 500
_LEAST_BLOCKS = 4  # two halves of the sentences, and in each some to choose ridge, temperature and floor on
_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # in units of the median variance of a principal axis
_TEMPERATURES = (1.0, 0.5, 0.25, 0.12, 0.06)
_FLOORS = (1e-4, 1e-3, 1e-2, 1e-1)  # share of the labels' frequencies in each prediction
_CHOICE_TOKENS = 1500


def usable_columns(carries: str) -> tuple[Column, ...]:
    """The columns of a table of usable information; `carries` is what the intervals cover."""
    return (
        *INFORMATION_KEYS,
        *estimate_columns(
            "nats",
            f"usable information; its interval covers {carries} and, at the upper end, what more tokens would add",
            "the value for shuffled labels",
            "occurrences; every one is scored by the classifier of the other half of the sentences",
        ),
        Column("at_half", "float64", "nats", "value with half of the fitted sentences"),
        Column(
            "converged", "bool", "", f"value and at_half differ by at most {CONVERGED} nats, or value and entropy do"
        ),
        Column("entropy", "float64", "nats", "entropy of the labels: the ceiling"),
        Column("types", "int64", "types", "distinct labels"),
        *SAMPLE_COLUMNS,
    )


USABLE_INFORMATION = TableSchema(
    name="usable_information",
    version=2,
    description="What a Gaussian classifier, fitted on other sentences, can read about the token from a layer's "
    "states, in nats: entropy of the tokens minus the classifier's cross-entropy. A lower bound without clusters. "
    "Compare rows of equal types and count.",
    columns=usable_columns("the choice of sentences"),
)


class _Calibration(NamedTuple):
    ridge: float
    temperature: float
    floor: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class UsableEstimate:
    """Usable information of one layer, in nats."""

    value: float
    at_half: float  # the value with classifiers fitted to half as many sentences
    baseline: float  # the value with shuffled labels
    entropy: float
    without_block: Float[np.ndarray, " block"]
    """The value when each bootstrap block is left out of the scored sentences."""
    of_seed: float = 0.0  # standard error due to the choice of initial weights, if they are random

    @classmethod
    def of(
        cls,
        labels: Int[np.ndarray, " token"],
        blocks: Int[np.ndarray, " token"],
        scores: Float[np.ndarray, " token"],
        at_half: float,
        shuffled: float,
        of_seed: float = 0.0,
    ) -> "UsableEstimate":
        """The estimate from each token's log-probability, and the means for half of the tokens and shuffled labels."""
        counts = BlockCounts.of(labels, blocks)
        entropy, without = float(counts.sums().chao_wang_jost), counts.sums_without_each().chao_wang_jost
        sums = np.bincount(blocks, weights=scores, minlength=NUM_BLOCKS)
        sizes = np.bincount(blocks, minlength=NUM_BLOCKS)
        return cls(
            value=entropy + scores.mean(),
            at_half=entropy + at_half,
            baseline=entropy + shuffled,
            entropy=entropy,
            without_block=without + (sums.sum() - sums) / np.maximum(len(scores) - sizes, 1),
            of_seed=of_seed,
        )

    @property
    def drift(self) -> float:
        """How much more tokens could add, as a standard error.

        It is the gain from the last doubling of the fitted sentences, or the gap between value and entropy if that is
        smaller.
        """
        return min(self.value - self.at_half, max(self.entropy - self.value, 0.0))

    def columns(self, count: int) -> dict[str, Any]:
        """The columns of the table that depend on the layer."""
        replicates = linear_replicates(self.value, self.without_block)
        replicates += bias_draws(self.drift, len(replicates))
        replicates += self.of_seed * standard_noise(len(replicates), "usable-information-seed")
        low, high = block_interval(self.value, self.value - self.without_block)
        if self.of_seed:
            low, high = wider(Interval(low, high), self.value, self.of_seed * float(ndtri(0.975)))
        with_more = self.value + np.hypot(high - self.value, max(self.drift, 0.0) * ndtri(0.975))
        ends = Interval(low, max(high, min(float(with_more), self.entropy)))
        return {
            **estimate(self.value, replicates, self.baseline, count, ends=ends),
            "at_half": self.at_half,
            "converged": abs(self.drift) <= CONVERGED,
            "entropy": self.entropy,
        }


def usable_information(
    states: Tensor | np.ndarray, labels: Tensor | np.ndarray | list, sentences: np.ndarray | None = None
) -> float:
    r"""How much information about labels a Gaussian classifier extracts from held-out states, in nats.

    $$ I_V = H(T) - \frac1N \sum_i -\ln f_{\text{other half}}(t_i \mid h_i) $$

    This is a lower bound of the mutual information. V is the family of classifiers in which the states of each label
    are Gaussian with a shared covariance. The value depends neither on a clustering nor on components of the states
    that are independent of the labels.

    Args:
        states: (token, width).
        labels: (token,) labels of any kind.
        sentences: (token,) ids of sentences, which are fitted or scored as a whole; default: each token separately.

    Source: [@xu2020usable], [@pimentel2020information].

    Raises:
        UserError: Lengths differ, states are not finite, or there are too few tokens or sentences.

    >>> states = np.repeat(np.eye(4), 500, axis=0)
    >>> round(usable_information(states, np.repeat(np.arange(4), 500)), 2)
    1.39
    """
    rows = as_view(states, "states", torch.float32)
    targets = as_labels(labels, "labels", len(rows))
    ids = np.arange(len(rows)) if sentences is None else np.asarray(sentences)
    if len(ids) != len(rows):
        raise UserError(f"sentences must hold one id per row. Got {len(ids)} for {len(rows)} rows.")
    blocks = block_of(ids)
    if lack := _lack(blocks):
        raise UserError(f"Usable information needs {lack}.")
    return float(estimate_usable(rows, targets.astype(np.int64), blocks).value)


def _lack(blocks: Int[np.ndarray, " token"]) -> str:
    """Why there is no estimate for tokens of these blocks; empty if there is one."""
    if len(blocks) < _LEAST_TOKENS:
        return f"at least {_LEAST_TOKENS} tokens. Got {len(blocks)}"
    if (num := len(np.unique(blocks))) < _LEAST_BLOCKS:
        return f"sentences in at least {_LEAST_BLOCKS} bootstrap blocks. Got {num}: give more sentences"
    return ""


def estimate_usable(
    states: Float32[Tensor, "token width"], labels: Int[np.ndarray, " token"], blocks: Int[np.ndarray, " token"]
) -> UsableEstimate:
    """Usable information by two classifiers, each fitted on half of the bootstrap blocks and scored on the other.

    Ridge, temperature and floor are chosen on an eighth of the fitted blocks. At least `_LEAST_BLOCKS` blocks are
    needed.
    """
    targets = torch.from_numpy(labels)
    place = np.unique(blocks, return_inverse=True)[1]
    num_labels = int(labels.max()) + 1
    score, at_half = np.zeros(len(labels)), np.zeros(len(labels))
    shuffled = []
    for fold in (0, 1):
        part, fitted = place % 2 == fold, place // 2
        scored = np.flatnonzero(~part)
        which = [np.flatnonzero(part & chosen) for chosen in (fitted % 8 != 0, fitted % 8 == 0, fitted % 2 == 0)]
        fold_data = _Fold(states, targets, num_labels, np.flatnonzero(part), *which)
        score[scored], at_half[scored] = fold_data.scores(scored)
        shuffled.append(fold_data.shuffled())
    return UsableEstimate.of(labels, blocks, score, float(at_half.mean()), float(np.mean(shuffled)))


@dataclass(frozen=True, slots=True, eq=False)
class _Fold:
    """One half of the sentences, on which a classifier is fitted."""

    states: Float32[Tensor, "token width"]
    labels: Int64[Tensor, " token"]
    num_labels: int
    whole: Int[np.ndarray, " fitted"]
    most: Int[np.ndarray, " _"]  # rows fitted while ridge, temperature and floor are chosen
    held: Int[np.ndarray, " _"]  # rows on which these are chosen
    half: Int[np.ndarray, " _"]

    def scores(self, scored: Int[np.ndarray, " scored"]) -> tuple[np.ndarray, np.ndarray]:
        """Log-probabilities from all fitted sentences and from half of them."""
        _, chosen = self._best(self.labels, _RIDGES)
        return tuple(self._score(index, scored, chosen) for index in (self.whole, self.half))  # type: ignore[return-value]

    def shuffled(self) -> float:
        """Mean log-probability of shuffled labels, on the tokens used to choose the settings."""
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(self.labels)))
        return self._best(self.labels[order], _RIDGES[-1:])[0]

    def _score(self, fitted: np.ndarray, scored: np.ndarray, chosen: _Calibration) -> np.ndarray:
        moments = LabelledMoments.of(self.states[fitted], self.labels[fitted], self.num_labels)
        model = moments.classifier(chosen.ridge)
        labels = self.labels[scored]
        found = model.log_probabilities(self.states[scored], labels, (chosen.temperature,))
        return model.mixed(found[0], labels, chosen.floor).numpy()

    def _best(self, labels: Tensor, ridges: tuple[float, ...]) -> tuple[float, _Calibration]:
        best = (-np.inf, _Calibration(ridges[0], 1.0, _FLOORS[0]))
        held = self.held[:_CHOICE_TOKENS]
        moments = LabelledMoments.of(self.states[self.most], labels[self.most], self.num_labels)
        for ridge in ridges:
            model = moments.classifier(ridge)
            found = model.log_probabilities(self.states[held], labels[held], _TEMPERATURES)
            for (place, temperature), floor in product(enumerate(_TEMPERATURES), _FLOORS):
                mean = float(model.mixed(found[place], labels[held], floor).mean())
                best = max(best, (mean, _Calibration(ridge, temperature, floor)), key=lambda each: each[0])
        return best


class UsableInformation(SampleMeasure):
    """The information about the token that a simple classifier can extract from a layer's states.

    The tokens are those of `MutualInformation`. No clustering limits it: layer 0, which determines the token, reaches
    H(T) once there are enough tokens. The value is a lower bound that rises with the number of tokens; `at_half` and
    `converged` show whether it still does.

    Args:
        types: Number of most frequent token types.
        occurrences: At most this many sampled tokens, half of which fit a classifier.
        regime: `"clean"`: unmodified text; `"training"`: masked as in training.

    Source: [@xu2020usable], [@pimentel2020information]; the classifier: [@ioffe2006], [@friedman1989].
    """

    table: ClassVar[TableSchema] = USABLE_INFORMATION

    def __init__(self, types: int = 1000, occurrences: int = 50_000, regime: Regime = "clean") -> None:
        for name, number, least in (("types", types, 2), ("occurrences", occurrences, _LEAST_TOKENS)):
            if number < least:
                raise UserError(f"{name} must be at least {least}. Got {number}.")
        self.types, self.occurrences = types, occurrences
        self.regime: Regime = regime
        self.request = SampleRequest(occurrences=occurrences, top_types=types)

    def refusal(self, model: Model) -> str | None:
        return regime_refusal(self.regime, model)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        rows = []
        for side, labels in self._sides(sample).items():
            kept = np.flatnonzero(labels >= 0)
            part = sample.take(kept)
            if _lack(part.blocks):
                continue
            classes, targets = np.unique(labels[kept], return_inverse=True)
            for layer, found in enumerate(self.estimates(part, targets.astype(np.int64))):
                keys = {"stack": sample.facts.stack, "regime": self.regime, "side": side, "layer": layer}
                rows.append({**keys, **found.columns(len(kept)), "types": len(classes)})
        if not rows:
            current_display().note(
                f"{self.name} of {sample.facts.model} is skipped: fewer than {_LEAST_TOKENS} usable tokens."
            )
        frame = pd.DataFrame(rows, columns=None if rows else self.table.column_names)
        return frame.assign(**sample.sizes(self.request)) if rows else frame

    def estimates(self, sample: TokenSample, labels: Int[np.ndarray, " token"]) -> Iterator[UsableEstimate]:
        """The usable information of every layer of the sample about its tokens' labels, 0..K−1."""
        for layer in range(sample.num_states):
            yield estimate_usable(torch.from_numpy(sample.states(layer)), labels, sample.blocks)

    def _sides(self, sample: TokenSample) -> dict[str, Int[np.ndarray, " token"]]:
        """The labels of both sides; −1 where a token does not count."""
        token, label = sample.occurrences.token, sample.occurrences.label
        frequent = most_frequent(sample.facts.frequencies, self.types)
        read, to_predict = frequent[token], (label != NO_LABEL) & frequent[np.maximum(label, 0)]
        if self.regime == "training":
            read = to_predict = read & to_predict & (token != label)
        sides = {"input": np.where(read, token, -1), "output": np.where(read & to_predict, label, -1)}
        return {side: labels for side, labels in sides.items() if side == "input" or (labels >= 0).sum() > 1}
