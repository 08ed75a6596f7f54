"""BERTScore of a model by layer, with random pairs of the same texts as a baseline; agreement with human scores."""

# L layer, P pair

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import (
    NUM_BLOCKS,
    Scale,
    UserError,
    at_least_fisher,
    block_effects,
    block_interval,
    replicate_weights,
    stream,
)
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate, estimate_columns, ratio_estimate

from ._bert_score import SCORES, BertBaseline, BertScores, bert_baseline, bert_score, check_layer
from ._text_pairs import TextPairs, read_text_pairs

_SHUFFLES = 100
LEAST_PAIRS = 10  # minimum number of pairs for a correlation with human scores

BERT_SCORE = TableSchema(
    name="bert_score",
    version=3,
    description="Correlation (Pearson) of BERTScore with human scores of the same pairs, layer by layer.",
    made_by="infoflow bert-score with human-scored pairs makes it",
    columns=(
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        Column("score", "string", "", ", ".join(SCORES)),
        Column("labels", "string", "", "human, or permuted: the same scores in random order"),
        *estimate_columns(
            "correlation", "Pearson's r over pairs", "mean over 100 shuffles of the human scores", "pairs"
        ),
    ),
)


def pearson_by_layer(
    scores: BertScores, human: Sequence[float] | Float[np.ndarray, " pair"], *, labels: str = "human"
) -> pd.DataFrame:
    r"""How well each layer's BERTScore agrees with human scores.

    $$ r = \frac{\sum_p (s_p - \bar s)(h_p - \bar h)}{\sqrt{\sum_p (s_p - \bar s)^2 \sum_p (h_p - \bar h)^2}} $$

    The interval resamples pairs, the same ones in every layer, so that differences between layers can be tested. It
    stays between -1 and 1, and is at least as wide as it would be for the same number of normally distributed pairs
    [@fisher1921]. NaN if a layer gives every pair the same score.

    Args:
        scores: Scores of all layers, from `bert_score`.
        human: A number for each pair; higher means more similar.
        labels: Value of the column `labels`; "permuted" if the numbers are shuffled, as a control.

    Returns:
        The table `bert_score`.

    Raises:
        UserError: The number of human scores differs from the number of pairs, is below ten, or the scores are not
            finite or are all equal.

    Source: [@zhang2020bertscore].
    """
    given = human_scores(human, len(scores.blocks))
    draw = stream("bert-score-shuffles")
    shuffled = np.stack([draw.permutation(given) for _ in range(_SHUFFLES)])
    rows = [
        {
            "layer": layer,
            "score": name,
            "labels": labels,
            **_correlation(getattr(scores, name)[index], given, shuffled, scores.blocks),
        }
        for index, layer in enumerate(scores.layers)
        for name in SCORES
    ]
    return BERT_SCORE.conform(pd.DataFrame(rows))


def human_scores(human: Sequence[float] | Float[np.ndarray, " pair"], pairs: int) -> Float[np.ndarray, " pair"]:
    """The human scores; raises a UserError if they allow no correlation."""
    given = np.asarray(human, dtype=np.float64)
    if given.shape != (pairs,) or pairs < LEAST_PAIRS:
        raise UserError(
            f"A correlation needs one human score for each of at least {LEAST_PAIRS} pairs. Got "
            f"{given.size:,} for {pairs:,} pairs. Give more pairs, or leave the human scores out."
        )
    if not np.isfinite(given).all() or np.ptp(given) == 0:
        raise UserError(
            "Human scores must be numbers that differ between pairs. Got NaN, infinity, or the same number for all."
        )
    return given


