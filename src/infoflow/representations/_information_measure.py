"""Information about the input and the output token, layer by layer."""

from typing import ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from infoflow.flow import NO_LABEL, Regime, SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import NUM_BLOCKS, UserError, current_display, stream
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate, estimate_columns, linear_replicates

from ._discretize import Clustering, cluster
from ._mutual_information import Contingency, entropy, information_without_blocks

_SHUFFLES = 5
_ROWS_PER_CLUSTER = 10
"""With fewer, most clusters hold one occurrence and every layer seems to know everything."""

_SCHEMA = TableSchema(
    name="mutual_information",
    version=1,
    description="Mutual information between a layer's states (as clusters) and the token there, in nats. The "
    "plug-in value is biased upwards; compare values of equal count, clusters and types.",
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="regime", dtype="string", unit="", description="clean, or training: corrupted as in training"),
        Column(name="side", dtype="string", unit="", description="input: the token read; output: the token to predict"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L; 0 = embeddings"),
        *estimate_columns(
            "nats",
            "plug-in mutual information",
            "mean over shuffled labels",
            "occurrences whose token is frequent; on the output side and in training also the token to predict",
        ),
        Column(name="corrected", dtype="float64", unit="nats", description="value with the Miller–Madow correction"),
        Column(name="entropy", dtype="float64", unit="nats", description="entropy of the labels: the ceiling"),
        Column(name="clusters", dtype="int64", unit="clusters", description="clusters asked of k-means"),
        Column(name="types", dtype="int64", unit="types", description="distinct labels"),
        Column(name="inertia", dtype="float64", unit="", description="mean squared distance to the nearest centre"),
        Column(name="empty_clusters", dtype="int64", unit="clusters", description="clusters without a state"),
        Column(
            name="clustering_spread",
            dtype="float64",
            unit="nats",
            description="standard deviation over clustering seeds; NaN with one",
        ),
    ),
)


class _Side(NamedTuple):
    name: Literal["input", "output"]
    rows: Int[np.ndarray, " row"]
    """Which of the clustered occurrences count."""
    labels: Int[np.ndarray, " row"]


