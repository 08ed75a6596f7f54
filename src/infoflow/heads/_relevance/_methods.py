"""The methods of relevance by name, and the options that each takes."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from infoflow.foundation import UserError
from infoflow.models import Model

from ._lrp import voita_relevance
from ._request import Request
from ._result import SentenceRelevance
from ._rule import Rule

Method = Callable[[Request], SentenceRelevance]


def _voita(model: Model, options: dict[str, Any]) -> Method:
    _check(options, "voita", tuple(field.name for field in fields(Rule)))
    rule = Rule(**options)
    return lambda request: voita_relevance(request, rule)


def _check(options: dict[str, Any], method: str, known: tuple[str, ...]) -> None:
    if unknown := [name for name in options if name not in known]:
        taken = f"takes {', '.join(known)}" if known else "takes no options"
        raise UserError(f'method="{method}" {taken}. Got {unknown[0]}.')


METHODS: dict[str, Callable[[Model, dict[str, Any]], Method]] = {"voita": _voita}
