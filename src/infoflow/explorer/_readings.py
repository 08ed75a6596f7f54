"""Readings that were made, the oldest of which are forgotten and made anew when they are asked for again."""

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
    """A key that nothing is known of: the page was opened before this explorer was started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Source:
    subject: ExploredModel
    sentence: ReadSentence
    change: Change


class Readings:
    """All readings of an explorer. Called by one thread at a time."""

    def __init__(self, subjects: Sequence[ExploredModel], longest: int, most_bytes: int = MOST_BYTES) -> None:
        self.subjects, self.longest, self._most_bytes = tuple(subjects), longest, most_bytes
        self._kept: OrderedDict[str, SentenceReading] = OrderedDict()
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self._sentences: OrderedDict[tuple[int, str, str | None], ReadSentence] = OrderedDict()
        self.computed = 0  # passes that were run
        self.seconds = 0.0  # the latest of them

    def subject(self, number: int) -> ExploredModel:
        """A model by its number.

        Raises:
            UserError: There is none.
        """
        if number >= len(self.subjects):
            raise UserError(f"There are {len(self.subjects)} models, counted from 0.")
        return self.subjects[number]

    def of(self, request: HttpRequest) -> SentenceReading:
        """What a request is about: an earlier answer's key, or a model and a text.

        Raises:
            UserError: The model cannot read the text.
            Forgotten: Nothing is known of the key.
        """
        if request.key:
            return self.of_key(request.key)
        return self.of_sentence(self.subject(request.model), self._sentence(request), Change())

    def of_key(self, key: str) -> SentenceReading:
        """The reading that a key names."""
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
        """Forget the oldest readings beyond the memory; what an answer added to one counts too."""
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
        """Tokens of a text; kept, since a model's own translation takes its time."""
        named = (request.model, request.text, request.translation)
        if named not in self._sentences:
            model = self.subject(request.model).model
            if lacking := model.anatomy.lacks():
                raise UserError(f"{model.name} attends to nothing: {lacking}.")
            translation = request.translation if len(model.anatomy.stacks) > 1 else None
            self._sentences[named] = read_tokens(model, request.text, translation, self.longest)
        self._sentences.move_to_end(named)
        if len(self._sentences) > _MOST_REQUESTS:
            self._sentences.popitem(last=False)
        return self._sentences[named]


def _once(places: tuple) -> tuple:
    return tuple(dict.fromkeys(places))
