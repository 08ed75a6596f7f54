"""The likelihood of a sentence in each layer of a model: log-probabilities through the logit lens."""

# S sentence, L+1 states, T token

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64

from infoflow.corpus import Corpus, length_batches
from infoflow.foundation import UserError, current_display
from infoflow.models import Model, pad_rows
from infoflow.representations import logit_lens

from ._front_token import front_token

_LOGIT_BYTES = 1 << 27  # logits of one layer held at a time


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScoredRows:
    """Sentences as token ids, with the tokens to be scored."""

    ids: Sequence[np.ndarray]
    scored: Sequence[np.ndarray]  # bool, aligned with ids
    cut: np.ndarray  # (S,) bool: longer than the model's limit


def token_rows(model: Model, sentences: Sequence[str], max_length: int) -> ScoredRows:
    """Sentences as token ids for a model; every token that is not special is scored.

    If a causal LM's tokenizer puts no token in front, `front_token` is added, so that the first token of a sentence has
    a probability too.
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
    asked = list(_masked(model, rows) if model.task == "masked-lm" else _next(rows))
    layers = len(model.anatomy.predicts.layers) + 1
    scores = np.zeros((len(rows.ids), layers))
    lengths = np.array([len(each.ids) for each in asked], dtype=np.int64)
    with current_display().progress(f"Sentences through the lens of {model.name}", len(asked), "rows") as progress:
        for batch in _batches(model, asked, lengths, tokens_per_batch):
            chosen = [asked[index] for index in batch]
            _add(model, chosen, scores)
            progress.advance(len(chosen))
    return scores


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Asked:
    """An input row, and the tokens that the model is to predict in it."""

    sentence: int
    ids: np.ndarray
    places: np.ndarray  # positions whose states predict
    targets: np.ndarray


def _next(rows: ScoredRows) -> Iterator[_Asked]:
    for sentence, (ids, scored) in enumerate(zip(rows.ids, rows.scored, strict=True)):
        places = np.flatnonzero(scored[1:])
        if len(places):
            yield _Asked(sentence=sentence, ids=ids, places=places, targets=ids[places + 1])


def _masked(model: Model, rows: ScoredRows) -> Iterator[_Asked]:
    mask = model.require_tokenizer().mask_token_id
    if mask is None:
        raise UserError(f"The tokenizer of {model.name} has no mask token, so no token can be predicted alone.")
    for sentence, (ids, scored) in enumerate(zip(rows.ids, rows.scored, strict=True)):
        for place in np.flatnonzero(scored):
            masked = ids.copy()
            masked[place] = mask
            yield _Asked(sentence=sentence, ids=masked, places=np.array([place]), targets=ids[[place]])


def _batches(model: Model, asked: Sequence[_Asked], lengths: np.ndarray, budget: int) -> Iterator[np.ndarray]:
    """Batches of rows of similar length, or of equal length if padding changes the result; logits are bounded."""
    vocabulary = int(model.module.get_input_embeddings().weight.shape[0])  # type: ignore[union-attr, union-attr]
    predictions = max(1, _LOGIT_BYTES // (4 * vocabulary))
    per_row = max((len(each.places) for each in asked), default=1)
    for batch in length_batches(lengths, budget, max_sentences=max(1, predictions // per_row)):
        if model.pads:
            yield batch
        else:
            yield from np.split(batch, np.flatnonzero(np.diff(lengths[batch])) + 1)


def _add(model: Model, chosen: Sequence[_Asked], scores: np.ndarray) -> None:
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
