"""Claims about information, judged by two estimates: from clusters of states, and from what a classifier can use.

An estimate counts only if it finds the one value that is known: layer 0 determines its token, so its information about
the token must equal the token's entropy H(T). Too few clusters, or clusters by distances that hide the tokens, miss
this value. If both estimates count, the numbers are those of usable information; if their verdicts differ, the claim is
undetermined.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from infoflow.representations import CONVERGED, LIMITED, MUTUAL_INFORMATION, USABLE_INFORMATION

from ._finding import UNTESTABLE, Another, Condition, Curves, Finding, Test, short
from ._model_group import Absent, ModelGroup
from ._table import Reading, SeedRows, Table, gather

CLUSTERS, USABLE = "clusters", "usable information"


def by_usable_information(finding: Finding) -> Finding:
    other = replace(
        finding,
        reads=of_usable_information(finding.reads),
        controls=tuple(
            replace(control, reads=of_usable_information(control.reads))
            for control in finding.controls
            if all(_is_measured(reading) for reading in control.reads.values())
        ),
        test=partial(_with_least_effect, finding.test),
    )
    return also_by(finding, CLUSTERS, other)


def also_by(finding: Finding, name: str, other: Finding) -> Finding:
    """The claim judged both by its own estimate, called `name`, and by usable information, as in `other`."""
    own = finding.statistic.rstrip(".")
    how = other.statistic if other.statistic != finding.statistic else f"effects in nats of at least {CONVERGED}"
    text = (
        f"{own}. Judged by {name} and by usable information ({how}). An estimate counts if it finds {1 - LIMITED:.0%} "
        "of the tokens' entropy at layer 0. If both count, the numbers are those of usable information; if their "
        "verdicts differ, the claim is undetermined"
    )
    another = Another(
        name=USABLE, own_name=name, finding=other, known=_known(other.reads), own_known=_known(finding.reads)
    )
    return replace(finding, statistic=text, another=another)


def of_usable_information(reads: Mapping[str, Reading]) -> dict[str, Reading]:
    return {name: _instead(reading) for name, reading in reads.items()}


def _instead(reading: Reading) -> Reading:
    """A reading of information in clusters, changed to the same rows of usable information; others are unchanged."""
    if reading.sources != (MUTUAL_INFORMATION.name,):
        return reading
    function: Any = reading.function
    if isinstance(function, partial) and "name" in function.keywords:
        function = partial(function.func, *function.args, **{**function.keywords, "name": USABLE_INFORMATION.name})
    return replace(reading.changed(name=USABLE_INFORMATION.name), function=function)


def _is_measured(reading: Reading) -> bool:
    """Whether usable information has the columns of the reading; for instance, it has no spread of k-means."""
    return reading.sources != (MUTUAL_INFORMATION.name,) or all(
        table.number in USABLE_INFORMATION.column_names for table in reading.tables
    )


def _with_least_effect(test: Test, curves: Curves) -> list[Condition]:
    """The conditions under other names; thresholds in nats are at most `CONVERGED`, the least effect that converges.

    Published effects describe information in clusters, which changes many times as much.
    """
    conditions = [replace(one, name=f"{one.name} ({USABLE})") for one in test(curves)]
    return [
        replace(one, threshold=CONVERGED, published=np.nan) if one.unit == "nats" and one.threshold > CONVERGED else one
        for one in conditions
    ]


def _known(reads: Mapping[str, Reading]) -> dict[str, Reading]:
    """For every reading of information about the input, its value at layer 0 and the entropy that it should equal."""
    tables = {name: reading.tables[0] for name, reading in reads.items()}
    return {name: _at_layer_0(table) for name, table in tables.items() if dict(table.settings).get("side") == "input"}


def _at_layer_0(table: Table) -> Reading:
    return replace(table, needs=("layer", "entropy"), number="value").reduce(_value_and_entropy)


def _value_and_entropy(rows: SeedRows) -> np.ndarray | None:
    first = rows.at(rows.frame["layer"] == 0)
    if len(first.frame) != 1:
        return None
    entropy = np.full_like(first.numbers, float(first.frame["entropy"].iloc[0]))
    return np.concatenate([first.numbers, entropy], axis=1)


@dataclass(frozen=True, slots=True)
class _Judgement:
    """An estimate's row of the table of findings, and why the estimate does not count; "" if it counts."""

    name: str
    row: Mapping[str, Any]
    missed: str

    @property
    def verdict(self) -> str:
        return str(self.row["verdict"])

    def __str__(self) -> str:
        return f"by {self.name}{f' ({self.missed})' if self.missed else ''}: {self.verdict}"


def combined(
    another: Another, own: Mapping[str, Any], other: Mapping[str, Any], models: ModelGroup
) -> tuple[bool, dict[str, Any]]:
    """Whether the row of the other estimate is used, and the columns to change in the row that is used.

    Without a verdict by the other estimate, which old runs have not measured, the claim's own verdict stays.
    """
    if other["verdict"] == UNTESTABLE:
        judged = own["verdict"] != UNTESTABLE and np.isfinite(other["effect"])  # only the control is missing
        return False, {"reason": _by(_Judgement(another.own_name, own, ""))} if judged else {}
    second = _Judgement(another.name, other, _missed(another.known, models))
    if own["verdict"] == UNTESTABLE:
        return True, {"reason": _by(second)}
    first = _Judgement(another.own_name, own, _missed(another.own_known, models))
    counting = [each for each in (second, first) if not each.missed] or [second, first]
    chosen, rest = counting[0], second if counting[0] is first else first
    tables = ", ".join(dict.fromkeys(f"{own['tables']}, {other['tables']}".split(", ")))
    notes = [str(chosen.row["note"]), *(f"By {rest.name}: {line}" for line in str(rest.row["note"]).splitlines())]
    changes: dict[str, Any] = {"tables": tables, "note": "\n".join(notes), "reason": f"{_by(chosen)} {_sentence(rest)}"}
    if len({each.verdict for each in counting}) > 1:
        why = f"Two estimates disagree, {counting[0]}, and {counting[1]}."
        changes |= {"verdict": "undetermined", "seeds_needed": 0, "reason": f"{why} {_by(chosen)}"}
    return chosen is second, changes


def _by(judgement: _Judgement) -> str:
    reason = str(judgement.row["reason"]).replace(f" ({USABLE})", "")  # said once is enough
    return f"By {judgement.name}, {reason[:1].lower()}{reason[1:]}"


def _sentence(judgement: _Judgement) -> str:
    return f"{str(judgement)[:1].upper()}{str(judgement)[1:]}."


def _missed(known: Mapping[str, Reading], models: ModelGroup) -> str:
    """How much of the entropy at layer 0 the worst reading finds, in words; "" if it finds enough."""
    try:
        found = gather(known, models) if known else {}
    except Absent:
        return "layer 0 was not measured"
    rows = [(value, entropy) for one in found.values() for value, entropy in one.values_UK.tolist()]
    value, entropy = min(rows, key=lambda row: row[0] / row[1], default=(1.0, 1.0))
    if value >= (1 - LIMITED) * entropy:
        return ""
    return f"only {short(value)} of {short(entropy)} nats found at layer 0"
