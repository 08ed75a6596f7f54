"""BERTScore from the states of any layer of any model; one pass computes all layers."""

# P pair, T token, D width, C token of a candidate, R token of a reference

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.corpus import length_batches
from infoflow.foundation import UserError, block_of, current_display, hash64, stream
from infoflow.models import Model, model_inputs, pad_rows, start_token_id, tap

SCORES = ("precision", "recall", "f")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BertScores:
    """Scores of pairs of sentences in one or all layers."""

    layers: tuple[int, ...]  # states 0..L; 0 = embeddings
    precision: Float[np.ndarray, "layer pair"]
    recall: Float[np.ndarray, "layer pair"]
    f: Float[np.ndarray, "layer pair"]
    blocks: Int[np.ndarray, " pair"]  # bootstrap block of each pair, from its text


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BertBaseline:
    """Scores of random sentence pairs, which define the zero of the rescaled scores, layer by layer."""

    model: str  # digest of the model
    idf: bool
    pairs: int
    layers: tuple[int, ...]
    precision: Float[np.ndarray, " layer"]
    recall: Float[np.ndarray, " layer"]
    f: Float[np.ndarray, " layer"]


def bert_score(
    model: Model,
    candidates: Sequence[str],
    references: Sequence[str],
    *,
    layer: int | None = None,
    idf: bool = False,
    rescale: BertBaseline | None = None,
    tokens_per_batch: int = 4096,
) -> BertScores:
    r"""Precision, recall and F of each candidate against its reference, from the states of one or all layers.

    See `greedy_match` for the formula. Weights are 1, or with `idf` those of `inverse_document_frequency` over
    `references`; [CLS], [SEP] and other special tokens have weight 0. With `rescale` every score s becomes (s − b) / (1
    − b), where b is this model's `bert_baseline`. For an encoder–decoder the encoder is used. A sentence without tokens
    scores 0, and sentences longer than the model's limit are truncated; both give a warning.

    Args:
        model: Any model with a tokenizer, with or without a head.
        candidates: Sentences to score.
        references: One sentence for each candidate.
        layer: State 0..L. Default: all. The authors chose one by correlation with human scores (`pearson_by_layer`).
        idf: Give rare tokens more weight.
        rescale: From `bert_baseline` with the same `idf`.
        tokens_per_batch: Maximum number of tokens per batch, padding included.

    Raises:
        UserError: The lists differ in length or are empty, the model has no such layer, or the baseline is from another
            model.

    Source: [@zhang2020bertscore].
    """
    _check(model, candidates, references, layer, idf, rescale)
    rows = _Rows(model, candidates, references, idf)
    num_states = len(model.anatomy.reads.layers) + 1
    layers = tuple(range(num_states)) if layer is None else (layer,)
    found = {name: np.zeros((len(layers), len(candidates))) for name in SCORES}
    with current_display().progress(f"Scoring pairs with {model.name}", len(candidates)) as progress:
        for index in rows.batches(tokens_per_batch):
            for at, match in enumerate(rows.matches(index, layers)):
                for name in SCORES:
                    found[name][at, index] = getattr(match, name).double().cpu().numpy()
            progress.advance(len(index))
    if not all(np.isfinite(values).all() for values in found.values()):
        raise UserError(f"{model.name} computes NaN or infinite states. Check its weights and precision.")
    if rescale is not None:
        found = {name: _rescaled(values, rescale, name, layers) for name, values in found.items()}
    ids = [hash64("pair", *pair) for pair in zip(candidates, references, strict=True)]
    return BertScores(layers=layers, blocks=block_of(np.array(ids, dtype=np.uint64)), **found)


def bert_baseline(
    model: Model,
    sentences: Sequence[str],
    *,
    pairs: int = 1000,
    idf: bool = False,
    seed: int = 0,
    tokens_per_batch: int = 4096,
) -> BertBaseline:
    """The mean scores of random pairs of these sentences at every layer: the b in (s − b) / (1 − b).

    The authors use a million pairs of web text; the mean over a thousand has a standard error below .003.

    Source: [@zhang2020bertscore], the authors' code.
    """
    distinct = list(dict.fromkeys(sentences))
    if len(distinct) < 2 or pairs < 1:
        raise UserError(
            f"A baseline needs pairs of different sentences. Got {len(distinct)} different sentences and {pairs} pairs."
        )
    draw = stream("bert-baseline", seed)
    first = draw.integers(len(distinct), size=pairs)
    second = (first + draw.integers(1, len(distinct), size=pairs)) % len(distinct)
    texts = ([distinct[i] for i in first], [distinct[i] for i in second])
    scores = bert_score(model, *texts, idf=idf, tokens_per_batch=tokens_per_batch)
    means = {name: getattr(scores, name).mean(axis=1) for name in SCORES}
    return BertBaseline(model=model.digest, idf=idf, pairs=pairs, layers=scores.layers, **means)


