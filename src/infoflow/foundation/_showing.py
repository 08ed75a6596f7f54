"""Shows objects of one room by a room that produces HTML, imported only when something is shown."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def shown_by(room: str, function: str) -> Callable[[Any], str]:
    """A `_repr_html_` that returns the output of `function` in `room` for the object.

    The rooms of measures and models must not import the room that produces HTML, so it is looked up by name when a
    notebook displays an object.
    """

    def _repr_html_(self: Any) -> str:
        return getattr(import_module(room), function)(self)

    return _repr_html_
