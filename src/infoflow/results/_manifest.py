"""Types of the entries that run.json may hold, by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, json_fault, read_object

_Check = Callable[[Any], bool]
_MOST = 1e15


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST  # no NaN either


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _list_of(check: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


_KINDS: dict[str, tuple[_Check, str]] = {
    "version": (_is_whole, "a whole number"),
    "kind": (_is_text, "text"),
    "title": (_is_text, "text"),
    "command": (_is_text, "text"),
    "files": (_list_of(_is_text), "a list of texts"),
    "plan": (_is_object, "an object"),
    "corpus": (_is_object, "an object"),
    "provenance": (_is_object, "an object"),
    "models": (_list_of(_is_object), "a list of objects"),
    "failures": (_list_of(_is_object), "a list of objects"),
    "warnings": (_list_of(_is_text), "a list of texts"),
    "timings": (lambda value: _is_object(value) and all(map(_is_number, value.values())), "an object of seconds"),
    "seconds": (lambda value: value is None or _is_number(value), "a number"),
}


def read_manifest(path: Path) -> dict[str, Any]:
    """The entries of run.json.

    Raises:
        UserError: The file holds no JSON object, or an entry has another type.
    """
    try:
        manifest = read_object(path)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, json_fault(error)) from None
    if not isinstance(manifest, dict):
        raise _damaged(path, "it holds no JSON object")
    for name, (check, kind) in _KINDS.items():
        if name in manifest and not check(manifest[name]):
            raise _damaged(path, f"{name} must be {kind}. Got {_short(manifest[name])}")
    return manifest


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is damaged: {reason.rstrip('.')}. Start again in a new folder.")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
