"""The claim about transplanted heads on invented tables: where it holds, fails, is left open, or cannot be tested."""

import numpy as np
import pytest
from support.transplanted import GAIN, STEPS, Transplants

from infoflow.findings import FINDINGS, evaluate

from .groups import models_of


def verdict(given: Transplants, **changes):
    tables = {name: table for name, table in {**given.tables(), **changes}.items() if table is not None}
    return evaluate(tables, [FINDINGS["heads:H1"]]).iloc[0]


def gains(**changes) -> dict[str, tuple[float, ...]]:
    return {**GAIN, **changes}


def test_it_holds_where_specialised_heads_help_and_shuffled_ones_do_not():
    found = verdict(Transplants())
    assert found["verdict"] == "holds", found["reason"]
    assert (found["seeds"], found["threshold"], found["unit"]) == (3, 0.0, "nats per token")
    assert found["low"] > 0
    assert found["note"].count(": holds") == 4
    for name in ("over the whole learning curve", "at its end"):
        assert f"{name}, heads that learn on" in found["note"]
        assert f"{name}, frozen heads" in found["note"]


@pytest.mark.parametrize("frozen", [False, True])
def test_one_way_of_putting_them_in_is_enough(frozen):
    found = verdict(Transplants(frozen=(frozen,)))
    assert found["verdict"] == "holds", found["reason"]
    assert found["note"].count(": holds") == 2


def test_what_is_faster_and_no_better_in_the_end_is_undetermined():
    found = verdict(Transplants(gain=gains(specialised=(0.0, 0.02, 0.2, 0.15, 0.01))))
    assert found["verdict"] == "undetermined"
    assert "at its end" in found["reason"]
    assert found["note"].count(": holds") == 2


@pytest.mark.parametrize(
    ("shuffled", "named"),
    [
        (tuple(gain + 0.002 * (gain > 0) for gain in GAIN["specialised"]), "shuffled specialised heads"),
        (tuple(0.9 * gain for gain in GAIN["specialised"]), "shuffled specialised heads"),
    ],
)
def test_a_control_that_shows_it_too_leaves_it_open(shuffled, named):
    found = verdict(Transplants(gain=gains(shuffled=shuffled)))
    assert found["verdict"] == "undetermined"
    assert found["control_name"].startswith(named)
    assert "The control shows it too" in found["reason"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (Transplants(seeds=(1, 2)), "it needs 3 seeds"),
        (Transplants(gain={"specialised": GAIN["specialised"]}), "no model with both random and specialised heads"),
        (Transplants(objectives=("masked-lm",)), "no translation"),
    ],
)
def test_it_cannot_be_tested_without(given, reason):
    found = verdict(given)
    assert found["verdict"] == "not testable here"
    assert reason.lower() in found["reason"].lower(), found["reason"]


def test_curves_of_other_points_are_not_compared():
    table = Transplants().tables()["transplant_curves"]
    cut = table[(table["arm"] != "random") | (table["step"] != STEPS[2])]
    assert "different points" in verdict(Transplants(), transplant_curves=cut)["reason"]


def test_the_numbers_are_those_of_the_definition():
    """Loops over seeds, ways and points, from the table's rows alone."""
    tables = Transplants().tables()
    found = FINDINGS["heads:H1"].reads["gain"].estimates(models_of(tables))
    losses = tables["transplant_curves"].query("metric == 'loss'")
    for unit, values in zip(found.units, found.values_UK, strict=True):
        expected = []
        for at_end in (False, True):
            for frozen in (False, True):
                gap = []
                for step in STEPS[1:]:
                    own = losses[(losses["seed"] == unit[0]) & (losses["frozen"] == frozen) & (losses["step"] == step)]
                    random = own.loc[own["arm"] == "random", "value"]
                    assert len(random) == 2
                    gap.append(sum(random) / 2 - float(own.loc[own["arm"] == "specialised", "value"].iloc[0]))
                area = sum(
                    (gap[i] + gap[i + 1]) / 2 * (np.log(STEPS[i + 2]) - np.log(STEPS[i + 1]))
                    for i in range(len(gap) - 1)
                )
                expected.append(gap[-1] if at_end else area / (np.log(STEPS[-1]) - np.log(STEPS[1])))
        np.testing.assert_allclose(values, expected, rtol=1e-9)
