"""Claims are found by their files, and describe themselves."""

import re
from pathlib import Path

import pandas as pd
import pytest

from infoflow.findings import FINDINGS, Finding, describe, evaluate


def test_no_two_claims_are_one():
    """What reads the same numbers and tests them alike is counted once."""
    tested = [one for one in FINDINGS.values() if isinstance(one, Finding)]
    asked = [
        (id(one.test), tuple(sorted((name, id(reading)) for name, reading in one.reads.items()))) for one in tested
    ]
    assert len(set(asked)) == len(tested)


@pytest.mark.parametrize("field", ["claim", "source", "published", "statistic"])
def test_every_claim_says_what_it_is(field):
    assert all(len(getattr(finding, field)) > 20 for finding in FINDINGS.values())


def test_every_claim_has_a_decisive_control_and_says_how_many_seeds_it_needs():
    for finding in FINDINGS.values():
        assert any(control.decisive for control in finding.controls) != bool(finding.uncontrolled)
        assert finding.minimum_seeds in (1, 3)
        assert finding.tables[-1] == "task_scores"


@pytest.mark.parametrize("name", ["V-2", "V-5", "V-6", "V-7", "V-8", "V-13", "V-14", "Z-4", "Z-5", "Z-6"])
def test_what_compares_objectives_needs_three_seeds(name):
    assert FINDINGS[f"representations:{name}"].minimum_seeds == 3


def test_description_lists_every_claim_with_test_and_control():
    text = describe()
    for finding in FINDINGS.values():
        assert f"### {finding.id}\n" in text
        assert finding.published in text
        assert all(one.name in text and finding.statistic in text for one in getattr(finding, "controls", ()))


def test_every_claim_says_how_much_of_its_source_was_read_and_what_is_ours():
    rows = evaluate({}).set_index("id")
    for finding in FINDINGS.values():
        read = finding.source_read
        assert read in ("whole", "numbers only", "abstract", "second hand") or finding.source.startswith(
            "infoflow: ours"
        )
        assert read != "second hand" or finding.source.startswith("infoflow: ours, after ")
        assert rows.loc[finding.id, "source_read"] == read
    assert "(read: second hand)" in describe()


def test_a_claim_of_which_a_part_was_not_read_is_ours():
    """Details may be second hand: "the last layer of a ResNet: unverified"."""
    not_read = re.compile(r"\b(that|what) [^;:()]*(unverified|recalled)|\((as summarised|recalled|unverified)\)")
    for finding in FINDINGS.values():
        if not_read.search(finding.published):
            assert finding.source.startswith("infoflow: ours, after "), finding.id


def test_the_table_of_simulated_studies_has_every_claim():
    """`experiments/validation/claims`: each holds where it is true, fails where it is not, and seldom holds between."""
    table = pd.read_csv(Path(__file__).parents[2] / "experiments" / "validation" / "claims" / "claims.csv")
    assert set(table["claim"]) == set(FINDINGS), "run experiments/validation/claims/run.py for claims that are new"
    rows = table.set_index("where")
    assert (rows.loc["true", "holds"] > 0.5).all()
    assert (rows.loc["refuted", "fails"] > 0.5).all()
    assert (rows.loc["border", "holds"] <= 0.05).all()


def test_a_known_cause_names_the_experiment_that_shows_it():
    """A claim that failed in a committed run of that experiment, or was examined there, links to its page."""
    studies = Path(__file__).parents[2] / "experiments" / "studies"
    examined = [one for one in FINDINGS.values() if one.cause or one.examined]
    assert len(examined) >= 25
    for finding in examined:
        assert finding.known_cause.endswith(f"See experiments/studies/{finding.examined}.")
        page = (studies / finding.examined / "README.md").read_text()
        number = finding.id.partition(":")[2]
        assert re.search(rf"\b{number}\b", page), f"{finding.id} is not on the page of {finding.examined}"


def test_a_claim_with_a_version_for_each_objective_is_judged_on_external_models_of_its_own_kind():
    kinds = {"masked LM": "masked-lm", "causal LM": "causal-lm", "translation encoder": "seq2seq"}
    versions: dict[str, dict[str, Finding]] = {}
    for one in FINDINGS.values():
        for words in kinds:
            if words in one.claim and one.given:
                versions.setdefault(one.claim.replace(words, ""), {})[words] = one
    several = [own for own in versions.values() if len(own) > 1]
    assert several
    for own in several:
        for words, one in own.items():
            assert kinds[words] in one.given.tasks
            assert not {kinds[other] for other in own if other != words} & {*one.given.tasks}
