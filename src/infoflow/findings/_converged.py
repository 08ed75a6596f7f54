"""A claim's test on half of the sentences: a verdict that hangs on an estimate that still moves is none."""

from dataclasses import replace

from ._condition import Outcome, short
from ._finding import Finding
from ._panel import Absent
from ._reading import Curve, Reading, Tables, gather

_AT_HALF = "at_half"
"""Column of tables that tell what half of the sentences would have given."""


def unsettled(finding: Finding, tables: Tables, seeds: set[int], deciding: Outcome, index: int) -> str | None:
    """Why more text might turn the verdict, or None.

    The last doubling of the text moved the effect by so much; where a further move as far would pass the threshold,
    the estimate behind it has not converged.

    Args:
        finding: The claim.
        tables: Tables of the run.
        seeds: The seeds that it was tested on.
        deciding: The claim's condition number `index`, with its effect on all sentences.
        index: Which condition that is.
    """
    halves = {name: _at_half(reading, tables) for name, reading in finding.reads.items()}
    if halves == dict(finding.reads):
        return None
    try:
        panels = gather(halves, tables, within=seeds)
    except Absent:
        return None
    condition = finding.conditions({name: panel.estimate() for name, panel in panels.items()})[index]
    before = float(condition.values[0, deciding.column])
    threshold = condition.threshold
    if not abs(deciding.effect - threshold) <= abs(deciding.effect - before):
        return None
    return (
        f"The estimate has not converged: half of the sentences give {short(before)} {condition.unit}, all of them "
        f"{short(deciding.effect)}, and the threshold ({short(threshold)}) is no further away"
    )


def _at_half(reading: Reading, tables: Tables) -> Reading:
    told = isinstance(reading, Curve) and reading.table in tables and _AT_HALF in tables[reading.table].columns
    return replace(reading, number=_AT_HALF) if told else reading  # type: ignore[type-var]
