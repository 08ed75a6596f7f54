"""How similar the representations of two models are, every layer against every layer."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from infoflow.flow import SAMPLE_COLUMNS, PairMeasure, SampleRequest, TokenSample
from infoflow.foundation import UserError, as_written, current_display, stream
from infoflow.results import Column, TableSchema, estimate, estimate_columns, scale_of

from ._block_groups import BlockGroups
from ._cca import ROWS_PER_DIMENSION, too_few_rows, warn_few_rows
from ._cka import LEAST_ROWS
from ._layer_space import LayerPair, LayerSpace
from ._paired_distance import undefined_columns
from ._rsa import ItemPairs, RankedSpace, centred_ranks, check_dissimilarity
from ._space_metrics import SPACE_METRICS, space_values

SPACE_SIMILARITY = TableSchema(
    name="space_similarity",
    version=3,
    description="Similarity of the states of every layer of one model to those of every layer of another, on the same "
    "words. rsa, pwcca, svcca, cca and cka are similarities, at most 1 (rsa and the debiased cka may be negative); "
    "procrustes is a distance, an angle from 0 to π/2. pwcca, svcca, cca and the plain cka are biased towards "
    "similarity with few words per dimension: compare rows of equal count and width, and look at the baseline. NaN "
    "where a layer does not vary, where debiased cka has no positive self-similarity, and for pwcca, svcca and cca "
    "where there are no more than two words per dimension: several correlations are then 1 whatever the states.",
    columns=(
        Column("stack_a", "string", "", "stack of the first model"),
        Column("stack_b", "string", "", "stack of the second model"),
        Column("layer_a", "int64", "", "state of the first model; 0 = embeddings"),
        Column("layer_b", "int64", "", "state of the second model; 0 = embeddings"),
        Column("metric", "string", "", "which similarity (procrustes: distance)"),
        *estimate_columns(
            "similarity; for procrustes, radians",
            "similarity of the two layers (procrustes: distance)",
            "the same with the words of the second model shuffled",
            "number of words compared",
        ),
        Column("width_a", "int64", "dimensions", "width of the first model's states"),
        Column("width_b", "int64", "dimensions", "width of the second model's states"),
        *SAMPLE_COLUMNS,
    ),
)
DEFAULT_METRICS = ("rsa", "pwcca", "cka", "cka_debiased", "procrustes")
METRICS = ("rsa", *SPACE_METRICS)
CANONICAL = ("pwcca", "svcca", "cca")

_DIGITS = 5  # significant digits of stored replicates


class SpaceSimilarity(PairMeasure):
    """Similarity of every layer of one model to every layer of another, on the same words.

    | metric                         | as                                    | baseline of unrelated layers    |
    |--------------------------------|---------------------------------------|---------------------------------|
    | `rsa`                          | `rsa`                                 | 0                               |
    | `pwcca`                        | `pwcca`, the mean of both sides       | about 0.85 √(d/n)               |
    | `svcca`, `cca`                 | `svcca` at 99%, mean of `cca_correlations` | about as pwcca             |
    | `cka`, `cka_debiased`          | `linear_cka`                          | up to 1 when n ≲ d; 0           |
    | `cka_minibatch`                | `minibatch_cka`, batches of whole sentences | 0                         |
    | `procrustes`                   | `procrustes_distance`, the angle      | π/2 minus chance alignment      |

    Every layer is whitened, ranked and normalised once for all its pairs. Values agree with the functions to about
    1e-6. Error bars are a first-order approximation to resampling sentences (`linear_replicates`), since a plain
    bootstrap would repeat rows, and a word and its copy are at distance 0. The effect of leaving out a group of
    sentences is followed through all terms: for RSA also through the ranks of the remaining distances, for PWCCA also
    through the weights, except between correlations whose difference is within sampling error. SVCCA's components are
    fixed, so its error bars miss a change of their number. For layers of width up to 256 each of 64 blocks is left out,
    for wider ones each of 16 groups of four blocks.

    Args:
        metrics: Metrics to compute; rows come in this order.
        occurrences: At most this many words, for all metrics but RSA; at least 10, preferably 20, per dimension.
        items: RSA compares the first `items` words; its memory is 14 `items`² bytes per layer.
        dissimilarity: RSA's distance: `"cosine"`, `"euclidean"` or `"correlation"`.
        words: Unit of comparison: `"token"`, or whole words with the `"mean"`, `"first"` or `"last"` of their tokens'
            states. Models with different tokenizers are always compared on words, by default the last token's.

    Warns, and names the baseline, if there are fewer than 10 words per dimension.

    Source: [@kriegeskorte2008], [@morcos2018], [@raghu2017], [@kornblith2019], [@nguyen2021], [@williams2021];
    comparison of layers between models as in [@vazquez2021].
    """

    table: ClassVar[TableSchema] = SPACE_SIMILARITY

    def __init__(
        self,
        metrics: tuple[str, ...] = DEFAULT_METRICS,
        occurrences: int = 20_000,
        items: int = 2_000,
        dissimilarity: str = "cosine",
        words: str = "token",
    ) -> None:
        check_metrics(metrics)
        check_dissimilarity(dissimilarity)
        if words not in ("token", "mean", "first", "last"):
            raise UserError(f'words must be "token", "mean", "first" or "last". Got {words}.')
        self.metrics, self.occurrences, self.items = metrics, occurrences, items
        self.dissimilarity, self.words = dissimilarity, words
        self.request = SampleRequest(occurrences=occurrences if metrics != ("rsa",) else items)

    def compute(self, first: TokenSample, second: TokenSample) -> pd.DataFrame:
        if len(first) < LEAST_ROWS:
            raise UserError(
                f"Similarity of spaces needs at least {LEAST_ROWS} words. The sample of {first.facts.model} has "
                f"{len(first)}: use a larger corpus."
            )
        spaces = [metric for metric in self.metrics if metric != "rsa"]
        rows = list(_space_rows(first, second, spaces)) if spaces else []
        if "rsa" in self.metrics:
            rows += _rsa_rows(first.first(self.items), second.first(self.items), self.dissimilarity)
        rows.sort(key=lambda row: (self.metrics.index(row["metric"]), row["layer_a"], row["layer_b"]))
        frame = pd.DataFrame(rows)
        warn_few_words(frame, max(first.width, second.width))
        return frame.assign(
            stack_a=first.facts.stack,
            stack_b=second.facts.stack,
            width_a=first.width,
            width_b=second.width,
            **first.sizes(self.request, second),
        )


def warn_few_words(frame: pd.DataFrame, width: int) -> None:
    """Warn about a bias towards similarity (with the value of shuffled rows) and about metrics that are left out."""
    if bool((frame["metric"].isin(CANONICAL) & frame["value"].isna()).any()):
        warn_few_rows(int(frame["count"].max()), width)
        frame = frame.dropna(subset="value")
    few: pd.DataFrame = frame.loc[
        frame["metric"].isin([*CANONICAL, "cka"]) & (frame["count"] < ROWS_PER_DIMENSION * width)
    ]
    if len(few):
        reached = ", ".join(f"{metric} {rows.mean():.2f}" for metric, rows in few.groupby("metric")["baseline"])
        current_display().warn(
            f"{few['count'].min():,} words in {width} dimensions make unrelated layers look alike (shuffled rows: "
            f"{reached}). Use at least {ROWS_PER_DIMENSION * width:,} words, preferably "
            f"{2 * ROWS_PER_DIMENSION * width:,}."
        )


def check_metrics(metrics: Sequence[str]) -> None:
    unknown = [metric for metric in metrics if metric not in METRICS]
    if unknown or not metrics or len(set(metrics)) < len(metrics):
        got = as_written(unknown[0] if unknown else list(metrics))
        raise UserError(f"metrics must be distinct names among {', '.join(METRICS)}. Got {got}.")


def _estimate_columns(
    metric: str, values: Float[np.ndarray, " leave_out"], groups: BlockGroups, baseline: float
) -> dict[str, Any]:
    replicates = groups.replicates(values)
    ends = groups.interval(values[0], values, scale_of(metric))
    columns = estimate(values[0], replicates, baseline, len(groups.order), ends=ends)
    # A study has thousands of these rows. Digits far below the interval's width would dominate the size of its tables:
    # 14.7 MB for three objectives and seeds of seven layers, 4.7 MB without them.
    return {**columns, "replicates": replicates.round(_DIGITS).tolist()}


def _space_rows(first: TokenSample, second: TokenSample, metrics: list[str]) -> Iterator[dict[str, Any]]:
    width = max(first.width, second.width)
    few, groups = too_few_rows(len(first), width), BlockGroups.of(first.blocks, width)
    order = torch.from_numpy(stream("similarity-baseline").permutation(len(first)))
    layers = list(_spaces(first, groups))
    for layer_b, b in enumerate(_spaces(second, groups)):  # one at a time in memory
        for layer_a, a in enumerate(layers):
            meeting, shuffled = LayerPair.of(a, b), LayerPair.shuffled(a, b, order)
            for metric in metrics:
                if few and metric in CANONICAL:
                    columns = undefined_columns(len(first))
                else:
                    values = space_values(metric, meeting)
                    columns = _estimate_columns(metric, values, groups, space_values(metric, shuffled)[0])
                yield {"layer_a": layer_a, "layer_b": layer_b, "metric": metric, **columns}


def _spaces(sample: TokenSample, groups: BlockGroups) -> Iterator[LayerSpace]:
    for layer in range(sample.num_states):
        space = LayerSpace(sample.states(layer), groups)
        if not space.varies:
            current_display().warn(
                f"Layer {layer} of {sample.facts.model} is the same for all {len(sample):,} sampled tokens, so it has "
                "no similarity to any other: its rows are NaN."
            )
        yield space


def _rsa_rows(first: TokenSample, second: TokenSample, dissimilarity: str) -> Iterator[dict[str, Any]]:
    pairs = ItemPairs(BlockGroups.of(first.blocks, first.width))
    places = pairs.under(stream("rsa-baseline").permutation(len(first)))
    layers = list(_ranked(first, pairs, dissimilarity))
    for layer_b, b in enumerate(_ranked(second, pairs, dissimilarity)):
        shuffled = b.ranks[places]
        for layer_a, a in enumerate(layers):
            values = a.values(b)
            columns = _estimate_columns("rsa", values, pairs.groups, float(a.ranks @ shuffled))
            yield {"layer_a": layer_a, "layer_b": layer_b, "metric": "rsa", **columns}


def _ranked(sample: TokenSample, pairs: ItemPairs, dissimilarity: str) -> Iterator[RankedSpace]:
    order = pairs.groups.order.numpy()
    for layer in range(sample.num_states):
        try:
            ranks = centred_ranks(sample.states(layer)[order], dissimilarity)
        except UserError as error:  # a single zero vector must not stop all comparisons of a study
            current_display().warn(f"Layer {layer} of {sample.facts.model} has no RSA: {error}")
            ranks = np.zeros(len(pairs))
        yield RankedSpace(ranks, pairs)