def _check(
    model: Model,
    candidates: Sequence[str],
    references: Sequence[str],
    layer: int | None,
    idf: bool,
    rescale: BertBaseline | None,
) -> None:
    if isinstance(candidates, str) or isinstance(references, str):
        raise UserError("candidates and references are lists of sentences. Got text: write [text].")
    if len(candidates) != len(references) or not len(candidates):
        raise UserError(
            f"Each candidate needs one reference. Got {len(candidates)} candidates and {len(references)} references."
        )
    check_layer(model, layer)
    if rescale is not None and (rescale.model != model.digest or rescale.idf != idf):
        raise UserError(
            f"The baseline was computed for another model than {model.name}, or for other weights of tokens (idf). "
            "Compute it for this one: bert_baseline(model, sentences, idf=...)."
        )


def check_layer(model: Model, layer: int | None) -> None:
    """Raise a UserError unless the model has that state; None means all states."""
    top = len(model.anatomy.reads.layers)
    if layer is not None and not 0 <= layer <= top:
        raise UserError(f"layer must lie in 0..{top} for {model.name}; 0 = embeddings. Got {layer}.")


def _rescaled(values: np.ndarray, baseline: BertBaseline, name: str, layers: Sequence[int]) -> np.ndarray:
    b = getattr(baseline, name)[[baseline.layers.index(layer) for layer in layers], None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b < 1, (values - b) / (1 - b), np.nan)


class Match(NamedTuple):
    """Scores of pairs."""

    precision: Float[Tensor, " pair"]
    recall: Float[Tensor, " pair"]
    f: Float[Tensor, " pair"]


class _Rows:
    """Candidates and references as token ids and weights."""

    def __init__(self, model: Model, candidates: Sequence[str], references: Sequence[str], idf: bool) -> None:
        self._model = model
        sides = [_encoded(model, texts) for texts in (candidates, references)]
        special = _framing(model)
        frequency = inverse_document_frequency(sides[1]) if idf else None
        weighed = [[token_weights(row, special, frequency) for row in side] for side in sides]
        self._sides, self._weights = sides, [[weights for weights, _ in side] for side in weighed]
        _tell(
            [weights for side in self._weights for weights in side], sum(flat for side in weighed for _, flat in side)
        )

    def batches(self, tokens: int) -> list[np.ndarray]:
        """Batches of pairs of similar length; one pair per batch if padding changes what the model computes."""
        lengths = np.array([max(len(a), len(b)) for a, b in zip(*self._sides, strict=True)])
        return length_batches(lengths, tokens, None if self._model.pads else 1)

    def matches(self, index: np.ndarray, layers: Sequence[int]) -> Iterator[Match]:
        """The scores of these pairs, layer by layer."""
        (states, real, weights), (other, other_real, other_weights) = (self._read(side, index) for side in (0, 1))
        for layer in layers:
            yield greedy_match(states[layer], other[layer], real, other_real, weights, other_weights)

    def _read(
        self, side: int, index: np.ndarray
    ) -> tuple[list[Tensor], Bool[Tensor, "pair token"], Float[Tensor, "pair token"]]:
        model = self._model
        rows, weights = [self._sides[side][i] for i in index], [self._weights[side][i] for i in index]
        # A model cannot read an empty row, so a sentence without tokens gets one token of weight zero.
        ids, mask = pad_rows([row or [model.pad_token_id] for row in rows], model.pad_token_id)
        started = None
        if len(model.anatomy.stacks) > 1:
            started = torch.full((len(rows), 1), start_token_id(model))
        with torch.no_grad(), tap(model, hidden=True) as seen:
            model.module(**model_inputs(model, ids, mask, started))
        weight = torch.zeros(ids.shape)
        for at, row in enumerate(weights):
            weight[at, : len(row)] = torch.tensor(row)
        states = list(seen.hidden[model.anatomy.reads.name])
        return states, (mask != 0).to(model.device), weight.to(model.device)


