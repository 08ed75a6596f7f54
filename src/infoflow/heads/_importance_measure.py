"""Importance of heads as a measure, and for a model and a corpus at once."""

from typing import ClassVar

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import Intervention, PassOptions, Reader, measure
from infoflow.foundation import current_display
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate_columns

from ._head_measure import HEAD_KEYS
from ._importance import ImportanceSums, check_importance
from ._scored import SentenceScorer, no_loss

_SCHEMA = TableSchema(
    name="head_importance",
    version=1,
    description="how sensitive the loss is to each head: expected absolute derivative by a gate on the head's output",
    columns=(
        *HEAD_KEYS,
        Column(name="convention", dtype="string", unit="", description="paper, token or batch; see heads.importance"),
        *estimate_columns(
            "nats per token (paper: or per sentence) and unit of gate; none where normalised",
            "importance",
            "mean over all heads of that stack and kind: what each would have if all were alike",
            "sentences (paper) or tokens (token, batch) that the mean is over",
        ),
    ),
)


class Importance(Intervention):
    r"""Importance of each head for the model's own loss, by one backward pass per batch for all heads.

    $$ I_h = \mathbb{E}_x \left| \frac{\partial L(x)}{\partial \xi_h} \right|, \qquad
       \frac{\partial L}{\partial \xi_h} = \sum_t g_{ht}, \quad
       g_{ht} = \mathrm{ctx}_{ht} \cdot \frac{\partial L}{\partial \mathrm{ctx}_{ht}} $$

    | `convention` | formula | batch size |
    |---|---|---|
    | `"paper"` | per sentence $\lvert \sum_t g_{ht} \rvert$, mean over sentences | does not matter |
    | `"token"` | $\sum_t \lvert g_{ht} \rvert$ over the number of tokens | does not matter |
    | `"batch"` | $\lvert \sum g_{ht} \rvert$ of each batch's mean loss, over the number of tokens | matters |

    "batch" lets signs cancel within a batch; it is then divided by the norm of the layer's heads, and all heads are
    spread onto [0, 1]. The gates $\xi$ stand at the input of the output projection, one per sentence, and are 1. $L$ is
    the cross-entropy of masked, next or target tokens. Padding and sentences without a token to predict do not count.

    Args:
        convention: See the table.
        example_loss: With `"paper"`, a sentence's loss is the `"mean"` over its predicted tokens (so that long
            sentences weigh no more), or their `"sum"`. The paper does not say. The other two use sums.
        normalise: `"layer"` divides by the norm over the heads of a layer and kind, as the paper does before it
            compares layers.
        one_minus: Sensitivity to all *other* heads of the layer instead, an option of the released code: there a large
            value says that the head can go.
        sentences: Chosen by hash; all by default.

    Source: [@michel2019]; "token" as its released code for fairseq, "batch" as Hugging Face's run_bertology.
    """

    table: ClassVar[TableSchema] = _SCHEMA

    def __init__(
        self,
        convention: str = "paper",
        *,
        example_loss: str = "mean",
        normalise: str = "none",
        one_minus: bool = False,
        sentences: int | None = 400,
    ) -> None:
        check_importance(convention, example_loss, normalise)
        self.convention, self.example_loss, self.normalise = convention, example_loss, normalise
        self.one_minus, self.sentences = one_minus, sentences

    def refusal(self, model: Model) -> str | None:
        return no_loss(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        scorer = SentenceScorer(reader)
        rows = scorer.choose(self.sentences, "head-importance")
        sums = ImportanceSums(scorer, self.convention, self.example_loss, self.one_minus)
        label = f"Importance of heads in {reader.model.name}"
        with current_display().progress(label, len(rows), "sentences") as progress:
            for batch in scorer.batches(rows, options.tokens_per_batch):
                sums.add(batch)
                progress.advance(batch.size)
        return pd.DataFrame(sums.rows(self.normalise), columns=self.table.column_names)


def importance(
    model: Model,
    corpus: Corpus,
    convention: str = "paper",
    *,
    example_loss: str = "mean",
    normalise: str = "none",
    one_minus: bool = False,
    sentences: int | None = None,
    options: PassOptions | None = None,
) -> pd.DataFrame:
    """Importance of every head on a corpus; see `Importance` for formulas and conventions.

    Returns:
        One row per head: stack, kind, layer, head, convention, value, low, high, baseline, count, replicates. Intervals
        resample sentences.

    Raises:
        UserError: A convention is unknown, or the model has no loss on this corpus.
    """
    chosen = Importance(
        convention, example_loss=example_loss, normalise=normalise, one_minus=one_minus, sentences=sentences
    )
    return measure(model, corpus, [chosen], options)[chosen.name]
