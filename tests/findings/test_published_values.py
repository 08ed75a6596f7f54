"""The published value of a condition is what the source's own numbers give, by the claim's own test."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def outcomes(published_tables):
    from infoflow.findings import FINDINGS
    from infoflow.findings._evaluate import judged

    claims = [one for name, one in FINDINGS.items() if name.startswith("representations")]
    return [(one.row["id"], outcome) for one in judged(published_tables, claims) for outcome in one.outcomes]


def test_published_values_follow_from_the_published_curves(outcomes):
    wrong = {
        f"{id} {outcome.condition.name}": (outcome.effect, outcome.condition.published)
        for id, outcome in outcomes
        if not np.isnan(outcome.condition.published)
        and outcome.effect != pytest.approx(outcome.condition.published, rel=0.02, abs=0.0025)
    }
    assert wrong == {}
