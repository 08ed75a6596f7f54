"""A model's predictions and losses, token by token, computed once for all measures that need them."""

# B sentence, T token, N predicted token, V vocabulary

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.flow import NO_LABEL, Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import UserError
from infoflow.heads import ScoredBatch, SentenceScorer, no_loss
from infoflow.models import Model, start_token_id

from ._ngrams import NO_TOKEN, NgramModel

Direction = Literal["before", "after"]  # whether a token is predicted from the tokens before or after it

_HELD = 6  # count models: checkpoints of one training need the same few
_MODELS: dict[Hashable, NgramModel] = {}


def counted_ngrams(reader: Reader, order: int, size: int, direction: Direction = "before") -> NgramModel:
    """Counts of `Reader.counted` for the input of the predicting stack; special tokens count only as preceding tokens.

    Exactly the tokens that the model predicts are counted as next tokens: a causal LM and a decoder also predict the
    end of the sentence, a masked LM predicts no special token. Corpus and tokenizer, and so the counts, are the same
    for every checkpoint.
    """
    model, stack = reader.model, reader.model.anatomy.predicts.name
    text = reader.counted
    digest = text.digest
    key = (digest, reader.tokenizer_digest(stack), stack, model.task, _start(reader), order, size, direction)
    if key not in _MODELS:
        while len(_MODELS) >= _HELD:
            del _MODELS[next(iter(_MODELS))]
        _MODELS[key] = _counted(reader, order, size, direction)
    return _MODELS[key]


def _counted(reader: Reader, order: int, size: int, direction: Direction) -> NgramModel:
    rows = reader.counted_rows(reader.model.anatomy.predicts.name)
    tokens, special = np.asarray(rows.flat_ids), np.asarray(rows.flat_special)
    offsets, start = np.asarray(rows.offsets), _start(reader)
    if reader.model.task == "masked-lm":
        counted = ~special
    else:
        counted = np.ones(len(tokens), dtype=bool)
        begins = offsets[:-1][np.diff(offsets) > 0]
        counted[begins] = ~special[begins]  # the first token of a sentence is never predicted
        if start is not None and len(begins) and bool((tokens[begins] == start).all()):
            start = None
    if direction == "after":
        tokens, counted, offsets = tokens[::-1], counted[::-1], len(tokens) - offsets[::-1]
    return NgramModel(tokens, offsets, size, order, counted, start)


def _start(reader: Reader) -> int | None:
    return start_token_id(reader.model) if reader.model.task == "seq2seq" else None


# A model's predictions, token by token: log-probabilities with the context of each predicted token.

