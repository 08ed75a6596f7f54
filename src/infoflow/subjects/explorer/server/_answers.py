"""Responses to requests, computed from readings in the worker's thread."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from infoflow.foundation import UserError
from infoflow.heads import SentenceAttention, restore
from infoflow.report import flow_data, view_blocks, view_payload

from ._asked import HttpRequest
from ._blank import filled, read_blank
from ._change import Change
from ._effects import effect, head_effects, token_effects
from ._lens import add_guesses, lens_rows
from ._readings import Readings
from ._relevance import prediction_relevance
from ._sentence_reading import SentenceReading, add_maps
from ._wire import wired

_MOST_KEPT = 50


class Responses:
    """Responses as bytes; strips and sweeps as parts that arrive one by one."""

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self._kept: OrderedDict[str, dict[str, list[dict[str, Any]]]] = OrderedDict()

    def kept(self, key: str) -> dict[str, list[dict[str, Any]]]:
        """Results of a reading beyond its forward pass, for its file: relevance, strips."""
        if key not in self._kept and len(self._kept) >= _MOST_KEPT:
            self._kept.popitem(last=False)
        return self._kept.setdefault(key, {})

    def read(self, request: HttpRequest) -> bytes:
        """Everything requested about a text.

        Raises:
            UserError: It cannot be read, or the request cannot be fulfilled.
            Forgotten: The key is unknown.
        """
        reading = self.readings.of(request)
        return self._answer(request, reading, {})

    def change(self, request: HttpRequest) -> bytes:
        """The same for the text with a change, and the differences."""
        before = self.readings.of(request)
        after = self.readings.changed(before, request.change)
        return self._answer(request, after, {"changed": effect(before, after), "before": before.key}, before)

    def blank(self, request: HttpRequest) -> dict[str, Any]:
        """Candidates for the blanks of a text, or for its continuation."""
        readings = self.readings
        subject = readings.subject(request.model)
        sentence = read_blank(subject, request.text, request.translation, readings.longest)
        reading = readings.of_sentence(subject, sentence, Change())
        tokens = {stack: [token.text for token in row] for stack, row in sentence.tokens.items()}
        return {"key": reading.key, "model": request.model, "tokens": tokens, "blanks": filled(reading)}

    def lines(self, request: HttpRequest) -> Iterator[list[dict[str, Any]]]:
        """Parts of a strip (each token hidden) or of a sweep (each head ablated)."""
        reading = self.readings.of(request)
        if request.sweep and request.change:
            reading = self.readings.changed(reading, request.change)
        parts = head_effects(reading, request.change.mode) if request.sweep else self._token_parts(reading)
        rows = self.kept(reading.key)["heads" if request.sweep else "tokens"] = []
        for part in parts:
            rows += part
            yield part

    @staticmethod
    def _token_parts(reading: SentenceReading) -> Iterator[list[dict[str, Any]]]:
        for stack in reading.sentence.tokens:
            yield from token_effects(reading, stack)

    def _answer(
        self,
        request: HttpRequest,
        reading: SentenceReading,
        head: dict[str, Any],
        before: SentenceReading | None = None,
    ) -> bytes:
        arrays: dict[str, np.ndarray] = {}
        head = {"key": reading.key, "model": reading.subject.number, "passes": self.readings.computed} | head
        if "flow" in request.want:
            add_maps(reading)
            add_guesses(reading)
            arrays |= {name: one for name, one in view_blocks(reading.seen).items() if name.endswith("/mixing")}
            head |= {"mixing": bool(arrays), "flows": flow_data(reading.seen)}
        if "attention" in request.want:
            head["view"] = view_payload(reading.seen)
            arrays |= view_blocks(reading.seen)
            if before is not None:
                arrays |= differences(before.seen, reading.seen)
        if "lens" in request.want:
            places = None if request.position is None else [request.position]
            head["lens"] = self.attempted(lambda: lens_rows(reading, places))
        if "relevance" in request.want and request.position is not None:
            position = request.position
            found = head["relevance"] = self.attempted(
                lambda: prediction_relevance(reading, position, request.target, request.against, request.method)
            )
            if "reason" not in found:
                rows = self.kept(reading.key).setdefault("relevance", [])
                rows[:] = [found, *rows[: _MOST_KEPT - 1]]
        self.readings.trim()
        return wired(head, arrays)

    @staticmethod
    def attempted(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Unavailable results become a reason, next to the available ones."""
        try:
            return work()
        except UserError as error:
            return {"reason": str(error)}


def differences(before: SentenceAttention, after: SentenceAttention) -> dict[str, np.ndarray]:
    r"""Weights after minus before of every layer as signed bytes, $\mathrm{round}(127\, s \sqrt{|d|})$, s the sign."""
    found = {}
    for old, new in zip(before.kinds, after.kinds, strict=True):
        for one, other in zip(old.layers, new.layers, strict=True):
            difference = restore(other.weights) - restore(one.weights)
            signed = np.sign(difference) * np.sqrt(np.abs(difference)) * 127
            found[f"{old.stack}/{old.kind}/{one.layer}/difference"] = np.rint(signed).astype(np.int8)
    return found
