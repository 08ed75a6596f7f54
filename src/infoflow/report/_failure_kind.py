"""How a claim fails."""

import re

_NEEDED = re.compile(r"needed ([<>])")
OPPOSITE, WEAKER, CONTROL, OTHER = "opposite", "weaker", "no more than the control", "otherwise"
KINDS = (OPPOSITE, WEAKER, CONTROL, OTHER)
"""The kinds of failure, the most informative first."""


def failure_kind(row: dict) -> str:
    """Classify how a claim fails.

    opposite: the interval lies on the other side of zero from the claim; no more than the control: the effect is no
    larger than where there should be none; weaker: the direction is right but the threshold is missed.
    """
    asked = _NEEDED.search(str(row.get("reason") or ""))
    if not asked:
        return OTHER
    sign = 1 if asked[1] == ">" else -1
    effect, low, high = (sign * float(row[name]) for name in ("effect", "low", "high"))
    low, high = min(low, high), max(low, high)
    threshold, control = sign * float(row["threshold"]), sign * float(row.get("control", float("nan")))
    if threshold < 0:
        return OTHER  # a claim that something is small: missing it has no direction
    if high < 0:
        return OPPOSITE
    if effect <= control:
        return CONTROL
    return WEAKER if effect > 0 else OTHER


def told_kind(row: dict) -> str:
    """The kind as it follows the verdict; "" if it has no name."""
    kind = failure_kind(row)
    return "" if kind == OTHER else kind