class MutualInformation(SampleMeasure):
    r"""How much a layer's states know about the token they read and the token to predict.

    $$ I(C; T) = \sum_{c,t} p(c,t) \ln \frac{p(c,t)}{p(c)\,p(t)} $$

    C is the cluster of a state (mini-batch k-means, refitted in every layer), T the token. Only the `types` most
    frequent token types count:

    | regime     | side   | occurrences                                                                          |
    |------------|--------|--------------------------------------------------------------------------------------|
    | `clean`    | input  | whose token is frequent; the same for models of all tasks, which compare on this side |
    | `clean`    | output | of these, those whose token to predict is frequent too                               |
    | `training` | both   | whose input was replaced: both tokens are frequent, and they differ                  |

    So in the clean regime of a causal LM the two sides differ in `count`; for [@voita2019evolution] the input side
    of a curve against the output side has the occurrences of the output side.

    Error bars resample sentences with the clusters fixed, to first order (`linear_replicates`: a plain bootstrap would
    repeat the plug-in bias); `clustering_spread` says what refitting the clusters adds.

    Args:
        clusters: Number of clusters; reduced, with a warning, to one per ten occurrences.
        types: Number of most frequent token types.
        occurrences: At most so many sampled tokens.
        regime: `"clean"`: the text as it is; `"training"`: masked as in training.
        clusterings: k-means seeds to average over.

    Source: [@voita2019evolution]: 10,000 clusters, 1,000 types, natural frequencies.
    """

    table: ClassVar[TableSchema] = _SCHEMA

    def __init__(
        self,
        clusters: int = 1000,
        types: int = 1000,
        occurrences: int = 50_000,
        regime: Regime = "clean",
        clusterings: int = 1,
    ) -> None:
        for name, number, least in (("clusters", clusters, 2), ("types", types, 2), ("clusterings", clusterings, 1)):
            if number < least:
                raise UserError(f"{name} must be at least {least}. Got {number}.")
        self.clusters, self.types, self.clusterings, self.occurrences = clusters, types, clusterings, occurrences
        self.regime: Regime = regime
        self.request = SampleRequest(occurrences=occurrences, top_types=types)

    def refusal(self, model: Model) -> str | None:
        if self.regime == "training" and model.task != "masked-lm":
            return f"its input is the same in training as at test time (task {model.task})"
        tokenizer = model.tokenizer
        if (
            self.regime == "training"
            and tokenizer is not None
            and None in (tokenizer.mask_token_id, tokenizer.pad_token_id)
        ):
            return "its tokenizer has no mask or no padding token, so its input cannot be corrupted as in training"
        return None

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        kept = self._kept(sample)
        chosen = sample.take(np.flatnonzero(kept))
        if len(chosen) < 2 * _ROWS_PER_CLUSTER:
            current_display().note(f"{self.name} of {sample.facts.model} is skipped: {len(chosen)} usable tokens.")
            return pd.DataFrame(columns=self.table.column_names)
        clusters = self._affordable(len(chosen))
        rows = [row for layer in range(sample.num_states) for row in self._layer(chosen, layer, clusters)]
        return pd.DataFrame(rows)

    def _kept(self, sample: TokenSample) -> Bool[np.ndarray, " token"]:
        at = sample.occurrences
        frequent = _most_frequent(sample.facts.frequencies, self.types)
        kept = frequent[at.token]
        if self.regime == "training":
            kept &= (at.label != NO_LABEL) & (at.label != at.token) & frequent[np.maximum(at.label, 0)]
        return kept

    def _affordable(self, num_rows: int) -> int:
        most = num_rows // _ROWS_PER_CLUSTER
        if self.clusters > most:
            current_display().warn(
                f"{num_rows:,} tokens are too few for {self.clusters:,} clusters: using {most:,}, one per "
                f"{_ROWS_PER_CLUSTER} tokens. Give a larger corpus or fewer clusters."
            )
        return min(self.clusters, most)

    def _layer(self, sample: TokenSample, layer: int, clusters: int) -> list[dict]:
        states = sample.states(layer)
        found = [cluster(states, clusters, seed) for seed in range(self.clusterings)]
        keys = {"stack": sample.facts.stack, "regime": self.regime, "layer": layer, "clusters": clusters}
        return [{**keys, **_information(side, found, sample)} for side in self._sides(sample)]

    def _sides(self, sample: TokenSample) -> list[_Side]:
        at = sample.occurrences
        frequent = _most_frequent(sample.facts.frequencies, self.types)
        labelled = np.flatnonzero((at.label != NO_LABEL) & frequent[np.maximum(at.label, 0)])
        sides = [_Side("input", np.arange(len(sample)), at.token)]
        return [*sides, _Side("output", labelled, at.label[labelled])] if len(labelled) > 1 else sides


def _information(side: _Side, found: list[Clustering], sample: TokenSample) -> dict:
    """The measured columns of one side of one layer."""
    blocks = sample.blocks[side.rows]
    clusters = [each.labels[side.rows] for each in found]
    tables = [Contingency.of(each, side.labels) for each in clusters]
    values = np.array([table.information for table in tables])
    without = [information_without_blocks(each, side.labels, blocks, NUM_BLOCKS) for each in clusters]
    return {
        "side": side.name,
        **estimate(
            values.mean(),
            linear_replicates(values.mean(), np.mean(without, axis=0)),
            baseline=_shuffled(clusters[0], side.labels),
            count=len(side.rows),
        ),
        "corrected": float(np.mean([table.miller_madow for table in tables])),
        "entropy": entropy(tables[0].columns),
        "types": len(tables[0].columns),
        "inertia": float(np.mean([each.inertia for each in found])) / len(sample),
        "empty_clusters": round(float(np.mean([each.empty_clusters for each in found]))),
        "clustering_spread": float(values.std(ddof=1)) if len(values) > 1 else float("nan"),
    }


def _shuffled(clusters: Int[np.ndarray, " row"], labels: Int[np.ndarray, " row"]) -> float:
    random = stream("mutual-information-baseline")
    return float(np.mean([Contingency.of(clusters, random.permutation(labels)).information for _ in range(_SHUFFLES)]))


def _most_frequent(frequencies: Int[np.ndarray, " token"], types: int) -> Bool[np.ndarray, " token"]:
    """Which token ids are among the `types` most frequent; ties go to the lower id."""
    frequent = np.zeros(len(frequencies), dtype=bool)
    frequent[np.argsort(-frequencies, kind="stable")[:types]] = True
    return frequent & (frequencies > 0)
