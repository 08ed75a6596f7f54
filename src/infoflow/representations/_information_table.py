"""The table of mutual information: from counted tokens to rows."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt16
from scipy.special import ndtri, stdtrit

from infoflow.flow import NO_LABEL
from infoflow.foundation import block_interval, block_of, stream
from infoflow.results import Column, TableSchema, estimate, estimate_columns, linear_replicates

from ._clusters import FOLDS, fold_of
from ._entropy import BlockCounts
from ._information_estimate import (
    InformationEstimate,
    bias_draws,
    corrected_information,
    estimate_information,
    optimism_of,
    standard_noise,
    wider,
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CountedTokens:
    """Occurrences of one stack in any order, at a few bytes each."""

    sentence: Int[np.ndarray, " token"]
    position: Int[np.ndarray, " token"]
    token: Int[np.ndarray, " token"]
    label: Int[np.ndarray, " token"]  # the token to predict there; NO_LABEL if there is none
    clusters: UInt16[np.ndarray, "layer clustering token"]

    def __len__(self) -> int:
        return len(self.token)

    def take(self, rows: np.ndarray) -> "CountedTokens":
        return replace(self, **{field.name: getattr(self, field.name)[..., rows] for field in fields(self)})

    def ordered(self) -> "CountedTokens":
        """The occurrences in an order that does not depend on batches and shards."""
        return self.take(np.lexsort((self.label, self.token, self.position, self.sentence)))

    def state_dict(self) -> dict[str, np.ndarray]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def together(cls, parts: list["CountedTokens"]) -> "CountedTokens":
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts], axis=-1) for name in names})


_SHUFFLES = 3
CONVERGED = 0.03
"""Maximum remaining bias of a converged estimate in nats, as a standard error: from counting few tokens
(`InformationEstimate.drift`) and from fitting centres to few states (`optimism`)."""
LIMITED = 0.05
"""Share of the tokens' entropy that an estimate may miss at layer 0, which has all of it. If more is missing, the
resolution of the clusters limits the estimate."""

INFORMATION_KEYS = (
    Column("stack", "string", "", "encoder or decoder"),
    Column("regime", "string", "", "clean, or training: corrupted as in training"),
    Column("side", "string", "", "input: the token read; output: the token to predict"),
    Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
)
"""Columns that the tables of information have in common."""
MUTUAL_INFORMATION = TableSchema(
    name="mutual_information",
    version=6,
    description="Mutual information between a layer's states (as clusters) and the token there, in nats, corrected for "
    "the number of tokens. Compare only values with the same clusters and types; where `converged` is false, more "
    "tokens would give another value.",
    light=True,
    columns=(
        *INFORMATION_KEYS,
        *estimate_columns(
            "nats",
            "mutual information: Chao–Wang–Jost entropies, extrapolated to infinitely many tokens; its interval covers "
            "the choice of sentences, the clustering and the bias that may remain",
            "mean value for shuffled labels",
            "occurrences whose token is frequent; on the output side and in training also the token to predict",
        ),
        Column("plug_in", "float64", "nats", "plug-in estimate: biased upwards"),
        Column("at_half", "float64", "nats", "mean value from half of the sentences"),
        Column(
            "optimism",
            "float64",
            "nats",
            "half the difference between information about tokens of sentences that centres were fitted to "
            "and of others, mean over clusterings",
        ),
        Column(
            "converged",
            "bool",
            "",
            f"value and at_half differ by at most {CONVERGED} nats, and neither the bias of unseen "
            "cells nor optimism is larger",
        ),
        Column(
            "tokens_by_size",
            "list<float64>",
            "tokens",
            "occurrences in a sixteenth, an eighth, a quarter, a half and all of the sentences",
        ),
        Column("value_by_size", "list<float64>", "nats", "mean value from each of these sizes"),
        Column("plug_in_by_size", "list<float64>", "nats", "mean plug_in from each of these sizes"),
        Column("entropy", "float64", "nats", "entropy of the labels: the ceiling"),
        Column("clusters", "int64", "clusters", "number of clusters requested from k-means"),
        Column("types", "int64", "types", "distinct labels"),
        Column("inertia", "float64", "", "mean squared distance of the fitted states to their centres"),
        Column("empty_clusters", "int64", "clusters", "clusters without a state"),
        Column(
            "clustering_spread",
            "float64",
            "nats",
            "standard deviation over clusterings, pooled over layers; NaN with a single clustering",
        ),
    ),
)

MUTUAL_INFORMATION_WITHOUT_POSITION = TableSchema(
    name="mutual_information_without_position",
    description="As mutual_information, but for states minus the mean state at their position, in nats.",
    columns=MUTUAL_INFORMATION.columns,
)


class _Side(NamedTuple):
    name: Literal["input", "output"]
    labels: Int[np.ndarray, " token"]
    counted: CountedTokens


class _LayerInformation(NamedTuple):
    """One layer of one side: an estimate for each clustering, and the mean baseline."""

    estimates: list[InformationEstimate]
    optimism: float
    baseline: float
    empty_clusters: float

    def mean(self, name: str) -> Any:
        return np.mean([getattr(each, name) for each in self.estimates], axis=0)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class InformationRows:
    """Data for the rows of one stack."""

    counted: CountedTokens
    frequent: Bool[np.ndarray, " id"]  # which token ids count
    model: str
    stack: str
    regime: str
    clusters: int
    inertia: Float[np.ndarray, " layer"]

    def rows(self) -> list[dict[str, Any]]:
        """Rows by side and layer."""
        return [row for side in self._sides() for row in self._side(side)]

    def _sides(self) -> list[_Side]:
        counted = self.counted.ordered()
        labelled = np.flatnonzero((counted.label != NO_LABEL) & self.frequent[np.maximum(counted.label, 0)])
        of_labels = counted.take(labelled)
        sides = [_Side("input", counted.token, counted), _Side("output", of_labels.label, of_labels)]
        return sides if len(labelled) > 1 else sides[:1]

    def _side(self, side: _Side) -> list[dict[str, Any]]:
        blocks = block_of(side.counted.sentence)
        of_labels = BlockCounts.of(side.labels, blocks).sums()
        layers = [self._layer(side, layer, blocks) for layer in range(len(side.counted.clusters))]
        spread = _pooled_spread([[each.value for each in layer.estimates] for layer in layers])
        shared = {
            "stack": self.stack,
            "regime": self.regime,
            "side": side.name,
            "clusters": self.clusters,
            "entropy": float(of_labels.chao_wang_jost),
            "types": len(np.unique(side.labels)),
            "clustering_spread": spread,
        }
        return [{**shared, **self._row(side, number, layer, spread)} for number, layer in enumerate(layers)]

    def _layer(self, side: _Side, layer: int, blocks: Int[np.ndarray, " token"]) -> _LayerInformation:
        clusterings = side.counted.clusters[layer].astype(np.int64)
        folds = fold_of(side.counted.sentence)
        random = stream("mutual-information-baseline")
        shuffled = [
            corrected_information(clusterings[0], random.permutation(side.labels), blocks) for _ in range(_SHUFFLES)
        ]
        gains = [optimism_of(own, side.labels, blocks, folds == index % FOLDS) for index, own in enumerate(clusterings)]
        return _LayerInformation(
            estimates=[estimate_information(clusters, side.labels, blocks) for clusters in clusterings],
            optimism=float(np.mean(gains)),
            baseline=float(np.mean(shuffled)),
            empty_clusters=float(np.mean([self.clusters - len(np.unique(each)) for each in clusterings])),
        )

    def _row(self, side: _Side, number: int, layer: _LayerInformation, spread: float) -> dict[str, Any]:
        value, without, by_size = float(layer.mean("value")), layer.mean("without_block"), layer.mean("by_size")
        drift = float(layer.mean("drift"))
        clusterings = len(layer.estimates)
        of_clusters = float(np.nan_to_num(spread)) / np.sqrt(clusterings)
        replicates = linear_replicates(value, without)
        key = ("information-clusters", self.model, self.stack, self.regime, side.name, number)
        replicates += of_clusters * standard_noise(len(replicates), *key)
        replicates += bias_draws(drift, len(replicates))
        replicates += layer.optimism * standard_noise(len(replicates), "information-optimism")
        freedom = max(1, (clusterings - 1) * len(side.counted.clusters))
        further = np.hypot(of_clusters * stdtrit(freedom, 0.975), np.hypot(drift, layer.optimism) * ndtri(0.975))
        return {
            "layer": number,
            **estimate(
                value,
                replicates,
                baseline=layer.baseline,
                count=len(side.labels),
                ends=wider(block_interval(value, value - without), value, float(further)),
            ),
            "plug_in": float(layer.mean("plug_in")),
            "at_half": float(by_size[-2]),
            "optimism": layer.optimism,
            "converged": max(abs(drift), abs(layer.optimism)) <= CONVERGED,
            "tokens_by_size": layer.mean("sizes").tolist(),
            "value_by_size": by_size.tolist(),
            "plug_in_by_size": layer.mean("plug_in_by_size").tolist(),
            "inertia": float(self.inertia[number]),
            "empty_clusters": round(layer.empty_clusters),
        }


def _pooled_spread(values: list[list[float]]) -> float:
    """Standard deviation over clusterings, pooled over layers, since two clusterings of one layer are too few."""
    if len(values[0]) < 2:
        return float("nan")
    return float(np.sqrt(np.mean(np.var(values, axis=1, ddof=1))))
