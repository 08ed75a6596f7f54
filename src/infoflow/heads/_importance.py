"""The sensitivity of the loss to each head: Michel's importance, in three conventions."""

# B sentence, T token, H head, d head width, K bootstrap block (64), R row: the estimate, then its replicates

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.corpus import Corpus
from infoflow.flow import Intervention, PassOptions, Reader, measure
from infoflow.foundation import NUM_BLOCKS, UserError, current_display, replicate_weights
from infoflow.models import Model, Site, open_gates, tap
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._head_measure import HEAD_KEYS, head_keys
from ._scored import ScoredBatch, SentenceScorer, no_loss

HEAD_IMPORTANCE = TableSchema(
    name="head_importance",
    description="Sensitivity of the loss to each head: expected absolute derivative with respect to a gate on "
    "the head's output.",
    columns=(
        *HEAD_KEYS,
        Column("convention", "string", "", "paper, token or batch; see heads.importance"),
        *estimate_columns(
            "nats per token (paper: or per sentence) per unit of the gate; no unit if normalised",
            "importance",
            "mean over all heads of that stack and kind: the value if all heads were equal",
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
    | `"token"` | $\sum_t \lvert g_{ht} \rvert$ divided by the number of tokens | does not matter |
    | `"batch"` | $\lvert \sum g_{ht} \rvert$ of each batch's mean loss, divided by the number of tokens | matters |

    With "batch", positive and negative gradients cancel within a batch; the result is divided by the norm over the
    layer's heads, and all heads are scaled to [0, 1]. The gates $\xi$ are at the input of the output projection, one
    for each sentence, and have the value 1. $L$ is the cross-entropy of masked, next or target tokens. Padding and
    sentences without a token to predict do not count.

    Args:
        convention: See the table.
        example_loss: With `"paper"`, a sentence's loss is the `"mean"` over its predicted tokens (so that long
            sentences do not weigh more), or their `"sum"`. The paper does not say. The other conventions use sums.
        normalise: `"layer"` divides by the norm over the heads of a layer and kind, as the paper does before comparing
            layers.
        one_minus: Measure the sensitivity to all *other* heads of the layer instead, an option of the released code. A
            large value then means that the head can be removed.
        sentences: Number of sentences, chosen by hash; default: all.

    Source: [@michel2019]; "token" is the convention of its released code for fairseq, and "batch" is that of Hugging
    Face's run_bertology.
    """

    table: ClassVar[TableSchema] = HEAD_IMPORTANCE
    by_token = True

    def __init__(
        self,
        convention: str = "paper",
        *,
        example_loss: str = "mean",
        normalise: str = "none",
        one_minus: bool = False,
        sentences: int | None = 400,
    ) -> None:
        choices = {
            "convention": (convention, CONVENTIONS),
            "example_loss": (example_loss, EXAMPLE_LOSSES),
            "normalise": (normalise, NORMALISATIONS),
        }
        for name, (given, allowed) in choices.items():
            if given not in allowed:
                raise UserError(f"{name} must be one of {', '.join(allowed)}. Got {given}.")
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


CONVENTIONS = ("paper", "token", "batch")
EXAMPLE_LOSSES = ("mean", "sum")
NORMALISATIONS = ("none", "layer")

_GUARD = 1e-20  # added to the norm of a layer without any importance


class ImportanceSums:
    """The sums for the three conventions, with one backward pass per batch."""

    def __init__(self, scorer: SentenceScorer, convention: str, example_loss: str, one_minus: bool) -> None:
        self._scorer, self._convention = scorer, convention
        self._example_loss, self._one_minus = example_loss, one_minus
        self._weights_RK = np.concatenate([np.ones((1, NUM_BLOCKS)), replicate_weights()])
        self._sums: dict[Site, np.ndarray] = {}  # (1 + replicate, H)
        self._counts: dict[Site, np.ndarray] = {}  # (1 + replicate,)

    def add(self, batch: ScoredBatch) -> None:
        """Add one batch: one forward and one backward pass for all heads."""
        blocks = batch.padded.blocks.numpy()
        by_token = self._convention == "token"
        for site, part_BH, count_B in self._token_parts(batch) if by_token else self._sentence_parts(batch):
            sums_RH = self._weights_RK @ _by_block(part_BH.numpy(), blocks)
            counts_R = self._weights_RK @ _by_block(count_B.numpy(), blocks)
            if self._convention == "batch":  # signs cancel within a batch, so the result depends on the batch size
                scored_R = self._weights_RK @ _by_block(batch.counts.cpu().numpy(), blocks)
                sums_RH = np.abs(sums_RH) / np.maximum(scored_R, 1)[:, None]
            self._sums[site] = self._sums.get(site, 0) + sums_RH
            self._counts[site] = self._counts.get(site, 0) + counts_R

    def _sentence_parts(self, batch: ScoredBatch) -> Iterator[tuple[Site, Tensor, Tensor]]:
        """(B, H) gradients of each sentence's loss with respect to the gates, and their denominators."""
        paper = self._convention == "paper"
        gates = open_gates(self._scorer.model, batch.size)
        with torch.enable_grad(), tap(self._scorer.model, gates=gates):
            losses_B = self._scorer.losses(batch)
            if paper and self._example_loss == "mean":
                losses_B = losses_B / batch.counts.clamp(min=1)
        flat = [gate for rows in gates.values() for gate in rows]  # gates of layers without heads are not used
        gradients = iter(torch.autograd.grad(losses_B.sum(), flat, materialize_grads=True))
        scored_B = (batch.counts > 0).double().cpu()
        for (stack, kind), rows in gates.items():
            count_B = scored_B if paper else batch.padded.streams[stack].real.sum(dim=1).double().cpu()
            for layer in range(len(rows)):
                part_BH = self._others(next(gradients).double().cpu())
                yield Site(stack=stack, kind=kind, layer=layer), part_BH.abs() if paper else part_BH, count_B

    def _token_parts(self, batch: ScoredBatch) -> Iterator[tuple[Site, Tensor, Tensor]]:
        """(B, H) sums over tokens of |ctx · gradient|, and the number of tokens."""
        # A clone, because without edits the tap passes on the original and records a view that the loss does not use.
        with torch.enable_grad(), tap(self._scorer.model, heads=True, on_heads=lambda call: call.heads.clone()) as seen:
            total = self._scorer.losses(batch).sum()
        flat = [layer for layers in seen.heads.values() for layer in layers]
        gradients = iter(torch.autograd.grad(total, flat, materialize_grads=True))
        for (stack, kind), layers in seen.heads.items():
            real_BT = batch.padded.streams[stack].real
            for layer, heads_BTHd in enumerate(layers):
                part_BTH = self._others((heads_BTHd.detach() * next(gradients)).sum(dim=-1).double())
                part_BH = (part_BTH.abs() * real_BT[:, :, None]).sum(dim=1)
                yield Site(stack=stack, kind=kind, layer=layer), part_BH.cpu(), real_BT.sum(dim=1).double().cpu()

    def _others(self, part: Float[Tensor, "*rest head"]) -> Float[Tensor, "*rest head"]:
        return part.sum(dim=-1, keepdim=True) - part if self._one_minus else part

    def scores(self, normalise: str) -> dict[Site, Float[np.ndarray, "row head"]]:
        """Importance of the heads of each attention: the estimate, then its bootstrap replicates."""
        scores = {}
        for site, sums_RH in self._sums.items():
            with np.errstate(invalid="ignore", divide="ignore"):
                scores[site] = sums_RH / self._counts[site][:, None]
            if normalise == "layer" or self._convention == "batch":
                scores[site] /= np.sqrt((scores[site] ** 2).sum(axis=1, keepdims=True)) + _GUARD
        return _spread(scores) if self._convention == "batch" else scores

    def rows(self, normalise: str) -> list[dict[str, Any]]:
        """One row per head."""
        scores, means = self.scores(normalise), {}
        for site, values in scores.items():
            means.setdefault((site.stack, site.kind), []).extend(values[0])

        def baseline(site: Site) -> float:
            return float(np.mean(means[site.stack, site.kind]))

        return [
            {
                **head_keys(site.stack, site.kind, site.layer, head),
                "convention": self._convention,
                **estimate(row[0], row[1:], baseline(site), self._counts[site][0], scale="positive"),
            }
            for site, values in scores.items()
            for head, row in enumerate(values.T)
        ]


def _spread(scores: dict[Site, np.ndarray]) -> dict[Site, np.ndarray]:
    """All heads of the model scaled to [0, 1], row by row."""
    together = np.concatenate(list(scores.values()), axis=1)
    low, high = together.min(axis=1, keepdims=True), together.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {site: (values - low) / (high - low) for site, values in scores.items()}


def _by_block(values: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    sums = np.zeros((NUM_BLOCKS, *values.shape[1:]))
    np.add.at(sums, blocks, values)
    return sums