def _encoded(model: Model, texts: Sequence[str]) -> list[list[int]]:
    tokenizer, longest = model.require_tokenizer(), model.max_tokens
    rows = tokenizer(list(texts))["input_ids"]
    if longest is None or all(len(row) <= longest for row in rows):
        return rows
    current_display().warn(
        f"{sum(len(row) > longest for row in rows):,} sentences are longer than the {longest} tokens that {model.name} "
        "takes, and were cut."
    )
    return tokenizer(list(texts), truncation=True, max_length=longest)["input_ids"]


def _framing(model: Model) -> frozenset[int]:
    """The special tokens around a text, which have weight 0."""
    tokenizer = model.require_tokenizer()
    ids = (tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    return frozenset(token for token in ids if token is not None)


def _tell(weights: Sequence[Sequence[float]], flat: int) -> None:
    if empty := sum(not any(row) for row in weights):
        current_display().warn(f"{empty:,} sentences have no token to compare: their pairs score 0.")
    if flat:
        current_display().warn(
            f"{flat:,} sentences have only tokens that every reference has, whose idf is 0. Equal weights are used for "
            "them instead."
        )


def greedy_match(
    candidate: Float[Tensor, "pair candidate width"],
    reference: Float[Tensor, "pair reference width"],
    candidate_real: Bool[Tensor, "pair candidate"],
    reference_real: Bool[Tensor, "pair reference"],
    candidate_weight: Float[Tensor, "pair candidate"],
    reference_weight: Float[Tensor, "pair reference"],
) -> Match:
    r"""Precision, recall and F of BERTScore.

    $$ R = \frac{\sum_i w(x_i) \max_j \cos(x_i, y_j)}{\sum_i w(x_i)}, \qquad
       P = \frac{\sum_j w(y_j) \max_i \cos(x_i, y_j)}{\sum_j w(y_j)}, \qquad F = \frac{2 P R}{P + R} $$

    with x the reference's tokens and y the candidate's. As in the authors' code, a token may match [CLS] and [SEP],
    although these have weight 0 themselves. Padding is never matched. (In the authors' code it has a cosine of 0, which
    is the maximum if all others are negative.) A sentence of zero weight gets 0, and an F of 0/0 is 0.

    Source: [@zhang2020bertscore], the authors' code.

    >>> one = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> all_of, weight = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2)
    >>> greedy_match(one, one.flip(1), all_of, all_of, weight, weight).f
    tensor([1.])
    """
    cosine_PCR = _unit(candidate) @ _unit(reference).mT
    pairs_PCR = candidate_real.unsqueeze(2) & reference_real.unsqueeze(1)
    cosine_PCR = cosine_PCR.masked_fill(~pairs_PCR, -torch.inf)
    precision = _weighted(cosine_PCR.amax(2), candidate_weight * candidate_real)
    recall = _weighted(cosine_PCR.amax(1), reference_weight * reference_real)
    total = precision + recall
    f = torch.where(total == 0, 0.0, 2 * precision * recall / total)
    return Match(precision=precision, recall=recall, f=f)


def _unit(states: Tensor) -> Tensor:
    return torch.nn.functional.normalize(states.float(), dim=-1)


def _weighted(best: Tensor, weight: Tensor) -> Tensor:
    total = weight.sum(1)
    counted = torch.where(weight > 0, best * weight, 0.0).sum(1)  # 0 · −inf is NaN
    return torch.where(total > 0, counted / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)


def inverse_document_frequency(rows: Sequence[Sequence[int]]) -> tuple[dict[int, float], float]:
    r"""The weight of each token of these sentences, and the weight of any other token, in nats.

    $$ \mathrm{idf}(w) = \ln \frac{M + 1}{\mathrm{df}(w) + 1} $$

    over M sentences, df of which contain the token.

    Source: [@zhang2020bertscore], the authors' code.
    """
    counts = Counter(token for row in rows for token in set(row))
    num = len(rows) + 1
    return {token: math.log(num / (count + 1)) for token, count in counts.items()}, math.log(num)


def token_weights(
    row: Sequence[int], special: frozenset[int], idf: tuple[Mapping[int, float], float] | None
) -> tuple[list[float], bool]:
    """Token weights of a sentence (special tokens 0), and whether all idf were zero, so that 1 was used instead.

    All idf are zero if every reference has every token; the authors' code then divides by zero and gives NaN.
    """
    ones = [0.0 if token in special else 1.0 for token in row]
    if idf is None or not any(ones):
        return ones, False
    known, unseen = idf
    weights = [one * known.get(token, unseen) for one, token in zip(ones, row, strict=True)]
    return (weights, False) if any(weights) else (ones, True)
