"""The published claims in one line: how many hold, how many fail and how, and the most surprising failure."""

import re
from collections import Counter
from dataclasses import dataclass

import pandas as pd

from .._failure_kind import KINDS, failure_kind, told_kind
from .._numbers import decimals, number

_ABSENT = re.compile(r"^The table (\S+) is absent")
_PLAN = re.compile(r"a plan (?:that says|with|whose) (.+?)(?:,? makes it|$)")


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimsLine:
    """The front page's summary of the claims."""

    tested: int
    every: int
    counts: dict[str, int]  # verdict → number of claims, without untestable ones
    kinds: list[tuple[str, int]]  # kinds of the failures
    surprising: str  # the most surprising failure in words; "" without failures
    surprising_id: str
    reasons: list[tuple[str, int]]  # why the other claims cannot be tested, most frequent reason first


def claims_line(findings: pd.DataFrame) -> ClaimsLine | None:
    """Summarise the table of findings in one line; None if it is empty."""
    rows = findings.drop_duplicates("id").to_dict("records")
    if not rows:
        return None
    tested = [row for row in rows if row["verdict"] != "not testable here"]
    failed = [row for row in tested if row["verdict"] == "fails"]
    kinds = Counter(failure_kind(row) for row in failed)
    worst = max(failed, key=_surprise, default=None)
    return ClaimsLine(
        tested=len(tested),
        every=len(rows),
        counts=dict(Counter(str(row["verdict"]) for row in tested)),
        kinds=[(kind, kinds[kind]) for kind in KINDS if kinds[kind]],
        surprising=_told(worst) if worst else "",
        surprising_id=str(worst["id"]) if worst else "",
        reasons=_reasons([str(row.get("reason") or "") for row in rows if row["verdict"] == "not testable here"]),
    )


def _surprise(row: dict) -> tuple[int, float]:
    """Opposite effects rank first; within a kind, the farthest from the threshold in half-widths of the interval."""
    half = (float(row["high"]) - float(row["low"])) / 2
    distance = abs(float(row["effect"]) - float(row["threshold"]))
    far = distance / half if half > 0 else 0.0
    return -KINDS.index(failure_kind(row)), far if far == far else 0.0


def _told(row: dict) -> str:
    claim = str(row["claim"]).rstrip(".")
    low, high, value = (float(row[name]) for name in ("low", "high", "effect"))
    places = decimals(low, high, value)
    unit = _unit(str(row.get("unit") or ""))
    words = f" ({kind})" if (kind := told_kind(row)) else ""
    return f"“{claim}” fails here{words}: {number(value, places)}{unit}, threshold {number(float(row['threshold']))}"


def _unit(unit: str) -> str:
    """The unit as it follows a number; units that begin with a digit, such as 1 − PWCCA, get brackets."""
    return f" ({unit})" if unit[:1].isdigit() else f" {unit}" if unit else ""


def _reasons(texts: list[str]) -> list[tuple[str, int]]:
    return Counter(map(_reason, texts)).most_common()


def _reason(text: str) -> str:
    """The first obstacle, in a few words."""
    if "has not learned its task" in text.split(". ")[0]:
        return "need models that have learned their task"
    if found := re.match(r"It needs (\d+) seeds", text):
        return f"need {found[1]} seeds of each objective"
    if _ABSENT.match(text):
        plan = _PLAN.search(text)
        return f"need {plan[1].strip().rstrip(',')} in the plan" if plan else "need a table that was not measured"
    if text.startswith("There is no"):
        return "need an objective that is not among the models"
    return "need something else: see each claim"
