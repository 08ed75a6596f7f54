"""The table `geometry`, the words that its measures compare, and the control spaces."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.corpus import NOT_A_WORD
from infoflow.flow import SAMPLE_COLUMNS, TokenSample
from infoflow.foundation import UserError, block_effects, block_interval, bounds_of, current_display, hash64_array
from infoflow.results import Column, TableSchema, estimate, estimate_columns, scale_of

from ._views import centred

SPACES = ("raw", "centred", "standardised", "rank")


def check_spaces(spaces: tuple[str, ...]) -> None:
    if not spaces or (unknown := [space for space in spaces if space not in SPACES]):
        got = unknown[0] if spaces else "none"
        raise UserError(f"spaces must be some of {', '.join(SPACES)}. Got {got}.")


def in_space(states: Float[Tensor, "occurrence width"], space: str) -> Float[Tensor, "occurrence width"]:
    """The states in the given space, in float64.

    | space          | states                                        | so that the cosine is             |
    |----------------|-----------------------------------------------|-----------------------------------|
    | `raw`          | as they are                                   | the published one                 |
    | `centred`      | minus their mean | free of a common offset           |
    | `standardised` | minus their mean, each dimension of variance 1 | not dominated by a few dimensions |
    | `rank`         | ranks of the coordinates within each state    | Spearman's correlation            |

    `centred` and `standardised` turn a constant dimension into 0, `rank` a constant state.

    Source: [@timkey2021].
    """
    states = states.to(torch.float64)
    if space == "raw":
        return states
    if space == "rank":
        from scipy.stats import rankdata  # slow import

        return torch.from_numpy(rankdata(states.numpy(), axis=1)) - (states.shape[1] + 1) / 2
    shifted = centred(states)
    if space == "centred":
        return shifted
    spread = shifted.square().mean(0).sqrt()
    return shifted / torch.where(spread > 0, spread, 1.0)


WORDS = ("mean", "first", "last", "token")


def check_words(words: str) -> None:
    if words not in WORDS:
        raise UserError(f"words must be one of {', '.join(WORDS)}. Got {words}.")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordRows:
    """Word occurrences of a sample, one per row."""

    sample: TokenSample
    words: str  # how a word's tokens were merged; "token" if the tokenizer does not report words
    types: Int[np.ndarray, " occurrence"]  # equal words have equal numbers, 0..W−1

    @classmethod
    def of(cls, sample: TokenSample, words: str) -> "WordRows":
        """The sample's words (or tokens) that have a letter or a digit."""
        if words != "token" and len(sample) and (sample.occurrences.word == NOT_A_WORD).all():
            current_display().note(
                f"The tokenizer of {sample.facts.model} is slow and does not report words: every token counts as one."
            )
            words = "token"
        lexical = np.isin(sample.occurrences.token, sample.facts.symbols, invert=True)
        if words == "token":
            kept = sample.take(lexical)
            return cls(sample=kept, words=words, types=_numbered(kept.occurrences.token))
        merged = sample.words(words)
        kept = merged.take(np.isin(_places(merged), _places(sample)[lexical]))
        return cls(sample=kept, words=words, types=_numbered(kept.occurrences.word_type))


def _places(sample: TokenSample) -> Int[np.ndarray, " occurrence"]:
    """For each token, a number shared by all tokens of the same word in the same sentence."""
    at = sample.occurrences
    return hash64_array(("word-place",), at.sentence, at.word, at.draw).view(np.int64)


def _numbered(names: Int[np.ndarray, " occurrence"]) -> Int[np.ndarray, " occurrence"]:
    return np.unique(names, return_inverse=True)[1]


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
    "(anisotropy); rogue_dimensions: share of it from its three top dimensions; self_similarity: mean cosine within a "
    "word, over words; explainable_variance: share of a word's variance along one direction, over words; shuffled_…: "
    "the same after shuffling occurrences between words; intra_sentence_similarity: mean cosine to the sentence's "
    "mean; unrelated_…: the value expected for sentences of random words; intrinsic_dimension: from two nearest "
    "neighbours. Words without a letter or digit are left out of all of them. Cosines and shares have no unit.",
    light=True,
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        Column("measure", "string", "", "the quantity, see above"),
        Column(
            "space",
            "string",
            "",
            "raw; centred: minus the layer's mean; standardised: each dimension also scaled to variance 1; "
            "rank: Spearman's correlation in place of the cosine",
        ),
        Column(
            "words", "string", "", "a word's state: mean, first or last of its tokens; or token: every token by itself"
        ),
        *estimate_columns(
            "cosine, share or dimensions",
            "the quantity; NaN where it is undefined",
            "for similarities within words and sentences: average_similarity of the same occurrences; for "
            "average_similarity: an isotropic Gaussian; for explainable_variance: random occurrences; for "
            "rogue_dimensions: equal shares; for intrinsic_dimension: a Gaussian of the same covariance",
            "number of occurrences behind the value; for intra_sentence_similarity, of sentences",
        ),
        Column("corrected", "float64", "", "value − baseline"),
        Column("corrected_low", "float64", "", "lower end of its 95% interval"),
        Column("corrected_high", "float64", "", "upper end of its 95% interval"),
        Column("types", "int64", "types", "number of words averaged over; 0: not a mean over words"),
        Column("least", "int64", "occurrences", "words with fewer occurrences are left out; 0: not a mean over words"),
        Column(
            "left_out",
            "int64",
            "occurrences",
            "occurrences not used: zero vectors, words with too few occurrences, repeated points; "
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
    """The columns of one row without the keys; a baseline without replicates is treated as exact."""
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
