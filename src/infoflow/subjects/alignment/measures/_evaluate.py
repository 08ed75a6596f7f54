"""How close encoders are to a target's space on words of held-out sentences, with a cosine corrected for hubs."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import TokenSample
from infoflow.foundation import NUM_BLOCKS, Scale, UserError, as_tensor
from infoflow.models import Model
from infoflow.representations import SpaceSimilarity, WordGeometry
from infoflow.results import Column, TableSchema, estimate, estimate_columns, ratio_estimate

from ._encoders import AlignedEncoder
from ._held_out import HeldOutWords
from ._links import AbstractWordLinks, IdentityLinks, LinkedSentences

NEIGHBOURS = 10
"""Number of nearest neighbours in the published measure."""

_SCORES_AT_ONCE = 1 << 24
"""Entries of the similarity matrix held at a time when only statistics are needed: 128 MB in float64."""


def unit_rows(
    x: Tensor | np.ndarray, y: Tensor | np.ndarray, neighbours: int
) -> tuple[Float[Tensor, "x width"], Float[Tensor, "y width"]]:
    """Both matrices with rows of norm 1, in float64, checked."""
    views = [_unit_rows(matrix, name) for matrix, name in ((x, "x"), (y, "y"))]
    widths, lengths = [view.shape[1] for view in views], [len(view) for view in views]
    if widths[0] != widths[1]:
        raise UserError(
            f"x and y must be vectors of one space. Got widths {widths[0]} and {widths[1]}: map one onto the other "
            "first (least_squares_map)."
        )
    if not 1 <= neighbours <= min(lengths):
        raise UserError(f"neighbours must lie in 1..{min(lengths)}, the smaller number of rows. Got {neighbours}.")
    return views[0], views[1]


def mean_nearest(
    units: Float[Tensor, "row width"], others: Float[Tensor, "other width"], neighbours: int
) -> Float[Tensor, " row"]:
    """r: the mean cosine of each row to its nearest rows of `others`, without the whole similarity matrix."""
    return torch.cat([(part @ others.mT).topk(neighbours).values.mean(dim=1) for part in row_blocks(units, others)])


def row_blocks(
    units: Float[Tensor, "row width"], others: Float[Tensor, "other width"]
) -> Iterator[Float[Tensor, "part width"]]:
    """Blocks of rows whose similarities with all of `others` fit in memory."""
    yield from units.split(max(1, _SCORES_AT_ONCE // len(others)))


def _unit_rows(matrix: Tensor | np.ndarray, name: str) -> Float[Tensor, "row width"]:
    view = as_tensor(matrix)
    if view.ndim != 2 or 0 in view.shape:
        raise UserError(f"{name} must be a matrix of shape (words, width). Got shape {tuple(view.shape)}.")
    view = view.to(torch.float64)
    norms = torch.linalg.vector_norm(view, dim=1, keepdim=True)
    if not bool(norms.isfinite().all()):
        raise UserError(f"{name} must be finite. It holds NaN or infinity: drop those rows first.")
    if bool((norms == 0).any()):
        raise UserError(f"{int((norms == 0).sum())} rows of {name} are zero and have no direction. Drop them first.")
    return view / norms


# The table `alignment`.


Kind = Literal["aligned", "unaligned", "shuffled", "regulariser only", "implicit", "target"]
"""The subject of a row of the table `alignment`: a mapped space, or a control."""

ALIGNMENT = TableSchema(
    name="alignment",
    version=2,
    description="How close one encoder is to another's space, on words of sentences that no map was fitted on. mse: "
    "squared distance of mapped words from their counterparts, per dimension; retrieval forward, backward: share of "
    "words that find their counterpart among all by CSLS, source to target and back; rsa, pwcca: similarity of the two "
    "spaces; average similarity, self-similarity: mean cosine of random words, and of the occurrences of a word; "
    "average similarity gap, self-similarity gap: mean distance, over layers, of that curve from the target's; bleu: "
    "BLEU of the encoder under the target's decoder.",
    made_by="a plan with masked-lm and translation, and [alignment] on = true, makes it",
    columns=(
        Column("source_model", "string", "", "model whose encoder is mapped"),
        Column("target_model", "string", "", "model whose encoder's space is the target"),
        Column(
            "kind",
            "string",
            "",
            "aligned: encoder and map trained on the words' links; unaligned: the encoder as it was, under "
            "the best linear map; shuffled: trained on links to words of other sentences; regulariser only: trained "
            "without links; implicit: the encoder after fine-tuning under the target's decoder, with the best linear "
            "map; target: the target model itself",
        ),
        Column(
            "states",
            "string",
            "",
            "mapped: top-layer states after the map; encoder: the encoder's own states, before the map",
        ),
        Column("layer", "int64", "layer", "state 0..L of the encoder (0 = embeddings); −1: all layers together"),
        Column("metric", "string", "", "what is measured, see above"),
        Column(
            "least", "int64", "occurrences", "minimum for self-similarity (rarer words are left out); 0: other metric"
        ),
        *estimate_columns(
            "see metric: squared units, share, correlation, cosine, percent",
            "the score",
            "mse: that of the mean vector; retrieval: chance; rsa, pwcca: value for shuffled words; similarities and "
            "gaps: value for an isotropic space; bleu: that of a copy of the source",
            "words; sentences for bleu",
        ),
        Column("signature", "string", "", "sacreBLEU's signature; empty for other metrics"),
    ),
)


# How close encoders are to a target's space, on words of held-out sentences.


Row = dict[str, Any]

CURVES = {"average_similarity": "average similarity", "self_similarity": "self-similarity"}
_TIE = 1e-9
"""Scores of equal vectors differ by less than this through rounding, and must count as ties."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationOptions:
    """How many words to use; smaller samples are prefixes of larger ones."""

    words: int = 5000  # words for all scores but the two below; PWCCA needs 20 per dimension
    retrieval_words: int = 2000  # candidates of a retrieval
    rsa_words: int = 1000  # fewer words, because RSA compares all pairs
    neighbours: int = NEIGHBOURS  # of CSLS
    least: int = 5  # minimum occurrences of a word for self-similarity
    max_length: int = 64  # maximum number of tokens; longer sentences are truncated


