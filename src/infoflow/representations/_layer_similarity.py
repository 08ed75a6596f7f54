"""How similar the spaces of one model's layers are to each other."""

from typing import ClassVar

import pandas as pd

from infoflow.flow import SampleMeasure, SampleRequest, TokenSample
from infoflow.results import Column, TableSchema, estimate_columns

from ._rsa import check_dissimilarity
from ._similarity_grid import check_metrics, similarity_grid
from ._space_similarity import DEFAULT_METRICS, warn_few_words

_SCHEMA = TableSchema(
    name="layer_similarity",
    version=1,
    description="Similarity of each layer's states to those of every layer above it, on the same tokens; metrics and "
    "their biases as in space_similarity. NaN where a layer does not vary, or where debiased cka has no positive "
    "self-similarity.",
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="layer", dtype="int64", unit="", description="state; 0 = embeddings"),
        Column(name="other_layer", dtype="int64", unit="", description="a state above it"),
        Column(name="metric", dtype="string", unit="", description="which similarity (procrustes: distance)"),
        *estimate_columns(
            "similarity, of procrustes radians",
            "similarity of the two layers (procrustes: distance)",
            "the same with the upper layer's tokens shuffled",
        ),
        Column(name="width", dtype="int64", unit="dimensions", description="width of the states"),
    ),
)


class LayerSimilarity(SampleMeasure):
    """Similarity of every layer of a model to every layer above it; metrics and settings as `SpaceSimilarity`."""

    table: ClassVar[TableSchema] = _SCHEMA

    def __init__(
        self,
        metrics: tuple[str, ...] = DEFAULT_METRICS,
        occurrences: int = 20_000,
        items: int = 2_000,
        dissimilarity: str = "cosine",
    ) -> None:
        check_metrics(metrics)
        check_dissimilarity(dissimilarity)
        self.metrics, self.occurrences, self.items, self.dissimilarity = metrics, occurrences, items, dissimilarity
        self.request = SampleRequest(occurrences=occurrences if metrics != ("rsa",) else items)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        frame = pd.DataFrame(similarity_grid(sample, None, self.metrics, self.items, self.dissimilarity))
        warn_few_words(frame, sample.width)
        return frame.rename(columns={"layer_a": "layer", "layer_b": "other_layer"}).assign(
            stack=sample.facts.stack, width=sample.width
        )
