"""Minimal pairs: which sentence of a pair, the acceptable or the unacceptable one, is more likely at each layer."""

# P pair, L+1 states, N bootstrap block, S sentence, T token

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float64

from infoflow.corpus import Corpus, length_batches
from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, current_display, hash64_array
from infoflow.models import Model, front_token, pad_rows
from infoflow.representations import logit_lens, no_readout
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

ALL_PAIRS = "all"  # the phenomenon of rows over all pairs

MINIMAL_PAIRS = TableSchema(
    name="minimal_pairs",
    version=2,
    description="Share of minimal pairs whose acceptable sentence is more likely under the prediction of each layer.",
    made_by='a plan with tasks = ["minimal-pairs"] in [probing] makes it',
    columns=(
        Column("stack", "string", "", "the stack that has the output head"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings, L = the model's output"),
        Column("phenomenon", "string", "", "phenomenon of the pairs; all: every pair"),
        Column(
            "metric",
            "string",
            "",
            "preferred: share of pairs (a tie counts half); margin: log-probability of the acceptable "
            "sentence minus that of the other, in nats",
        ),
        Column("ties", "int64", "pairs", "pairs that the layer finds equally likely"),
        *estimate_columns("share, or nats", "the metric, mean over pairs", "chance: one half, or no margin", "pairs"),
    ),
)
_LOGIT_BYTES = 1 << 27  # logits of one layer held at a time


class MinimalPairs(Intervention):
    r"""Whether the model prefers the acceptable sentence of a minimal pair, and from which layer on.

    $$ \mathrm{preferred}_l = \frac{1}{P} \sum_p \left[ s_l(\mathrm{good}_p) > s_l(\mathrm{bad}_p) \right] $$

    s is the log-probability of a whole sentence by the logit lens at layer l (see `layer_scores`). No probe is trained:
    the preference is the model's own. The corpus has the acceptable sentences as text, and the others in the column
    `bad` (`Corpus.from_minimal_pairs`, `Corpus.from_table(..., bad=...)`); its `label` is the phenomenon. Without pairs
    the table is empty. Pairs with a sentence longer than the model's limit are left out, and a note counts them.

    If a causal LM's tokenizer puts no token before a sentence, BOS or else the end-of-text token is added. Without
    either, the first token has no probability, so pairs with different first tokens are left out and counted.

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
        return no_readout(model)

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
            current_display().note(f"{note} token to put before a sentence, and their first tokens differ.")
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScoredRows:
    """Sentences as token ids, with the tokens to be scored."""

    ids: Sequence[np.ndarray]
    scored: Sequence[np.ndarray]  # bool, aligned with ids
    cut: np.ndarray  # (S,) bool: longer than the model's limit


def _first_scored(rows: ScoredRows) -> list[int | None]:
    """For each sentence its first token if nothing precedes it, which no causal LM can predict; otherwise None."""
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


def token_rows(model: Model, sentences: Sequence[str], max_length: int) -> ScoredRows:
    """Sentences as token ids for a model; every token that is not special is scored.

    If a causal LM's tokenizer adds no token in front, `front_token` is added, so that a sentence's first token has a
    probability too.
    """
    tokenizer = model.require_tokenizer()
    longest = max_length if model.max_tokens is None else min(max_length, model.max_tokens)
    encoded = Corpus.from_sentences(list(sentences), "minimal pairs").encode(tokenizer, max_length=longest)
    assert len(encoded) == len(sentences), "no sentence is blank"
    first = front_token(tokenizer) if model.task == "causal-lm" else None
    ids, scored = [], []
    for row in range(len(encoded)):
        tokens, special = encoded.row(row).astype(np.int64), encoded.special(row)
        if first is not None and len(tokens) and not special[0]:
            tokens, special = np.append(first, tokens), np.append(True, special)
        ids.append(tokens)
        scored.append(~special)
    lengths = np.array([len(row) for row in ids])
    return ScoredRows(ids=ids, scored=scored, cut=(encoded.lengths >= longest) | (lengths > longest))


def layer_scores(model: Model, rows: ScoredRows, tokens_per_batch: int) -> Float64[np.ndarray, "sentence state"]:
    r"""The log-probability of each sentence under the prediction of every layer, in nats.

    $$ s_l = \sum_t \log p_l(w_t \mid c_t), \qquad p_l = \mathrm{softmax}\,r(h_l) $$

    The context c of a token is the text before it (causal LM), or the sentence with the token masked (masked LM: the
    pseudo-log-likelihood). Special tokens are not scored. The top layer's score is the model's own.

    Source: [@salazar2020]; the use of the lens is ours.
    """
    blanks = list(_masked(model, rows) if model.task == "masked-lm" else _next(rows))
    layers = len(model.anatomy.predicts.layers) + 1
    scores = np.zeros((len(rows.ids), layers))
    lengths = np.array([len(each.ids) for each in blanks], dtype=np.int64)
    with current_display().progress(f"Sentences through the lens of {model.name}", len(blanks), "rows") as progress:
        for batch in _batches(model, blanks, lengths, tokens_per_batch):
            chosen = [blanks[index] for index in batch]
            _add(model, chosen, scores)
            progress.advance(len(chosen))
    return scores


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Blank:
    """An input row, and the tokens that the model is to predict in it."""

    sentence: int
    ids: np.ndarray
    places: np.ndarray  # positions whose states predict
    targets: np.ndarray


def _next(rows: ScoredRows) -> Iterator[_Blank]:
    for sentence, (ids, scored) in enumerate(zip(rows.ids, rows.scored, strict=True)):
        places = np.flatnonzero(scored[1:])
        if len(places):
            yield _Blank(sentence=sentence, ids=ids, places=places, targets=ids[places + 1])


def _masked(model: Model, rows: ScoredRows) -> Iterator[_Blank]:
    mask = model.require_tokenizer().mask_token_id
    if mask is None:
        raise UserError(f"The tokenizer of {model.name} has no mask token, so no token can be predicted alone.")
    for sentence, (ids, scored) in enumerate(zip(rows.ids, rows.scored, strict=True)):
        for place in np.flatnonzero(scored):
            masked = ids.copy()
            masked[place] = mask
            yield _Blank(sentence=sentence, ids=masked, places=np.array([place]), targets=ids[[place]])


def _batches(model: Model, blanks: Sequence[_Blank], lengths: np.ndarray, budget: int) -> Iterator[np.ndarray]:
    """Batches of similar length, or of equal length if padding changes the result, whose logits fit in memory."""
    vocabulary = int(model.module.get_input_embeddings().weight.shape[0])  # type: ignore[union-attr, union-attr]
    predictions = max(1, _LOGIT_BYTES // (4 * vocabulary))
    per_row = max((len(each.places) for each in blanks), default=1)
    for batch in length_batches(lengths, budget, max_sentences=max(1, predictions // per_row)):
        if model.pads:
            yield batch
        else:
            yield from np.split(batch, np.flatnonzero(np.diff(lengths[batch])) + 1)


def _add(model: Model, chosen: Sequence[_Blank], scores: np.ndarray) -> None:
    ids, mask = pad_rows([each.ids.tolist() for each in chosen], model.pad_token_id)
    positions = torch.zeros_like(ids, dtype=torch.bool)
    for row, each in enumerate(chosen):
        positions[row, torch.from_numpy(each.places)] = True
    targets = torch.from_numpy(np.concatenate([each.targets for each in chosen])).to(model.device)
    sentences = np.concatenate([np.full(len(each.places), each.sentence) for each in chosen])
    for reading in logit_lens(model, ids, mask, positions=positions):
        logits = reading.logits.float()
        found = logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(1)
        np.add.at(scores[:, reading.layer], sentences, found.double().cpu().numpy())