def _correlation(values: np.ndarray, human: np.ndarray, shuffled: np.ndarray, blocks: np.ndarray) -> dict[str, Any]:
    x, y = values - values.mean(), human - human.mean()  # centring avoids cancellation
    terms = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y])
    sums = np.stack([np.bincount(blocks, weights=term, minlength=NUM_BLOCKS) for term in terms])
    spread = np.sqrt((x * x).sum() * ((shuffled - human.mean()) ** 2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        control = ((shuffled - human.mean()) @ x / spread).mean()
    replicates = _pearson(replicate_weights() @ sums.T)
    value = float(_pearson(sums.sum(axis=1)[None])[0])
    ends = block_interval(value, block_effects(value, replicates), scale="correlation", count=len(x))
    return estimate(value, replicates, float(control), len(x), ends=at_least_fisher(ends, value, len(x)))


def _pearson(sums: Float[np.ndarray, "draw 6"]) -> Float[np.ndarray, " draw"]:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (n * xy - x * y) / np.sqrt((n * xx - x * x) * (n * yy - y * y))


_LAYER = Column("layer", "int64", "", "state 0..L; 0 = embeddings")

BERT_SCORE_LAYERS = TableSchema(
    name="bert_score_layers",
    version=2,
    description="Mean BERTScore of text pairs by layer; the control is random pairs of the same texts.",
    columns=(
        _LAYER,
        Column("score", "string", "", ", ".join(SCORES)),
        Column("idf", "bool", "", "whether rare tokens weigh more"),
        Column("rescaled", "bool", "", "(s - b) / (1 - b), b the mean of random pairs"),
        Column("random", "float64", "cosine", "mean of random pairs: b, never rescaled"),
        *estimate_columns(
            "cosine, or share of the way from random pairs to equal ones", "mean over pairs",
            "the same for random pairs: a candidate with another pair's reference; 0 where rescaled", "pairs",
        ),
    ),
)  # fmt: skip

BERT_SCORE_PAIRS = TableSchema(
    name="bert_score_pairs",
    description="BERTScore of each pair of texts by layer.",
    columns=(
        Column("pair", "int64", "", "position in the file, from 0"),
        _LAYER,
        *(Column(name, "float64", "cosine, or as rescaled", name) for name in SCORES),
        Column("human", "float64", "", "human score; NaN: none"),
    ),
)


def bert_score_tables(
    model: Model,
    pairs: TextPairs,
    *,
    layer: int | None = None,
    idf: bool = False,
    rescale: bool = False,
    baseline_pairs: int = 1000,
    tokens_per_batch: int = 4096,
) -> dict[str, pd.DataFrame]:
    r"""Mean scores of every layer, scores of each pair, and correlations with human scores if there are any.

    $$ \bar s_l = \frac{1}{P} \sum_p s_{lp}, \qquad
       b_l = \frac{1}{B} \sum_b s_l(x_{i_b}, y_{j_b}),\; i_b \ne j_b, \qquad
       s'_{lp} = \frac{s_{lp} - b_l}{1 - b_l} $$

    s is precision, recall or F of `bert_score`. b is the score of random pairs of different texts from the input, for
    the same model and layer (`bert_baseline`). Cosines of most models lie far above 0 for any pair, so a score means
    nothing without b. Intervals of means resample pairs and take b as known.

    Args:
        model: A model with a tokenizer.
        pairs: From `read_text_pairs`, or constructed.
        layer: State 0..L; default: all.
        idf: Give rare tokens more weight, in the scores and in b.
        rescale: Return s' instead of s. Correlations are the same.
        baseline_pairs: Number of random pairs for b.
        tokens_per_batch: Maximum number of tokens per batch, padding included.

    Returns:
        The tables `bert_score_layers`, `bert_score_pairs` and, with human scores, `bert_score`, whose column `labels`
        separates the human scores from a permutation of them as a control.

    Raises:
        UserError: As in `bert_score` and `pearson_by_layer`, or all texts are the same.

    Source: [@zhang2020bertscore].
    """
    check_layer(model, layer)  # before a thousand random pairs are read
    if pairs.human is not None:
        human_scores(pairs.human, len(pairs))
    texts = [*pairs.candidates, *pairs.references]
    base = bert_baseline(model, texts, pairs=baseline_pairs, idf=idf, tokens_per_batch=tokens_per_batch)
    how: dict[str, Any] = {"layer": layer, "idf": idf, "tokens_per_batch": tokens_per_batch}
    scores = bert_score(model, pairs.candidates, pairs.references, rescale=base if rescale else None, **how)
    tables = {
        BERT_SCORE_LAYERS.name: _means(scores, base, idf, rescale),
        BERT_SCORE_PAIRS.name: _each(scores, pairs.human),
    }
    if pairs.human is not None:
        permuted = stream("bert-score-permuted").permutation(np.array(pairs.human))
        each = {"human": pairs.human, "permuted": permuted}
        frames = [pearson_by_layer(scores, given, labels=labels) for labels, given in each.items()]
        tables[BERT_SCORE.name] = pd.concat(frames, ignore_index=True)
    return tables


class BertScoreByLayer(Intervention):
    """`bert_score_tables` as a measure: the pairs come from a file and do not depend on the corpus.

    Args:
        pairs: Path of a file, see `read_text_pairs`.
        columns: Columns of the candidate, the reference and the score, see `read_text_pairs`.
        idf: Give rare tokens more weight.
        rescale: Rescale scores to 0 for random pairs and 1 for equal ones.
    """

    table: ClassVar[TableSchema] = BERT_SCORE_LAYERS

    def __init__(self, pairs: str, columns: tuple[str, ...] = (), idf: bool = False, rescale: bool = False) -> None:
        self._pairs = read_text_pairs(pairs, columns)
        self.content = self._pairs.digest  # the path does not determine the content
        self.columns, self.idf, self.rescale = columns, idf, rescale

    def refusal(self, model: Model) -> str | None:
        return "it has no tokenizer" if model.tokenizer is None else None

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        how: dict[str, Any] = {"idf": self.idf, "rescale": self.rescale, "tokens_per_batch": options.tokens_per_batch}
        return bert_score_tables(reader.model, self._pairs, **how)[self.table.name]


def _means(scores: BertScores, base: BertBaseline, idf: bool, rescaled: bool) -> pd.DataFrame:
    counts = np.bincount(scores.blocks, minlength=NUM_BLOCKS).astype(float)
    rows = []
    for at, layer in enumerate(scores.layers):
        for name in SCORES:
            random = float(getattr(base, name)[base.layers.index(layer)])
            if rescaled and not random < 1:
                raise UserError(
                    f"At layer {layer} random pairs score {random:.3f}, so scores cannot be rescaled to lie between "
                    "that and 1.\nLeave --rescale out, or compare other texts."
                )
            sums = np.bincount(scores.blocks, weights=getattr(scores, name)[at], minlength=NUM_BLOCKS)
            scale: Scale = "explained" if rescaled else "correlation"  # no score exceeds 1; a cosine is at least -1
            estimate = ratio_estimate(sums, counts, 0.0 if rescaled else random, scale)
            rows.append({"layer": layer, "score": name, "idf": idf, "rescaled": rescaled, "random": random, **estimate})
    return BERT_SCORE_LAYERS.conform(pd.DataFrame(rows))


def _each(scores: BertScores, human: tuple[float, ...] | None) -> pd.DataFrame:
    layers, num = len(scores.layers), scores.f.shape[1]
    columns = {name: getattr(scores, name).ravel() for name in SCORES}
    given = np.full(num, np.nan) if human is None else np.array(human)
    frame = pd.DataFrame(
        {"pair": np.tile(np.arange(num), layers), "layer": np.repeat(scores.layers, num), **columns,
         "human": np.tile(given, layers)}
    )  # fmt: skip
    return BERT_SCORE_PAIRS.conform(frame)
