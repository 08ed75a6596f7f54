"""The methods of relevance by name, and the options that each takes."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from typing import Any

from infoflow.foundation import UserError
from infoflow.models import Model

from ._alti import alti_relevance
from ._backward_rules import Variant, backward_rules
from ._chefer import chefer_propagated, chefer_relevance
from ._gradients import gradient_relevance
from ._logit_attribution import logit_attribution
from ._lrp import voita_relevance
from ._mixing import flow_relevance, rollout_relevance
from ._request import Request, SentenceRelevance
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


def _gradient(name: str, variant: Variant | None) -> Callable[[Model, dict[str, Any]], Method]:
    def method(model: Model, options: dict[str, Any]) -> Method:
        _check(options, name, ("output",))
        rules = nullcontext if variant is None else partial(backward_rules, model, variant)
        return lambda request: gradient_relevance(request, options.get("output"), rules)

    return method


def _chefer(model: Model, options: dict[str, Any]) -> Method:
    _check(options, "chefer", ("output", "version"))
    version = options.get("version", "2021b")
    if version not in ("2021a", "2021b"):
        raise UserError(f'version must be "2021a" or "2021b". Got {version}.')
    if version == "2021a":
        return chefer_propagated
    return lambda request: chefer_relevance(request, options.get("output"))


def _plain(name: str, run: Method) -> Callable[[Model, dict[str, Any]], Method]:
    def method(model: Model, options: dict[str, Any]) -> Method:
        _check(options, name, ())
        return run

    return method


METHODS: dict[str, Callable[[Model, dict[str, Any]], Method]] = {
    "voita": _voita,
    "gradient-x-input": _gradient("gradient-x-input", None),
    "cp-lrp": _gradient("cp-lrp", "cp-lrp"),
    "attn-lrp": _gradient("attn-lrp", "attn-lrp"),
    "chefer": _chefer,
    "alti": _plain("alti", alti_relevance),
    "rollout": _plain("rollout", rollout_relevance),
    "flow": _plain("flow", flow_relevance),
    "logit-attribution": _plain("logit-attribution", logit_attribution),
}

ATTENTION_ONLY = ("chefer", "alti", "rollout", "flow")
"""Methods that follow only attention between layers and ignore other paths to a token."""
