"""Relevance of heads and input tokens to what a model predicts: for a sentence, and over a corpus."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool
from torch import Tensor

from infoflow.flow import NO_LABEL, Intervention, PaddedBatch, PassOptions, Reader, Stream
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, current_display, hash64_array
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from .._head_measure import HEAD, HEAD_KEYS, KIND, LAYER, STACK
from ._methods import ATTENTION_ONLY, METHODS
from ._request import Place, Request, SentencePredictions, SentenceRelevance, sentences
from ._rule import Rule

_NORMALISE = ("signed", "abs", None)
MOST_EXPLAINED = 64
"""Most predictions of one text that `Relevance` explains."""


def relevance(
    model: Model,
    batch: Mapping[str, Any] | str,
    method: str = "voita",
    position: int | None = None,
    target: int | None = None,
    normalise: str | None = "signed",
    **options: Any,
) -> pd.DataFrame:
    r"""How much each attention head matters for what the model predicts.

    $R_h$ is the relevance at the input of the output projection, the only point where heads are separable, summed over
    tokens and dimensions. It is normalised over the heads of one layer and kind for each prediction, then averaged over
    predictions:

    | `normalise` | value | |
    |---|---|---|
    | `"signed"` | $R_h / \sum_{h'} R_{h'}$ | as published; can be outside [0, 1], and is unstable if signs cancel |
    | `"abs"` | $|R_h| / \sum_{h'} |R_{h'}|$ | in [0, 1] |
    | `None` | $R_h$ | |

    | `method` | relevance of a head | options |
    |---|---|---|
    | `"voita"` | layer-wise relevance propagation from 1, not from the logit | those of `Rule` |
    | `"gradient-x-input"` | head output times gradient: the derivative with respect to the head's gate | |
    | `"cp-lrp"` | as `"gradient-x-input"`, with constant attention weights and norm deviations [@ali2022] | |
    | `"attn-lrp"` | as `"gradient-x-input"`, with the rules of AttnLRP [@achtibat2024] | |
    | `"chefer"` | positive part of attention times gradient [@chefer2021b] | |
    | `"alti"` | the head's contribution to its attention's output, followed through higher layers [@ferrando2022] | |
    | `"rollout"` | the part that a head moves between tokens, followed through higher layers [@abnar2020] | |
    | `"logit-attribution"` | the head's direct contribution to the logit (pre-norm models) | |
    | `"flow"` | `attention_flow`: only for `token_relevance` | |

    According to lxt's documentation, LRP methods are covered by a patent that allows personal and scientific use.

    With `bias="share"` (default, as published) a bias is shared equally among all inputs, so even a head whose output
    projection is zero receives relevance: do not read a small relevance as a contribution. With `"absorb"` such a head
    gets 0.

    Args:
        batch: Arguments of the Hugging Face model, or one sentence as text. An encoder-decoder model needs
            `decoder_input_ids` or `labels`; padding needs `attention_mask`.
        position: Index along the logits (decoder step, or token); negative numbers count from the end. Sentences with
            padding at this position are left out. By default all predicted positions count: decoder steps, tokens of a
            causal LM, labelled tokens of a masked LM (without `labels` all tokens).
        target: Token id whose logit is explained; default: the top one at each position.
        normalise: See above.

    Returns:
        Columns stack, kind, layer, head, relevance. Predictions for which a layer's heads sum to 0 are left out of that
        layer's average. `frame.attrs["absorbed_share"]` is the share absorbed by biases with `bias="absorb"`.

    Raises:
        UserError: Unknown method or option, an input is missing, or the method has no rule for this family.
    """
    check_normalise(normalise)
    results = [found for _, found in each_sentence(model, batch, method, position, target, options)]
    if not results[0].heads:
        raise UserError(f'method="{method}" has no relevance of heads, only of tokens: use token_relevance.')
    rows = []
    for one in model.anatomy.attentions():
        place = one.stack, one.kind, one.layer
        if place in results[0].heads:
            values = np.concatenate([normalised(found.heads[place], normalise) for found in results])
            rows += [(*place, head, value) for head, value in enumerate(_mean(values).tolist())]
    frame = pd.DataFrame(rows, columns=[*HEAD_KEYS, "relevance"])
    frame.attrs["absorbed_share"] = float(np.mean([one.absorbed for one in results]))
    return frame


def token_relevance(
    model: Model,
    batch: Mapping[str, Any] | str,
    method: str = "voita",
    position: int | None = None,
    target: int | None = None,
    normalise: str | None = None,
    **options: Any,
) -> pd.DataFrame:
    r"""How much each input token matters for each of the model's predictions.

    This is the relevance at state 0 (the embeddings with their positions), summed over dimensions. For `"voita"` values
    are absolute, and those of source and target together sum to 1, minus a small deficit. For the gradient methods they
    are signed, and sum to the logit if the method conserves it. For `"alti"` and `"rollout"` they are shares of the
    rollout. A decoder's tokens are those that it reads: target token t − 1 is read at step t.

    Arguments and errors are those of `relevance`; `normalise` divides by the (absolute) sum over all tokens of both
    stacks.

    Returns:
        Columns sentence, position (of the prediction), stack, token (index of the token read), relevance.
    """
    check_normalise(normalise)
    frames = []
    for predictions, found in each_sentence(model, batch, method, position, target, options):
        if not found.tokens:
            raise UserError(f'method="{method}" has no relevance of tokens, only of heads.')
        values = np.concatenate([part.double().cpu().numpy() for part in found.tokens.values()], axis=1)
        if normalise is not None:
            values = np.abs(values) if normalise == "abs" else values
            values = values / values.sum(1, keepdims=True)
        lengths = [part.shape[1] for part in found.tokens.values()]
        stacks = np.repeat(list(found.tokens), lengths)
        tokens = np.concatenate([np.arange(length) for length in lengths])
        for place, row in zip(predictions.positions.tolist(), values, strict=True):
            keys = {"sentence": predictions.sentence, "position": place, STACK: stacks, "token": tokens}
            frames.append(pd.DataFrame(keys | {"relevance": row}))
    return pd.concat(frames, ignore_index=True)


def sentence_relevance(
    model: Model,
    batch: Mapping[str, Any] | str,
    method: str = "voita",
    position: int | None = None,
    target: int | None = None,
    **options: Any,
) -> SentenceRelevance:
    """Relevance of both heads and tokens from one run, for a batch of one sentence, not normalised.

    Arguments and errors are those of `relevance`.
    """
    ((_, found),) = each_sentence(model, batch, method, position, target, options)
    return found


def each_sentence(
    model: Model,
    batch: Mapping[str, Any] | str,
    method: str,
    position: int | Tensor | None,
    target: int | None,
    options: dict[str, Any],
) -> Iterator[tuple[SentencePredictions, SentenceRelevance]]:
    """Every sentence of a batch with a prediction to explain, and the relevance for each prediction.

    `position` may be a mask of predictions, Bool (sentence, token).
    """
    if method not in METHODS:
        raise UserError(f"method must be one of {', '.join(METHODS)}. Got {method}.")
    chosen = sentences(model, batch, position)
    if not chosen:
        raise UserError(
            "The batch has no position whose prediction counts: every label is -100, or every token is padding."
        )
    if reason := misses_paths(model, method):
        raise UserError(f'method="{method}" does not apply to {model.name}: {reason}. Use a gradient method instead.')
    run = METHODS[method](model, options)
    for predictions in chosen:
        yield predictions, run(Request(model=model, predictions=predictions, target=target))


def misses_paths(model: Model, method: str) -> str | None:
    """Why a method that follows only attention between layers does not apply to `model`, or None."""
    return model.anatomy.outside_attention() if method in ATTENTION_ONLY else None


def check_normalise(normalise: str | None) -> None:
    """Raise a UserError for an unknown normalisation."""
    if normalise not in _NORMALISE:
        raise UserError(f'normalise must be "signed", "abs" or None. Got {normalise}.')


def normalised(heads: Tensor, normalise: str | None) -> np.ndarray:
    """Relevance (seed, head) of a layer's heads, normalised over these heads; NaN where the divisor is 0."""
    values = heads.double().cpu().numpy()
    if normalise is None:
        return values
    values = np.abs(values) if normalise == "abs" else values
    total = values.sum(1, keepdims=True)
    return np.divide(values, total, out=np.full_like(values, np.nan), where=total != 0)