_CHUNK = 1 << 21  # log-probabilities in float64 held at a time


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScoredTokens:
    """Predicted tokens of one batch, sentence by sentence."""

    log_chances: Float[Tensor, "N V"]  # float32
    labels: Int[np.ndarray, " N"]
    positions: Int[np.ndarray, " N"]  # position of the predicted token among its sentence's ordinary tokens, from 1
    before: Int[np.ndarray, "N back"]  # visible tokens before it, nearest first; −1: none, or not visible
    after: Int[np.ndarray, " N"]  # the visible token after it (masked LM)
    sentences: Int[np.ndarray, " N"]  # row of the sentence in the batch
    blocks: Int[np.ndarray, " N"]

    @property
    def losses(self) -> Float[np.ndarray, " N"]:
        labels = torch.from_numpy(self.labels).to(self.log_chances.device)
        return -self.log_chances.gather(1, labels[:, None])[:, 0].double().cpu().numpy()

    def chunks(self) -> Iterator[slice]:
        """Parts small enough to hold their log-probabilities in float64."""
        step = max(1, _CHUNK // self.log_chances.shape[1])
        for start in range(0, len(self.labels), step):
            yield slice(start, start + step)


def scored_tokens(reader: Reader, options: PassOptions, sentences: int | None, back: int) -> Iterator[ScoredTokens]:
    """Predictions on `sentences` sentences, chosen by a hash of their text, with `back` tokens before each.

    A masked LM reads text corrupted as in its training, with the same noise at every checkpoint.
    """
    scorer = SentenceScorer(reader)
    for batch in scorer.batches(scorer.choose(sentences, "over-training"), options.tokens_per_batch):
        yield predicted(scorer, batch, back)


def predicted(scorer: SentenceScorer, batch: ScoredBatch, back: int) -> ScoredTokens:
    with torch.inference_mode():
        logits = scorer.logits(batch)
        logs = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
    stream = batch.padded.streams[scorer.model.anatomy.predicts.name]
    labels = batch.labels.cpu().numpy()
    inputs, valid = stream.input_ids.cpu().numpy(), stream.valid.cpu().numpy()
    rows, steps = np.nonzero(labels != NO_LABEL)
    ordinary = np.cumsum(valid, axis=1)
    if scorer.model.task == "masked-lm":
        visible = np.where((labels == NO_LABEL) & stream.real.cpu().numpy(), inputs, NO_TOKEN)
        positions, last = 1 + ordinary[rows, steps] - valid[rows, steps], steps - 1
    else:
        visible, positions, last = inputs, 1 + ordinary[rows, steps], steps
    return ScoredTokens(
        log_chances=logs,
        labels=labels[rows, steps],
        positions=positions,
        before=_at(visible, rows[:, None], last[:, None] - np.arange(back)),
        after=_at(visible, rows, steps + 1),
        sentences=rows,
        blocks=batch.padded.blocks.numpy()[rows],
    )


def _at(tokens: np.ndarray, rows: np.ndarray, steps: np.ndarray) -> np.ndarray:
    inside = (steps >= 0) & (steps < tokens.shape[1])
    return np.where(inside, tokens[rows, np.clip(steps, 0, tokens.shape[1] - 1)], NO_TOKEN)


# The loss of every predicted token of some sentences, and its position: cached for all measures that need it.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TokenLosses:
    """Predicted tokens of the chosen sentences."""

    losses: Float[np.ndarray, " N"]  # nats
    unigram: Float[np.ndarray, " N"]  # nats, of the same tokens by their frequency in the counted corpus
    labels: Int[np.ndarray, " N"]
    positions: Int[np.ndarray, " N"]  # position among the sentence's ordinary tokens, from 1
    lengths: Int[np.ndarray, " N"]  # the last predicted position of the sentence
    blocks: Int[np.ndarray, " N"]
    types: int  # number of types that the model can predict


_TOKEN_LOSSES_HELD: WeakKeyDictionary[Reader, dict[Any, TokenLosses]] = WeakKeyDictionary()
_KINDS = {"losses": np.float64, "unigram": np.float64}


def token_losses(reader: Reader, options: PassOptions, sentences: int | None) -> TokenLosses:
    """Losses on `sentences` sentences, chosen by a hash of their text.

    The model runs once for all measures of a reader.
    """
    held = _TOKEN_LOSSES_HELD.setdefault(reader, {})
    key = (sentences, options)
    if key not in held:
        for _ in scored_and_kept(reader, options, sentences, back=0):
            pass
    return held[key]


def scored_and_kept(reader: Reader, options: PassOptions, sentences: int | None, back: int) -> Iterator[ScoredTokens]:
    """`scored_tokens`, whose losses are available in `token_losses` after all batches."""
    parts = list[TokenLosses]()
    for batch in scored_tokens(reader, options, sentences, back):
        parts.append(_losses(reader, batch))
        yield batch
    _TOKEN_LOSSES_HELD.setdefault(reader, {})[sentences, options] = _joined(parts)


def _losses(reader: Reader, batch: ScoredTokens) -> TokenLosses:
    counts = counted_ngrams(reader, 1, batch.log_chances.shape[1])
    last = np.zeros(int(batch.sentences.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(last, batch.sentences, batch.positions)
    return TokenLosses(
        losses=batch.losses,
        unigram=-np.log(counts.unigram[batch.labels]),
        labels=batch.labels,
        positions=batch.positions,
        lengths=last[batch.sentences],
        blocks=batch.blocks,
        types=batch.log_chances.shape[1],
    )


def _joined(parts: list[TokenLosses]) -> TokenLosses:
    joined = {}
    for name in (field.name for field in fields(TokenLosses) if field.name != "types"):
        empty = np.empty(0, dtype=_KINDS.get(name, np.int64))
        joined[name] = np.concatenate([empty, *(getattr(each, name) for each in parts)])
    return TokenLosses(**joined, types=parts[0].types if parts else 0)


# What all measures of single tokens' losses share: the sentences, one pass of the model, models without a loss.

SENTENCES = 2000


class AbstractLossMeasure(Intervention):
    """A measure whose `rows` computes its table from the losses of predicted tokens.

    Args:
        sentences: At most this many, chosen by a hash of their text: the same at every checkpoint.
    """

    def __init__(self, sentences: int | None = SENTENCES) -> None:
        self.sentences = checked_sentences(sentences)

    def refusal(self, model: Model) -> str | None:
        return no_loss(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        found = token_losses(reader, options, self.sentences)
        if not len(found.losses):
            raise NothingToRead(f"no sentence of {reader.corpus.name} has a token to predict")
        return pd.DataFrame(list(self.rows(reader, found)), columns=self.table.column_names)

    @abstractmethod
    def rows(self, reader: Reader, found: TokenLosses) -> Iterable[dict[str, Any]]:
        """Rows of the table; there is at least one predicted token."""


def checked_sentences(sentences: int | None) -> int | None:
    """A number of sentences, at least one, or None for all."""
    if sentences is not None and sentences < 1:
        raise UserError(f"sentences must be at least 1, or None for all. Got {sentences}.")
    return sentences
