"""A cache of readings: the oldest are dropped and recomputed on demand."""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from infoflow.foundation import UserError
from infoflow.heads import ReadSentence, read_tokens

from ._asked import HttpRequest
from ._change import Change
from ._sentence_reading import ExploredModel, SentenceReading, read, reading_key

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
        self._sentences: OrderedDict[tuple[int, str, str | None], ReadSentence] = OrderedDict()
        self.computed = 0  # number of passes
        self.seconds = 0.0  # duration of the latest pass

    def subject(self, number: int) -> ExploredModel:
        """A model by its number.

        Raises:
            UserError: There is none.
        """
        if number >= len(self.subjects):
            raise UserError(f"There are {len(self.subjects)} models, counted from 0.")
        return self.subjects[number]

    def of(self, request: HttpRequest) -> SentenceReading:
        """The subject of a request: an earlier response's key, or a model and a text.

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
        """The reading of some tokens with a change."""
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
        named = (request.model, request.text, request.translation)
        if named not in self._sentences:
            model = self.subject(request.model).model
            if lacking := model.anatomy.lacks():
                raise UserError(f"{model.name} has no attention: {lacking}.")
            translation = request.translation if len(model.anatomy.stacks) > 1 else None
            self._sentences[named] = read_tokens(model, request.text, translation, self.longest)
        self._sentences.move_to_end(named)
        if len(self._sentences) > _MOST_REQUESTS:
            self._sentences.popitem(last=False)
        return self._sentences[named]


def _once(places: tuple) -> tuple:
    return tuple(dict.fromkeys(places))
