"""The table `geometry`, shared by several measures."""

from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from infoflow.flow import SAMPLE_COLUMNS
from infoflow.foundation import block_effects, block_interval, bounds_of
from infoflow.results import Column, TableSchema, estimate, estimate_columns, scale_of

Quantity = Literal[
    "average_similarity",
    "rogue_dimensions",
    "self_similarity",
    "shuffled_self_similarity",
    "explainable_variance",
    "shuffled_explainable_variance",
    "intra_sentence_similarity",
    "unrelated_intra_sentence_similarity",
    "intrinsic_dimension",
]

GEOMETRY = TableSchema(
    name="geometry",
    version=4,
    description="What the space of a layer looks like. average_similarity: mean cosine of random occurrences "
    "(anisotropy); rogue_dimensions: share of it that three dimensions carry; self_similarity: mean cosine within a "
    "word, over words; explainable_variance: share of a word's variance along one direction, over words; shuffled_…: "
    "the same after words have exchanged their occurrences; intra_sentence_similarity: mean cosine to the sentence's "
    "mean; unrelated_…: the same expected of sentences of random words; intrinsic_dimension: by two nearest "
    "neighbours. Words without letter or digit are left out of all of them. Cosines and shares have no unit.",
    light=True,
    columns=(
        Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L; 0 = embeddings"),
        Column(name="measure", dtype="string", unit="", description="the quantity, see above"),
        Column(
            name="space",
            dtype="string",
            unit="",
            description="raw; centred: less the layer's mean; standardised: each dimension also of variance 1; rank: "
            "Spearman's correlation in place of the cosine",
        ),
        Column(
            name="words",
            dtype="string",
            unit="",
            description="a word's state: mean, first or last of its tokens; or token: every token by itself",
        ),
        *estimate_columns(
            "cosine, share or dimensions",
            "the quantity; NaN where it is undefined",
            "of similarities within words and sentences: average_similarity of the same occurrences; of "
            "average_similarity: an isotropic Gaussian; of explainable_variance: random occurrences; of "
            "rogue_dimensions: equal shares; of intrinsic_dimension: a Gaussian of the same covariance",
            "occurrences behind the value; sentences for intra_sentence_similarity",
        ),
        Column(name="corrected", dtype="float64", unit="", description="value − baseline"),
        Column(name="corrected_low", dtype="float64", unit="", description="lower end of its 95% interval"),
        Column(name="corrected_high", dtype="float64", unit="", description="upper end of its 95% interval"),
        Column(name="types", dtype="int64", unit="types", description="words averaged over; 0 where not by word"),
        Column(
            name="least",
            dtype="int64",
            unit="occurrences",
            description="words with fewer occurrences are not averaged over; 0 where not by word",
        ),
        Column(
            name="left_out",
            dtype="int64",
            unit="occurrences",
            description="occurrences not used: zero vectors, words with too few occurrences, repeated points; "
            "sentences with fewer than two words",
        ),
        *SAMPLE_COLUMNS,
    ),
)


def geometry_row(
    quantity: Quantity,
    value: float,
    replicates: Float[np.ndarray, " replicate"],
    baseline: float,
    *,
    baseline_replicates: Float[np.ndarray, " replicate"] | float | None = None,
    count: int,
    types: int = 0,
    least: int = 0,
    left_out: int = 0,
) -> dict[str, Any]:
    """The columns of one row without the keys; a baseline without replicates counts as exact."""
    differences = replicates - (baseline if baseline_replicates is None else baseline_replicates)
    scale = scale_of(quantity)
    lowest, highest = bounds_of(scale)
    low, high = block_interval(
        value - baseline, block_effects(value - baseline, differences), scale=(lowest - highest, highest - lowest)
    )
    return {
        "measure": quantity,
        **estimate(value, replicates, baseline, count, scale=scale),
        "corrected": value - baseline,
        "corrected_low": low,
        "corrected_high": high,
        "types": types,
        "least": least,
        "left_out": left_out,
    }
