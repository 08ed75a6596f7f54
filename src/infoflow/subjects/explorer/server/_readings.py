"""One forward pass of one sentence, which provides everything on the page, and a cache of such readings."""

# T token, D width, V vocabulary

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, digest
from infoflow.heads import (
    AttentionWatch,
    ReadSentence,
    SentenceAttention,
    lens_rows,
    read_tokens,
    sentence_inputs,
    takes_pairs,
)
from infoflow.models import Model, Readout, readout, tap

from ._request import Change, HttpRequest, changed

_MOST_LOGITS = 1 << 22  # logits kept with a reading; if there are more, they are recomputed from its last states


class ExploredModel:
    """A model that the page shows, with its number there."""

    def __init__(self, number: int, model: Model) -> None:
        self.number, self.model = number, model
        self._read: Readout | None = None
        self._reason = ""

    @property
    def readout(self) -> Readout:
        """The head as a function of a state; computed once."""
        if self._reason:
            raise UserError(self._reason)
        if self._read is None:
            try:
                self._read = readout(self.model)
            except UserError as error:
                self._reason = str(error)
                raise
        return self._read


@dataclass(kw_only=True, slots=True, eq=False)
class SentenceReading:
    """A sentence as read by a model."""

    key: str
    subject: ExploredModel
    change: Change
    seen: SentenceAttention
    states: dict[str, Float[Tensor, "_ _ _"]]
    """States by stack, as (layers and embeddings, tokens, width)."""
    logits: Float[Tensor, "token vocabulary"] | None
    """Logits of the predicting stack; None if the model has no head, or there are too many to keep.

    After `log_shares` they are normalised to log-probabilities.
    """
    normalised: bool = False

    @property
    def sentence(self) -> ReadSentence:
        return self.seen.sentence

    @property
    def inputs(self) -> dict[str, Any]:
        return sentence_inputs(self.subject.model, self.sentence)

    @property
    def log_shares(self) -> Float[Tensor, "token vocabulary"]:
        """Log-probabilities of the predictions, in nats, at every token of the predicting stack.

        Raises:
            UserError: The model has no head.
        """
        if self.logits is not None and self.normalised:
            return self.logits
        found = self.logits
        with torch.no_grad():
            if found is None:
                found = self.subject.readout(self.states[self.subject.model.anatomy.predicts.name][-1])
            shares = found.float().log_softmax(-1)
        if self.logits is not None:
            self.logits, self.normalised = shares, True
        return shares

    @property
    def has_head(self) -> bool:
        return self.subject.model.task != "encoder"

    @property
    def num_bytes(self) -> int:
        """Memory that the reading's arrays use, in bytes."""
        tensors = [*self.states.values(), *([] if self.logits is None else [self.logits])]
        layers = [layer for kind in self.seen.kinds for layer in kind.layers]
        arrays = [array for one in layers for array in (one.weights, one.value_norms, one.query, one.key)]
        return sum(one.nbytes for one in [*tensors, *arrays])


def reading_key(model: Model, sentence: ReadSentence, change: Change, number: int = 0) -> str:
    """The key of a reading, made of the model's number, the token ids and the change."""
    ids = {stack: [(token.id, token.type_id) for token in tokens] for stack, tokens in sentence.tokens.items()}
    parts = [sorted(change.hide), sorted(change.heads), sorted(change.layers), change.mode]
    return digest(
        {"model": number, "name": model.name, "ids": ids, "text": [sentence.text, sentence.pair], "change": parts}
    )


def read(subject: ExploredModel, sentence: ReadSentence, change: Change) -> SentenceReading:
    """Read a sentence in one forward pass: all heads, states and logits."""
    model = subject.model
    change.check(model, sentence)
    watch = AttentionWatch(model, sentence)
    with torch.no_grad(), changed(model, change), tap(model, hidden=True, on_attention=watch) as passed:
        output = model.module(**sentence_inputs(model, sentence))
    logits = None if model.task == "encoder" else token_logits(output)[0]
    return SentenceReading(
        key=reading_key(model, sentence, change, subject.number),
        subject=subject,
        change=change,
        seen=watch.seen(),
        states={stack: torch.stack([state[0] for state in layers]) for stack, layers in passed.hidden.items()},
        logits=logits if logits is not None and logits.numel() <= _MOST_LOGITS else None,
    )


