"""Whether a state's neighbours are states of the same token."""

from typing import ClassVar

import numpy as np
import pandas as pd
import torch

from infoflow.flow import SAMPLE_COLUMNS, SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import NUM_BLOCKS, current_display
from infoflow.results import Column, TableSchema, estimate, estimate_columns, linear_replicates

from ._neighbour_agreement import agreements, check_neighbours

IDENTITY_NEIGHBOURS = TableSchema(
    name="identity_neighbours",
    version=3,
    description="Fraction of a state's nearest states (other occurrences, same layer) that belong to the same token. "
    "In a larger sample k neighbours are a smaller share, and more tokens have k others: compare rows of equal "
    "settings, of samples of equal size.",
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L; 0 = embeddings"),
        *estimate_columns("fraction", "fraction of neighbours with the same token", "random neighbours: Σp² of types"),
        Column(name="neighbours", dtype="int64", unit="neighbours", description="k"),
        Column(name="metric", dtype="string", unit="", description="cosine or euclidean"),
        Column(name="few", dtype="string", unit="", description="treatment of tokens with at most k occurrences"),
        *SAMPLE_COLUMNS,
    ),
)


class IdentityNeighbours(SampleMeasure):
    """How well a layer separates tokens: `neighbour_agreement` with the token id as label.

    Error bars resample sentences, of queries and of neighbours alike, to first order: a sentence left out is replaced
    among others' neighbours by the next nearest. The baseline is the fraction for random other occurrences, averaged
    over the same queries: Σp² if every token type is queried.

    Args:
        k: Number of neighbours.
        metric: `"cosine"` or `"euclidean"`.
        few: What to do with tokens of fewer than k + 1 occurrences; see `neighbour_agreement`.
        occurrences: At most this many sampled tokens; time grows with the square.

    Source: [@voita2019evolution], k = 50.
    """

    table: ClassVar[TableSchema] = IDENTITY_NEIGHBOURS

    def __init__(self, k: int = 50, metric: str = "cosine", few: str = "require", occurrences: int = 20_000) -> None:
        check_neighbours(k, few, metric)
        self.k, self.metric, self.few, self.occurrences = k, metric, few, occurrences
        self.request = SampleRequest(occurrences=occurrences)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        labels = np.unique(sample.occurrences.token, return_inverse=True)[1]
        if np.bincount(labels).max() <= (self.k if self.few == "require" else 1):
            current_display().note(
                f"{self.name} of {sample.facts.model} is skipped: no token has the {self.k + 1} occurrences that "
                f"{self.k} neighbours need. Use a larger sample or fewer neighbours (k; in a plan analysis.neighbours)."
            )
            return pd.DataFrame(columns=self.table.column_names)
        rows = [self._layer(sample, labels, layer) for layer in range(sample.num_states)]
        return pd.DataFrame(rows).assign(**sample.sizes(self.request))

    def _layer(self, sample: TokenSample, labels: np.ndarray, layer: int) -> dict:
        found = agreements(torch.from_numpy(sample.states(layer)), labels, self.k, self.few, self.metric)
        value, blocks = float(found.scores.mean()), sample.blocks
        effects = np.bincount(blocks[found.queries], weights=found.scores - value, minlength=NUM_BLOCKS)
        effects += np.bincount(blocks, weights=found.pulls - found.pulls.mean(), minlength=NUM_BLOCKS)
        replicates = linear_replicates(value, value - effects / len(found.queries))
        return {
            "stack": sample.facts.stack,
            "layer": layer,
            **estimate(value, replicates, baseline=float(found.chance.mean()), count=len(found.queries), scale="share"),
            "neighbours": self.k,
            "metric": self.metric,
            "few": self.few,
        }
