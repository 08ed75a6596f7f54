"""Responses to requests, computed in the worker's thread from cached forward passes."""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.heads import (
    SentenceAttention,
    SentenceRelevance,
    read_blanks,
    restore,
    sentence_relevance,
    takes_pairs,
    token_name,
)
from infoflow.report import ViewAnswer, further_views, view_blocks, view_payload

from ._effects import effect, head_effects, token_effects
from ._readings import Readings, SentenceReading, lens, token_logits
from ._request import Change, HttpRequest, changed

_MOST_KEPT = 50
METHODS = ("gradient-x-input", "cp-lrp", "attn-lrp", "voita", "chefer", "alti", "rollout")
_DIFFERENCES = ("gradient-x-input", "cp-lrp", "attn-lrp", "chefer")  # methods that support differences of two logits


class Responses:
    """Computes responses as bytes; rows of strips and sweeps are sent one after the other."""

    def __init__(self, readings: Readings) -> None:
        self.readings = readings
        self._kept: OrderedDict[str, dict[str, list[dict[str, Any]]]] = OrderedDict()

    def kept(self, key: str) -> dict[str, list[dict[str, Any]]]:
        """Results that were computed after the forward pass (relevance, strips), for the saved file."""
        if key not in self._kept and len(self._kept) >= _MOST_KEPT:
            self._kept.popitem(last=False)
        return self._kept.setdefault(key, {})

    def read(self, request: HttpRequest) -> bytes:
        """Everything requested about a text.

        Raises:
            UserError: The text cannot be read, or the request cannot be fulfilled.
            Forgotten: The key is unknown.
        """
        reading = self.readings.of(request)
        return self._answer(request, reading, {})

    def change(self, request: HttpRequest) -> bytes:
        """Everything requested about a text with a change, and its differences from the unchanged text."""
        before = self.readings.of(request)
        after = self.readings.changed(before, request.change)
        return self._answer(request, after, {"changed": effect(before, after), "before": before.key}, before)

    def blank(self, request: HttpRequest) -> dict[str, Any]:
        """Candidates for the blanks of a text, or for its continuation."""
        readings = self.readings
        subject = readings.subject(request.model)
        pair = request.pair if takes_pairs(subject.model) else None
        sentence, positions = read_blanks(subject.model, request.text, request.translation, readings.longest, pair)
        reading = readings.of_sentence(subject, sentence, Change())
        tokens = {stack: [token.text for token in row] for stack, row in sentence.tokens.items()}
        return {"key": reading.key, "model": request.model, "tokens": tokens, "blanks": lens(reading, positions)}

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
        if "attention" in request.want:
            head["view"] = view_payload(reading.seen)
            arrays |= view_blocks(reading.seen)
            if before is not None:
                arrays |= differences(before.seen, reading.seen)
        if "lens" in request.want:
            places = None if request.position is None else [request.position]
            head["lens"] = self.attempted(lambda: lens(reading, places))
        if "relevance" in request.want and request.position is not None:
            position = request.position
            found = head["relevance"] = self.attempted(
                lambda: prediction_relevance(reading, position, request.target, request.against, request.method)
            )
            if "reason" not in found:
                self._keep(reading, "relevance", found)
        for name, answer in further_views().items():
            if name in request.want:
                head[name] = self._further(reading, name, answer, request.choices)
        self.readings.trim()
        return wired(head, arrays)

    def _further(
        self, reading: SentenceReading, name: str, answer: ViewAnswer, choices: Mapping[str, str]
    ) -> dict[str, Any]:
        """What a view, such as that of routes, answers about the changed sentence, and the view's choices."""
        model = reading.subject.model
        with changed(model, reading.change, in_weights=True):
            found = self.attempted(lambda: {**answer(model, reading.sentence, choices), **choices})
        if "reason" not in found:
            self._keep(reading, name, found)
        return found

    def _keep(self, reading: SentenceReading, name: str, found: dict[str, Any]) -> None:
        rows = self.kept(reading.key).setdefault(name, [])
        rows[:] = [found, *rows[: _MOST_KEPT - 1]]

    @staticmethod
    def attempted(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The result of `work`, or the reason why it is unavailable, so that other results can still be shown."""
        try:
            return work()
        except UserError as error:
            return {"reason": str(error)}


def differences(before: SentenceAttention, after: SentenceAttention) -> dict[str, np.ndarray]:
    r"""Each layer's weight differences d (sign s), after − before, as bytes $\mathrm{round}(127\, s \sqrt{|d|})$."""
    found = {}
    for old, new in zip(before.kinds, after.kinds, strict=True):
        for one, other in zip(old.layers, new.layers, strict=True):
            difference = restore(other.weights) - restore(one.weights)
            signed = np.sign(difference) * np.sqrt(np.abs(difference)) * 127
            found[f"{old.stack}/{old.kind}/{one.layer}/difference"] = np.rint(signed).astype(np.int8)
    return found


def wired(head: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """The head, which lists name and byte count of every array under `arrays`, then the little-endian arrays.

    >>> answer = wired({"key": "a"}, {"weights": np.array([1, 2], dtype=np.uint8)})
    >>> answer[4:]
    b'{"key":"a","arrays":[["weights",2]]}\\x01\\x02'
    """
    parts = {
        name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
        for name, array in arrays.items()
    }
    listed = dict(head) | {"arrays": [[name, len(data)] for name, data in parts.items()]}
    text = json.dumps(listed, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([len(text).to_bytes(4, "little"), text, *parts.values()])


def unwired(answer: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The head and the arrays' bytes from the output of `wired`."""
    start = 4 + int.from_bytes(answer[:4], "little")
    head, found = json.loads(answer[4:start]), {}
    for name, size in head.pop("arrays"):
        found[name] = answer[start : start + size]
        start += size
    return head, found


def default_method(reading: SentenceReading) -> str:
    """Gradient times input if there is a logit to explain, else ALTI."""
    return "gradient-x-input" if reading.has_head else "alti"


def prediction_relevance(
    reading: SentenceReading, position: int, target: int | None, against: int | None, method: str | None
) -> dict[str, Any]:
    """Relevance of tokens by stack and of heads for one prediction, or for the difference of two logits.

    Args:
        position: Position in the predicting stack.
        target: The token whose logit is explained; None: the most likely one.
        against: A second token. If it is set, $z_\\text{target} - z_\\text{against}$ is explained.
    """
    method = method or default_method(reading)
    if method not in METHODS:
        raise UserError(f"method must be one of {', '.join(METHODS)}.")
    forward = method in ("alti", "rollout")
    chosen = None if forward else _target(reading, position, target)
    options: dict[str, Any] = {}
    if against is not None and not forward:
        if method not in _DIFFERENCES:
            raise UserError(f"method must be one of {', '.join(_DIFFERENCES)} for the difference of two tokens.")
        second = _target(reading, position, against)
        options["output"] = lambda output: token_logits(output)[..., chosen] - token_logits(output)[..., second]
    with changed(reading.subject.model, reading.change):
        found = sentence_relevance(reading.subject.model, reading.inputs, method, position, chosen, **options)
    values = _as_json(found)
    named = {} if chosen is None else {"target": chosen, "target_name": token_name(reading.subject.model, chosen)}
    if options:
        named |= {"against": against, "against_name": token_name(reading.subject.model, int(against or 0))}
    return {"method": method, "position": position, "signed": method not in ("voita", *_SHARES)} | named | values


_SHARES = ("alti", "rollout")


def _target(reading: SentenceReading, position: int, target: int | None) -> int:
    logits = reading.log_shares
    if not 0 <= position < len(logits):
        raise UserError(f"position must lie in 0..{len(logits) - 1}.")
    if target is None:
        return int(logits[position].argmax())
    if not 0 <= target < logits.shape[1]:
        raise UserError(f"A target must be a token id in 0..{logits.shape[1] - 1}.")
    return target


def _as_json(found: SentenceRelevance) -> dict[str, Any]:
    return {
        "tokens": {stack: _numbers(values[0]) for stack, values in found.tokens.items()},
        "heads": [
            {"stack": stack, "kind": kind, "layer": layer, "heads": _numbers(values[0])}
            for (stack, kind, layer), values in found.heads.items()
        ],
    }


def _numbers(values: Tensor) -> list[float]:
    return [float(f"{value:.5g}") for value in values.detach().double().cpu().tolist()]
