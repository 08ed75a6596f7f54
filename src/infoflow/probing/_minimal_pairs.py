"""Minimal pairs: which of two sentences, one acceptable and one not, each layer of a model finds more likely."""

# P pair, L+1 states, N bootstrap block

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, current_display, hash64_array
from infoflow.models import Model, readout
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._sentence_scores import ScoredRows, layer_scores, token_rows

ALL_PAIRS = "all"
"""The phenomenon of rows over all pairs."""

MINIMAL_PAIRS = TableSchema(
    name="minimal_pairs",
    version=2,
    description="Share of minimal pairs whose acceptable sentence is more likely under the prediction of each layer.",
    made_by='a plan with tasks = ["minimal-pairs"] in [probing] makes it',
    columns=(
        Column(name="stack", dtype="string", unit="", description="the stack that has the output head"),
        Column(name="layer", dtype="int64", unit="", description="state 0..L; 0 = embeddings, L = the model's output"),
        Column(name="phenomenon", dtype="string", unit="", description="of the pairs; all: every pair"),
        Column(
            name="metric",
            dtype="string",
            unit="",
            description="preferred: share of pairs, a tie counts half; margin: log-probability of the acceptable "
            "sentence less that of the other, in nats",
        ),
        Column(name="ties", dtype="int64", unit="pairs", description="pairs that the layer finds equally likely"),
        *estimate_columns(
            "share, or nats for margin", "the metric, mean over pairs", "chance: one half, or no margin", "pairs"
        ),
    ),
)


class MinimalPairs(Intervention):
    r"""Does the model prefer the acceptable sentence of a minimal pair, and from which layer on?

    $$ \mathrm{preferred}_l = \frac{1}{P} \sum_p \left[ s_l(\mathrm{good}_p) > s_l(\mathrm{bad}_p) \right] $$

    s is the log-probability of a whole sentence by the logit lens at layer l (see `layer_scores`): no probe is trained;
    the preference is the model's own. The corpus has the acceptable sentences as text and the others in the column
    `bad` (`Corpus.from_minimal_pairs`, `Corpus.from_table(..., bad=...)`); its `label` is the phenomenon. Without pairs
    the table is empty. Pairs with a sentence longer than the model's limit are left out, and a note counts them.

    If a causal LM's tokenizer puts nothing before a sentence, BOS or else the end-of-text token is added. Without
    either, the first token has no probability: pairs with different first tokens are left out and counted.

    Args:
        pairs: Maximum number, chosen by hash; None: all.
        phenomena: Add a row for each phenomenon.

    Source: [@warstadt2020], sums over the whole sentence; pseudo-log-likelihood for masked LMs [@salazar2020]; the
    scores by layer are ours.
    """

    table: ClassVar[TableSchema] = MINIMAL_PAIRS
    static: ClassVar[bool] = False

    def __init__(self, pairs: int | None = 1000, phenomena: bool = True) -> None:
        if pairs is not None and pairs < 1:
            raise UserError(f"pairs must be at least 1, or None for all. Got {pairs}.")
        self.pairs, self.phenomena = pairs, phenomena

    def refusal(self, model: Model) -> str | None:
        if model.task not in ("causal-lm", "masked-lm"):
            return "it gives sentences no probability: only causal and masked language models do"
        tokenizer = model.tokenizer
        if model.task == "masked-lm" and tokenizer is not None and tokenizer.mask_token_id is None:
            return "its tokenizer has no mask token"
        try:
            readout(model)
        except UserError as error:
            return str(error)
        return None

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        corpus, model = reader.corpus, reader.model
        if "bad" not in corpus.columns:
            return pd.DataFrame(columns=self.table.column_names)
        part = corpus.select(self._choose(corpus.content_ids, options.seed))
        sides = [token_rows(model, list(part.column(name)), options.max_length) for name in ("text", "bad")]
        kept = ~(sides[0].cut | sides[1].cut)
        if not kept.all():
            note = f"{int((~kept).sum())} of {len(part):,} minimal pairs are left out: a sentence is longer"
            current_display().note(f"{note} than {model.name} reads.")
        unlike = kept & np.array([good != bad for good, bad in zip(*map(_first_scored, sides), strict=True)])
        if model.task == "causal-lm" and unlike.any():
            note = (
                f"{int(unlike.sum())} of {len(part):,} minimal pairs are left out: the tokenizer of {model.name} has no"
            )
            current_display().note(f"{note} token to stand before a sentence, and their first tokens differ.")
            kept &= ~unlike
        if not kept.any():
            return pd.DataFrame(columns=self.table.column_names)
        good_PL, bad_PL = (layer_scores(model, _kept(rows, kept), options.tokens_per_batch) for rows in sides)
        labels = list(part.column("label")) if "label" in part.columns else [None] * len(part)
        names = np.array([label or "" for label in labels], dtype=object)[kept]
        blocks = block_of(part.content_ids[kept])
        rows = list(_rows(good_PL - bad_PL, names, blocks, self.phenomena))
        return pd.DataFrame([{"stack": model.anatomy.predicts.name, **row} for row in rows])

    def _choose(self, ids: np.ndarray, seed: int) -> np.ndarray:
        order = np.argsort(hash64_array(("minimal-pairs", seed), ids), kind="stable")
        return np.sort(order[: self.pairs])


def _first_scored(rows: ScoredRows) -> list[int | None]:
    """The first token of each sentence, if nothing precedes it: no causal LM predicts such a token."""
    return [int(ids[0]) if len(ids) and scored[0] else None for ids, scored in zip(rows.ids, rows.scored, strict=True)]


def _kept(rows: ScoredRows, kept: np.ndarray) -> ScoredRows:
    chosen = np.flatnonzero(kept)
    return ScoredRows(
        ids=[rows.ids[place] for place in chosen], scored=[rows.scored[place] for place in chosen], cut=rows.cut[kept]
    )


def _rows(margin_PL: np.ndarray, names: np.ndarray, blocks: np.ndarray, phenomena: bool) -> Iterator[dict[str, Any]]:
    """Rows of the table, from the margins of all pairs in every layer."""
    named = sorted({name for name in names if name}) if phenomena else []
    for phenomenon in [ALL_PAIRS, *named]:
        chosen = np.ones(len(names), dtype=bool) if phenomenon == ALL_PAIRS else names == phenomenon
        pairs_N = np.bincount(blocks[chosen], minlength=NUM_BLOCKS).astype(float)
        for layer in range(margin_PL.shape[1]):
            margin_P = margin_PL[chosen, layer]
            preferred_P = np.where(margin_P == 0, 0.5, margin_P > 0)
            keys = {"layer": layer, "phenomenon": phenomenon, "ties": int((margin_P == 0).sum())}
            for metric, values_P, chance in (("preferred", preferred_P, 0.5), ("margin", margin_P, 0.0)):
                sums_N = np.bincount(blocks[chosen], weights=values_P, minlength=NUM_BLOCKS)
                scale = "share" if metric == "preferred" else "any"
                yield {**keys, "metric": metric, **ratio_estimate(sums_N, pairs_N, chance, scale)}