def evaluate_alignment(
    aligned: Mapping[Kind, AlignedEncoder],
    source: Model,
    target: Model,
    corpus: Corpus,
    *,
    links: AbstractWordLinks | None = None,
    translated: bool = False,
    options: EvaluationOptions | None = None,
) -> pd.DataFrame:
    """The table `alignment` for encoders by kind, on sentences that none of them was fitted to.

    Every number has an interval over blocks of sentences, the same for all kinds, so that differences are paired.
    Self-similarity uses the same words in every layer; if the two encoders differ in depth, the target's curve is
    interpolated at the same relative depth.

    Args:
        aligned: Encoders with their maps, such as from `align_with_controls`.
        source: The model with the initial encoder.
        target: The model with the target space.
        corpus: Held-out sentences.
        links: As in `align_explicit`.
        translated: As in `align_explicit`.
        options: Sample sizes.

    Raises:
        UserError: As in `align_explicit`; or `aligned` is empty, its encoders merge words differently, or no word is
            linked.
    """
    options = options or EvaluationOptions()
    if len({encoder.merge for encoder in aligned.values()}) != 1:
        raise UserError("Give at least one aligned encoder, all with the same `merge`: they are compared word by word.")
    merge = next(iter(aligned.values())).merge
    sentences = LinkedSentences(
        source, target, corpus, links or IdentityLinks(), translated=translated, max_length=options.max_length
    )
    words = HeldOutWords.read(sentences, target, options.words, merge)
    reference = _curves(words.target, options)
    rows: list[Row] = [{"kind": "target", **row} for row in _curve_rows(reference)]
    for kind, encoder in aligned.items():
        rows += [{"kind": kind, **row} for row in _scores(words, encoder, source, reference, options)]
    frame = pd.DataFrame(rows).assign(source_model=source.name, target_model=target.name, signature="")
    return ALIGNMENT.conform(frame.assign(least=frame["least"].fillna(0)))


def _scores(
    words: HeldOutWords, encoder: AlignedEncoder, source: Model, reference: pd.DataFrame, options: EvaluationOptions
) -> Iterator[Row]:
    layers, mapped = words.of(encoder, source)
    top, x, y = layers.num_states - 1, mapped.states(0), words.target.states(words.target.num_states - 1)
    at_top = {"states": "mapped", "layer": top}
    around_mean = float(((y - y.mean(axis=0)) ** 2).mean())  # the error of the words' mean vector
    yield {**at_top, "metric": "mse", **_block_mean(((x - y) ** 2).mean(axis=1), words.blocks, around_mean)}
    num = min(options.retrieval_words, len(words))
    both_hits = retrieval_hits(x[:num], y[:num], min(options.neighbours, num))
    for direction, hits in zip(("forward", "backward"), both_hits, strict=True):
        row = _block_mean(hits.numpy(), words.blocks[:num], 1 / num, "share")
        yield {**at_top, "metric": f"retrieval {direction}", **row}
    for states, sample in (("mapped", mapped), ("encoder", _only(layers, top))):
        for row in _similarities(sample, _only(words.target, words.target.num_states - 1), options):
            yield {**at_top, "states": states, **row}
    curves = _curves(layers, options)
    yield from _curve_rows(curves)
    yield from _gaps(curves, reference)


def _block_mean(
    values: Float[np.ndarray, " word"], blocks: Int[np.ndarray, " word"], baseline: float, scale: Scale = "positive"
) -> Row:
    sums = np.bincount(blocks, values, minlength=NUM_BLOCKS)
    return ratio_estimate(sums, np.bincount(blocks, minlength=NUM_BLOCKS) * 1.0, baseline, scale)


