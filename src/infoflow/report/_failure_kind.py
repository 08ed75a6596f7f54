"""How a claim that fails does so."""

import re

_NEEDED = re.compile(r"needed ([<>])")
OPPOSITE, WEAKER, CONTROL, OTHER = "opposite", "weaker", "no more than the control", "otherwise"
KINDS = (OPPOSITE, WEAKER, CONTROL, OTHER)
"""How a claim may fail, the most telling first."""


def failure_kind(row: dict) -> str:
    """How a claim that fails does so.

    opposite: the interval lies on the other side of zero than the claim says; no more than the control: the effect is
    no larger than where it should not show; weaker: it has the claim's direction and misses the threshold.
    """
    asked = _NEEDED.search(str(row.get("reason") or ""))
    if not asked:
        return OTHER
    sign = 1 if asked[1] == ">" else -1
    effect, low, high = (sign * float(row[name]) for name in ("effect", "low", "high"))
    low, high = min(low, high), max(low, high)
    threshold, control = sign * float(row["threshold"]), sign * float(row.get("control", float("nan")))
    if threshold < 0:
        return OTHER  # a claim that something is small: to miss it has no direction
    if high < 0:
        return OPPOSITE
    if effect <= control:
        return CONTROL
    return WEAKER if effect > 0 else OTHER


def told_kind(row: dict) -> str:
    """The kind as it stands behind the verdict; "" where it has no name."""
    kind = failure_kind(row)
    return "" if kind == OTHER else kind
