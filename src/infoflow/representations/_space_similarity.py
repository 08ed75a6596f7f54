"""How similar the representations of two models are, every layer against every layer."""

from typing import ClassVar

import pandas as pd

from infoflow.flow import SAMPLE_COLUMNS, PairMeasure, SampleRequest, TokenSample
from infoflow.foundation import UserError, current_display
from infoflow.results import Column, TableSchema, estimate_columns

from ._pwcca import ROWS_PER_DIMENSION, warn_few_rows
from ._rsa import check_dissimilarity
from ._similarity_grid import CANONICAL, check_metrics, similarity_grid

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
        Column(name="stack_a", dtype="string", unit="", description="stack of the first model"),
        Column(name="stack_b", dtype="string", unit="", description="stack of the second model"),
        Column(name="layer_a", dtype="int64", unit="", description="state of the first model; 0 = embeddings"),
        Column(name="layer_b", dtype="int64", unit="", description="state of the second model; 0 = embeddings"),
        Column(name="metric", dtype="string", unit="", description="which similarity (procrustes: distance)"),
        *estimate_columns(
            "similarity, of procrustes radians",
            "similarity of the two layers (procrustes: distance)",
            "the same with the second's words shuffled",
            "number of words compared",
        ),
        Column(name="width_a", dtype="int64", unit="dimensions", description="width of the first model's states"),
        Column(name="width_b", dtype="int64", unit="dimensions", description="width of the second model's states"),
        *SAMPLE_COLUMNS,
    ),
)
DEFAULT_METRICS = ("rsa", "pwcca", "cka", "cka_debiased", "procrustes")


class SpaceSimilarity(PairMeasure):
    """Similarity of every layer of one model to every layer of another, on the same words.

    | metric                         | as                                    | baseline of unrelated layers    |
    |--------------------------------|---------------------------------------|---------------------------------|
    | `rsa`                          | `rsa`                                 | 0                               |
    | `pwcca`                        | `pwcca`, the mean of both sides       | about 0.85 √(d/n)               |
    | `svcca`, `cca`                 | `svcca` at 99%, mean of `cca_correlations` | about as pwcca             |
    | `cka`, `cka_debiased`          | `linear_cka`                          | up to 1 when n ≲ d; 0           |
    | `cka_minibatch`                | `minibatch_cka`, batches of whole sentences | 0                         |
    | `procrustes`                   | `procrustes_distance`, the angle      | π/2 less what chance aligns     |

    Every layer is whitened, ranked and normalised once for all its pairs. Values agree with the functions to about
    1e-6. Error bars resample sentences to first order (`linear_replicates`): a plain bootstrap would repeat rows, and a
    word and its copy are at distance 0. The effect of leaving out a group of sentences is followed through all terms:
    for RSA also the ranks of the remaining distances, for PWCCA also the weights, except between correlations whose
    difference is within sampling error. SVCCA's components are fixed, so its bars miss a change of their number. Layers
    up to 256 wide leave out each of 64 blocks, wider ones 16 groups of four.

    Args:
        metrics: Metrics to compute; rows come in this order.
        occurrences: At most this many words for all but RSA; at least 10, better 20, per dimension.
        items: RSA compares the first `items` words; its memory is 14 `items`² bytes per layer.
        dissimilarity: RSA's distance: `"cosine"`, `"euclidean"` or `"correlation"`.
        words: Unit of comparison: `"token"`, or whole words with the `"mean"`, `"first"` or `"last"` of their tokens'
            states. Models with different tokenizers are always compared on words, by default the last token's.

    Warns, with the baseline, if there are fewer than 10 words per dimension.

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
        frame = pd.DataFrame(similarity_grid(first, second, self.metrics, self.items, self.dissimilarity))
        warn_few_words(frame, max(first.width, second.width))
        return frame.assign(
            stack_a=first.facts.stack,
            stack_b=second.facts.stack,
            width_a=first.width,
            width_b=second.width,
            **first.sizes(self.request, second),
        )


def warn_few_words(frame: pd.DataFrame, width: int) -> None:
    """Warn of a bias towards similarity, with the baseline of unrelated layers, and of what is left out."""
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
            f"{reached}). Use at least {ROWS_PER_DIMENSION * width:,} words, better {2 * ROWS_PER_DIMENSION * width:,}."
        )