def _similarities(first: TokenSample, second: TokenSample, options: EvaluationOptions) -> Iterator[Row]:
    """RSA and PWCCA of two one-layer samples."""
    measure = SpaceSimilarity(metrics=("rsa", "pwcca"), occurrences=options.words, items=options.rsa_words)
    columns = ["metric", *_estimate_names()]
    yield from measure.compute(first, second)[columns].to_dict("records")


def _curves(sample: TokenSample, options: EvaluationOptions) -> pd.DataFrame:
    """Average similarity and self-similarity of every layer: `metric`, `layer`, `least`, and the columns of an
    estimate."""
    measure = WordGeometry(occurrences=len(sample), words="token", least=options.least, spaces=("raw",))
    frame = measure.compute(sample)
    frame = frame[frame["measure"].isin(list(CURVES))]
    return frame.assign(metric=frame["measure"].map(CURVES), baseline=0.0)[
        ["metric", "layer", "least", *_estimate_names()]
    ]


def _curve_rows(curves: pd.DataFrame) -> Iterator[Row]:
    yield from ({"states": "encoder", **row} for row in curves.to_dict("records"))


def _gaps(curves: pd.DataFrame, reference: pd.DataFrame) -> Iterator[Row]:
    """Mean absolute difference, over layers, of each curve from the target's, with first-order replicates.

    Replicates keep the estimate's signs, because the absolute values of noisy small differences would add up.
    """
    for metric in CURVES.values():
        own, other = (frame[frame["metric"] == metric].sort_values("layer") for frame in (curves, reference))
        wanted = _at_depth(other["value"].to_numpy()[None], len(own))
        value = own["value"].to_numpy()[None] - wanted
        mine, theirs = (np.stack(frame["replicates"].tolist()).T for frame in (own, other))
        replicates = (np.sign(value) * (mine - _at_depth(theirs, len(own)))).mean(axis=1)
        mean_gap, size = float(np.abs(value).mean()), float(np.abs(wanted).mean())
        gap = estimate(mean_gap, replicates, size, float(own["count"].min()))
        yield {"states": "encoder", "layer": -1, "metric": f"{metric} gap", **gap}


def _at_depth(curves: Float[np.ndarray, "row layer"], num: int) -> Float[np.ndarray, "row depth"]:
    """Curves over the layers of one model at the relative depths of a model with `num` states."""
    if curves.shape[1] == num:
        return curves
    depth, own = np.linspace(0, 1, num), np.linspace(0, 1, curves.shape[1])
    return np.stack([np.interp(depth, own, curve) for curve in curves])


def _only(sample: TokenSample, layer: int) -> TokenSample:
    return TokenSample(sample.occurrences, sample.states(layer)[None], sample.facts)


def _estimate_names() -> list[str]:
    return list(estimate(math.nan, np.empty(0), 0.0, 0))


def retrieval_hits(
    x: Tensor | np.ndarray, y: Tensor | np.ndarray, neighbours: int = NEIGHBOURS
) -> tuple[Float[Tensor, " word"], Float[Tensor, " word"]]:
    r"""The probability that the best match of each row is the row with the same index, x to y and y to x.

    $$ \mathrm{CSLS}(x_i, y_j) = 2 \cos(x_i, y_j) - r(x_i) - r(y_j) $$

    Here r is the mean cosine of a row to its `neighbours` nearest rows of the other matrix. It corrects for rows that
    are close to everything. Each row is divided by its own norm. (A published script divides by the norm of the whole
    matrix, which leaves dot products that favour long vectors.) A row that ties with m − 1 others counts 1/m, so
    chance is one over the number of rows. Similarities are computed in blocks, in float64.

    Source: [@conneau2018].
    """
    units_x, units_y = unit_rows(x, y, neighbours)
    if len(units_x) != len(units_y):
        raise UserError(
            "Row i of x and row i of y must be counterparts, so both need the same number of rows. "
            f"Got {len(units_x)} and {len(units_y)}."
        )
    near_x, near_y = mean_nearest(units_x, units_y, neighbours), mean_nearest(units_y, units_x, neighbours)
    return _hits(units_x, units_y, near_y), _hits(units_y, units_x, near_x)


def _hits(
    queries: Float[Tensor, "word width"], keys: Float[Tensor, "word width"], near: Float[Tensor, " word"]
) -> Float[Tensor, " word"]:
    """For each query, the probability that its own key has the highest score; r of the query cancels out."""
    hits, start = [], 0
    for part in row_blocks(queries, keys):
        scores = 2 * (part @ keys.mT) - near
        own = scores[torch.arange(len(part)), start + torch.arange(len(part))]
        best = scores >= scores.max(dim=1, keepdim=True).values - _TIE
        found = own >= scores.max(dim=1).values - _TIE
        hits.append(found.to(torch.float64) / best.sum(dim=1))
        start += len(part)
    return torch.cat(hits)