def _mean(values: np.ndarray) -> np.ndarray:
    kept = values[~np.isnan(values).any(1)]
    return kept.mean(0) if len(kept) else np.full(values.shape[1], np.nan)


HEAD_RELEVANCE = TableSchema(
    name="head_relevance",
    version=2,
    description="A head's share of what its layer's heads of one kind contribute to the model's predictions, "
    "averaged over predictions.",
    columns=(
        *HEAD_KEYS,
        Column("method", "string", "", "see heads.relevance"),
        Column("normalise", "string", "", "signed or abs: normalisation over the heads of a layer"),
        *estimate_columns(
            "share of the layer",
            "mean relevance",
            "1 / number of heads: the share if no head matters more than another",
            "number of predictions, without those for which the layer's heads sum to 0",
        ),
    ),
)


class Relevance(Intervention):
    r"""`relevance` of every head, averaged over the predictions of some sentences.

    Predictions are a decoder's steps, a causal LM's real tokens, or a masked LM's tokens (without special ones) on
    uncorrupted text. Shares are computed for each prediction and then averaged, as in [@voita2019heads]. An
    encoder–decoder reads the corpus's translations. Intervals resample sentences.

    The cost of a prediction grows with the length of its text. At most 64 predictions of a text are explained, and
    fewer texts are read if they cost more than `sentences` texts of 64 tokens. Shorter texts are not affected.

    Args:
        method: See `relevance`.
        sentences: Maximum number of sentences, chosen by hash; it determines the cost of the measure.
        normalise: `"signed"` or `"abs"`.
        rule: Only for `method="voita"`, as are `softmax` and `bias`.

    Source: [@voita2019heads].
    """

    table: ClassVar[TableSchema] = HEAD_RELEVANCE
    whole_attention: ClassVar[bool] = True
    by_token = True

    def __init__(
        self,
        method: str = "voita",
        sentences: int = 100,
        normalise: str = "signed",
        rule: str = "alphabeta",
        softmax: str = "joint",
        bias: str = "share",
    ) -> None:
        check_normalise(normalise)
        Rule(rule=rule, softmax=softmax, bias=bias)
        if method not in METHODS:
            raise UserError(f"method must be one of {', '.join(METHODS)}. Got {method}.")
        if sentences < 1:
            raise UserError(f"sentences must be at least 1. Got {sentences}.")
        self.method, self.sentences, self.normalise = method, sentences, normalise
        self.rule, self.softmax, self.bias = rule, softmax, bias

    def refusal(self, model: Model) -> str | None:
        if model.task == "encoder":
            return "it has no language-model head, so it predicts nothing"
        return misses_paths(model, self.method)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        try:
            if len(reader.model.anatomy.stacks) > 1 and not reader.has_target:
                raise UserError(reader.no_target)
            sums = self._sums(reader)
        except UserError as error:
            current_display().note(f"{self.name} of {reader.model.name} is skipped: {error}")
            return pd.DataFrame(columns=self.table.column_names)
        places = [(one.stack, one.kind, one.layer) for one in reader.model.anatomy.attentions()]
        rows = [row for place in places if place in sums for row in self._rows(place, sums[place])]
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _sums(self, reader: Reader) -> dict[Place, np.ndarray]:
        """Sums of shares per bootstrap block, by attention: (64, head + 1); the last column counts predictions."""
        chosen = self._choose(reader)
        settings = {"rule": self.rule, "softmax": self.softmax, "bias": self.bias} if self.method == "voita" else {}
        sums: dict[Place, np.ndarray] = {}
        label = f"Relevance of heads in {reader.model.name}"
        with current_display().progress(label, len(chosen), "sentences") as progress:
            for row in chosen:
                padded = reader.padded(np.array([row]))
                batch, explained = _keywords(reader.model, padded.streams), self._explained(reader, padded)
                block = int(block_of(padded.sentence_ids)[0])
                for _, found in each_sentence(reader.model, batch, self.method, explained, None, settings):
                    for place, heads in found.heads.items():
                        _add(sums, place, block, normalised(heads, self.normalise))
                progress.advance(1)
        return sums

    def _choose(self, reader: Reader) -> list[int]:
        """Rows of the texts with the lowest hashes, as many as cost no more than `sentences` texts of 64 tokens."""
        rows = reader.rows
        hashes = hash64_array(("head-relevance", reader.seed), reader.corpus.content_ids[rows])
        ordered = rows[np.argsort(hashes, kind="stable")].tolist()
        chosen = list(islice((row for row in ordered if self._predicts(reader, row)), self.sentences))
        lengths = reader.lengths(np.array(chosen, dtype=np.int64)).astype(np.int64)
        costs = (lengths * np.minimum(lengths, MOST_EXPLAINED)).cumsum()
        return chosen[: max(1, int((costs <= self.sentences * MOST_EXPLAINED**2).sum()))]

    def _predicts(self, reader: Reader, row: int) -> bool:
        """Whether a prediction of a sentence counts; for a masked LM, special tokens are no predictions."""
        sentence = reader.sentence_rows(row, "clean", 0)[reader.source_stack]
        if reader.model.task == "masked-lm":
            return bool((sentence.counted & ~sentence.special).any())
        return reader.counted_share == 1 or bool((sentence.labels != NO_LABEL).any())

    def _explained(self, reader: Reader, padded: PaddedBatch) -> Bool[Tensor, "sentence=1 token"]:
        """The predictions to explain: those that count, at most 64 of a text, chosen by hash."""
        *_, predicting = padded.streams.values()
        if reader.model.task == "masked-lm":
            counted = predicting.valid & predicting.counted
        elif reader.model.task == "causal-lm" and reader.counted_share == 1:
            counted = predicting.real
        else:
            counted = predicting.labels != NO_LABEL
        positions = np.flatnonzero(counted[0].cpu())
        hashes = hash64_array(("head-relevance", reader.seed), padded.sentence_ids, positions)
        chosen = torch.zeros(counted.shape, dtype=torch.bool)
        chosen[0, positions[np.argsort(hashes, kind="stable")[:MOST_EXPLAINED]]] = True
        return chosen

    def _rows(self, place: Place, sums: np.ndarray) -> list[dict[str, Any]]:
        stack, kind, layer = place
        num_heads = sums.shape[1] - 1
        keys = {STACK: stack, KIND: kind, LAYER: layer}
        settings = {"method": self.method, "normalise": self.normalise}
        return [
            {**keys, HEAD: head, **settings, **ratio_estimate(sums[:, head], sums[:, -1], 1 / num_heads)}
            for head in range(num_heads)
        ]


def _add(sums: dict[Place, np.ndarray], place: Place, block: int, shares: np.ndarray) -> None:
    kept = shares[~np.isnan(shares).any(1)]
    held = sums.setdefault(place, np.zeros((NUM_BLOCKS, shares.shape[1] + 1)))
    held[block] += [*kept.sum(0), len(kept)]


def _keywords(model: Model, streams: Mapping[str, Stream]) -> dict[str, torch.Tensor]:
    """One sentence as the model's arguments."""
    source = next(iter(streams.values()))
    batch = {"input_ids": source.input_ids, "attention_mask": source.real.long()}
    if len(model.anatomy.stacks) > 1:
        target = streams["decoder"]
        return batch | {"decoder_input_ids": target.input_ids}
    return batch
