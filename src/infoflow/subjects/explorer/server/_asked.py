"""Parses and bounds the JSON requests of a page: nothing else reaches the models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ._change import Change

WANTS = ("attention", "flow", "lens", "relevance", "influence")
MOST_CHARACTERS = 2000
_MOST_PARTS = 4096  # heads of a large model
_MOST_NUMBER = 1 << 31


class BadRequest(Exception):
    """A request that our pages never send; the text describes the error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpRequest:
    """One request."""

    page: str  # requesting page: a newer request of the same kind replaces its older one
    model: int = 0
    text: str = ""
    translation: str | None = None
    key: str = ""  # of an earlier response, instead of a text
    want: tuple[str, ...] = ()
    position: int | None = None
    target: int | None = None
    against: int | None = None
    method: str | None = None
    change: Change = Change()  # noqa: RUF009 (frozen)
    sweep: str = ""


_NAMES = (
    "page", "model", "text", "translation", "key", "want", "position", "target", "against", "method",
    "hide", "close", "mode", "sweep",
)  # fmt: skip


def asked(given: Any) -> HttpRequest:
    """A request from its JSON.

    Raises:
        BadRequest: A field is unknown, of another type, or too large.
    """
    if not isinstance(given, dict):
        raise BadRequest("A request must be a JSON object.")
    if unknown := [name for name in given if name not in _NAMES]:
        raise BadRequest(f"Unknown field {str(unknown[0])[:40]}.")
    want = _list(given, "want")
    if not all(one in WANTS for one in want):
        raise BadRequest(f"want must be among {', '.join(WANTS)}.")
    sweep = _text(given, "sweep", 10)
    if sweep not in ("", "heads"):
        raise BadRequest("sweep must contain heads.")
    return HttpRequest(
        page=_text(given, "page", 40),
        model=_number(given, "model") or 0,
        text=_text(given, "text", MOST_CHARACTERS),
        translation=_text(given, "translation", MOST_CHARACTERS) or None,
        key=_text(given, "key", 80),
        want=tuple(want),
        position=_number(given, "position"),
        target=_number(given, "target"),
        against=_number(given, "against"),
        method=_text(given, "method", 40) or None,
        change=_change(given),
        sweep=sweep,
    )


def _change(given: Mapping[str, Any]) -> Change:
    close = given.get("close")
    close = {} if close is None else close
    if not isinstance(close, dict) or any(name not in ("heads", "layers") for name in close):
        raise BadRequest("close must contain heads and layers.")
    return Change(
        hide=tuple(_place(one, 2) for one in _list(given, "hide")),
        heads=tuple(_place(one, 4) for one in _list(close, "heads")),
        layers=tuple(_place(one, 2) for one in _list(close, "layers")),
        mode=_text(given, "mode", 10) or "zero",
    )


def _place(given: Any, size: int) -> Any:
    """Names, then numbers: (stack, index), or (stack, kind, layer, head)."""
    names = size // 2
    fits = isinstance(given, list) and len(given) == size
    if not fits or not all(isinstance(one, str) and len(one) <= 20 for one in given[:names]):
        raise BadRequest("A position must be a list of names and numbers.")
    if not all(_is_number(one) for one in given[names:]):
        raise BadRequest("A position must be a list of names and numbers.")
    return tuple(given)


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    value = given.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > _MOST_PARTS:
        raise BadRequest(f"{name} must be a list of at most {_MOST_PARTS:,}.")
    return value


def _text(given: Mapping[str, Any], name: str, most: int) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a text.")
    if any("\ud800" <= sign <= "\udfff" for sign in value):
        raise BadRequest(f"{name} contains half of a surrogate pair, which is not text.")
    if len(value) > most:
        raise BadRequest(f"{name} has {len(value):,} characters; at most {most:,} are read.")
    return value


def _number(given: Mapping[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if not _is_number(value):
        raise BadRequest(f"{name} must be a number from 0.")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_NUMBER
