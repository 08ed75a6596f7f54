"""How an object of one room is shown by a room that knows HTML, which is imported only when something is shown."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def shown_by(room: str, function: str) -> Callable[[Any], str]:
    """A `_repr_html_`: what `function` of `room` writes about the object.

    The rooms of measures and models know nothing of HTML, and must not import the one that does: it is looked up by its
    name, in a notebook, at the moment in which an object is displayed.
    """

    def _repr_html_(self: Any) -> str:
        return getattr(import_module(room), function)(self)

    return _repr_html_
