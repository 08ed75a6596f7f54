"""Tests a claim on half of the sentences: an estimate that still moves supports no verdict."""

from ._condition import Condition, Outcome, short
from ._finding import Finding
from ._model_group import Absent, ModelGroup
from ._table import Reading, gather

_AT_HALF = "at_half"
"""Column with the number that half of the sentences would have given."""


def unsettled(finding: Finding, models: ModelGroup, seeds: set[int], outcomes: list[Outcome], index: int) -> str | None:
    """Why more text might turn the verdict, or None.

    The last doubling of the text moved an effect; if another move of the same size would cross the threshold, the
    estimate has not converged. A claim holds by all of its conditions, and fails by the deciding one.

    Args:
        finding: The claim.
        models: ModelGroup of the run.
        seeds: The seeds of the test.
        outcomes: Outcomes of its conditions on all sentences.
        index: Index of the deciding condition.
    """
    halves = {name: _at_half(reading, models) for name, reading in finding.reads.items()}
    if halves == dict(finding.reads):
        return None
    try:
        found = gather(halves, models, within=seeds)
    except Absent:
        return None
    before = finding.conditions({name: one.mean() for name, one in found.items()})
    at_stake = range(len(outcomes)) if outcomes[index].verdict == "holds" else [index]
    return next((reason for i in at_stake if (reason := _moves(outcomes[i], before[i]))), None)


def _moves(outcome: Outcome, before: Condition) -> str | None:
    """How the effect moved, if that reaches as far as the distance to its threshold."""
    half, threshold = float(before.values[0, outcome.column]), before.threshold
    if not abs(outcome.effect - threshold) <= abs(outcome.effect - half):
        return None
    return (
        f"{outcome.condition.name} has not converged: half of the sentences give {short(half)} {before.unit}, all of "
        f"them {short(outcome.effect)}, and the threshold ({short(threshold)}) is no further away"
    )


def _at_half(reading: Reading, models: ModelGroup) -> Reading:
    told = all(_AT_HALF in models.tables.get(name, ()) for name in reading.sources)
    return reading.changed(number=_AT_HALF) if told else reading