def lens(reading: SentenceReading, positions: Sequence[int] | None) -> dict[str, Any]:
    """What each layer predicts at some positions, see `lens_rows`."""
    subject = reading.subject
    states = reading.states[subject.readout.stack.name]
    return lens_rows(subject.model, subject.readout, states, positions)


def token_logits(output: Any) -> Tensor:
    """Logits of tokens in the output of a model with a head."""
    # Models for pretraining predict sentence order too and name their token logits differently.
    return output.logits if getattr(output, "logits", None) is not None else output.prediction_logits


# A cache of readings: the oldest are dropped and recomputed on demand.


MOST_BYTES = 64 << 20
_MOST_REQUESTS = 2000


class Forgotten(Exception):
    """An unknown key: the page was opened before this explorer was started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Source:
    subject: ExploredModel
    sentence: ReadSentence
    change: Change


class Readings:
    """All readings of an explorer. Not thread-safe."""

    def __init__(self, subjects: Sequence[ExploredModel], longest: int, most_bytes: int = MOST_BYTES) -> None:
        self.subjects, self.longest, self._most_bytes = tuple(subjects), longest, most_bytes
        self._kept: OrderedDict[str, SentenceReading] = OrderedDict()
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self._sentences: OrderedDict[tuple[int, str, str | None, str | None], ReadSentence] = OrderedDict()
        self.computed = 0  # number of passes
        self.seconds = 0.0  # duration of the latest pass

    def subject(self, number: int) -> ExploredModel:
        """A model by its number."""
        if number >= len(self.subjects):
            raise UserError(f"There are {len(self.subjects)} models, counted from 0.")
        return self.subjects[number]

    def of(self, request: HttpRequest) -> SentenceReading:
        """The reading that a request is about; the request names it by a key or by a model and a text.

        Raises:
            UserError: The model cannot read the text.
            Forgotten: The key is unknown.
        """
        if request.key:
            return self.of_key(request.key)
        return self.of_sentence(self.subject(request.model), self._sentence(request), Change())

    def of_key(self, key: str) -> SentenceReading:
        """The reading with this key."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if key not in self._sources:
            raise Forgotten
        source = self._sources[key]
        return self._made(source.subject, source.sentence, source.change, key)

    def of_sentence(self, subject: ExploredModel, sentence: ReadSentence, change: Change) -> SentenceReading:
        """The reading of a sentence with a change."""
        key = reading_key(subject.model, sentence, change, subject.number)
        return self.of_key(key) if key in self._kept else self._made(subject, sentence, change, key)

    def changed(self, before: SentenceReading, change: Change) -> SentenceReading:
        """The same sentence with a change."""
        whole = replace(change, hide=_once(change.hide), heads=_once(change.heads), layers=_once(change.layers))
        return self.of_sentence(before.subject, before.sentence, whole)

    def trim(self) -> None:
        """Drop the oldest readings beyond the memory limit, including results added to them."""
        total = sum(reading.num_bytes for reading in self._kept.values())
        while total > self._most_bytes and len(self._kept) > 1:
            total -= self._kept.popitem(last=False)[1].num_bytes

    def _made(self, subject: ExploredModel, sentence: ReadSentence, change: Change, key: str) -> SentenceReading:
        begin = time.perf_counter()
        reading = read(subject, sentence, change)
        self.seconds, self.computed = time.perf_counter() - begin, self.computed + 1
        self._kept[key] = reading
        self._sources[key] = _Source(subject=subject, sentence=sentence, change=change)
        self._sources.move_to_end(key)
        if len(self._sources) > _MOST_REQUESTS:
            self._sources.popitem(last=False)
        self.trim()
        return reading

    def _sentence(self, request: HttpRequest) -> ReadSentence:
        """Tokens of a text; cached, since a model's own translation is slow."""
        named = (request.model, request.text, request.translation, request.pair)
        if named not in self._sentences:
            model = self.subject(request.model).model
            if lacking := model.anatomy.lacks():
                raise UserError(f"{model.name} has no attention: {lacking}.")
            translation = request.translation if len(model.anatomy.stacks) > 1 else None
            pair = request.pair if takes_pairs(model) else None
            self._sentences[named] = read_tokens(model, request.text, translation, self.longest, pair)
        self._sentences.move_to_end(named)
        if len(self._sentences) > _MOST_REQUESTS:
            self._sentences.popitem(last=False)
        return self._sentences[named]


def _once(places: tuple) -> tuple:
    return tuple(dict.fromkeys(places))
