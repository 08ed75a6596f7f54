"""The tokens and heads that a prediction depends on."""

from typing import Any

from torch import Tensor

from infoflow.foundation import UserError
from infoflow.heads import SentenceRelevance, sentence_relevance, token_name

from ._change import changed
from ._sentence_reading import SentenceReading, token_logits

METHODS = ("gradient-x-input", "cp-lrp", "attn-lrp", "voita", "chefer", "alti", "rollout")
_DIFFERENCES = ("gradient-x-input", "cp-lrp", "attn-lrp", "chefer")  # methods that support differences of two logits


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
        against: A second token: then $z_\\text{target} - z_\\text{against}$ is explained.

    Raises:
        UserError: The method does not apply to the model, or there is no such token.
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
        options["output"] = lambda output: _difference(output, chosen, second)
    with changed(reading.subject.model, reading.change):
        found = sentence_relevance(reading.subject.model, reading.inputs, method, position, chosen, **options)
    told = _told(found)
    named = {} if chosen is None else {"target": chosen, "target_name": token_name(reading.subject.model, chosen)}
    if options:
        named |= {"against": against, "against_name": token_name(reading.subject.model, int(against or 0))}
    return {"method": method, "position": position, "signed": method not in ("voita", *_SHARES)} | named | told


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


def _difference(output: Any, target: int | None, against: int) -> Tensor:
    logits = token_logits(output)
    return logits[..., target] - logits[..., against]


def _told(found: SentenceRelevance) -> dict[str, Any]:
    return {
        "tokens": {stack: _numbers(values[0]) for stack, values in found.tokens.items()},
        "heads": [
            {"stack": stack, "kind": kind, "layer": layer, "heads": _numbers(values[0])}
            for (stack, kind, layer), values in found.heads.items()
        ],
    }


def _numbers(values: Tensor) -> list[float]:
    return [float(f"{value:.5g}") for value in values.detach().double().cpu().tolist()]
