"""The published value of a condition is what the source's own numbers give, by the claim's own test."""

import numpy as np
import pytest

from infoflow.findings import FINDINGS, Absent, gather, judge_all, resampled_curves

from .groups import models_of


@pytest.fixture(scope="module")
def outcomes(published_tables):
    """Of every condition of every claim whose curves were published."""
    models, found = models_of(published_tables), []
    for finding in (one for name, one in FINDINGS.items() if name.startswith("representations")):
        try:
            read = gather(finding.reads, models)
        except Absent:
            continue
        curves, rows = resampled_curves(read, sorted(set.intersection(*(set(one.seeds) for one in read.values()))))
        found += [(finding.id, outcome) for outcome in judge_all(finding.conditions(curves), rows)]
    assert len({id for id, _ in found}) > 10
    return found


def test_published_values_follow_from_the_published_curves(outcomes):
    wrong = {
        f"{id} {outcome.condition.name}": (outcome.effect, outcome.condition.published)
        for id, outcome in outcomes
        if not np.isnan(outcome.condition.published)
        and outcome.effect != pytest.approx(outcome.condition.published, rel=0.02, abs=0.0025)
    }
    assert wrong == {}
