"""Claims about alignment: what decides them, and controls that show a claim too."""

import pytest

from infoflow.findings import FINDINGS, evaluate


def verdict(tables, number):
    return evaluate(tables, [FINDINGS[f"representations:Z-{number}"]]).iloc[0]


def test_every_score_is_a_condition(published):
    note = verdict(published, 3)["note"]
    for text in ("fall of the squared error: 0.08 (", "rise of retrieval forward: 0.2 (", "rise of rsa: 0.13 ("):
        assert text in note
    assert verdict(published, 4)["effect"] == pytest.approx(0.05 - 0.02)  # the weaker of the two


@pytest.mark.parametrize("metric", ["mse", "retrieval forward", "retrieval backward", "rsa", "pwcca"])
def test_one_score_that_does_not_improve_is_enough_to_fail(make_study, metric):
    study = make_study(noise=0.0005, between=0.0005)
    worse = 1 if metric == "mse" else -1
    study.alignment["aligned", metric] = study.alignment["unaligned", metric] + worse * 0.05
    assert verdict(study.tables(), 3)["verdict"] == "fails"


@pytest.mark.parametrize(
    ("kind", "name"),
    [("shuffled", "trained on shuffled links"), ("regulariser only", "trained on the regulariser only")],
)
@pytest.mark.parametrize("number", [3, 4])
def test_claim_that_a_control_shows_does_not_hold(make_study, kind, name, number):
    study = make_study()
    for own, metric in list(study.alignment):
        if own == kind:
            study.alignment[own, metric] = study.alignment["aligned", metric]
    row = verdict(study.tables(), number)
    assert (row["verdict"], row["control_name"]) == ("undetermined", name)


def test_a_run_without_alignment_is_named(published):
    del published["alignment"]
    row = verdict(published, 3)
    assert row["verdict"] == "not testable here"
    assert row["reason"].startswith("The table alignment is absent: a plan with masked-lm and translation, and [align")


def test_a_missing_kind_is_named(published):
    table = published["alignment"]
    published["alignment"] = table[table["kind"] != "unaligned"]
    assert (
        "lignment has no matching rows with kind unaligned and metric mse and states mapped"
        in verdict(published, 3)["reason"]
    )


def test_undefined_scores_are_named(published):
    table = published["alignment"]
    published["alignment"] = table.assign(value=table["value"].where(table["metric"] != "rsa"))
    assert "table has 1 rows for one model, or no number" in verdict(published, 3)["reason"]
