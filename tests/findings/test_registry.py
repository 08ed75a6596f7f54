"""Claims are found by their files, and describe themselves."""

import pytest


def test_every_file_of_claims_holds_one_claim():
    import pkgutil

    from infoflow.findings import FINDINGS, claims

    files = [module.name for module in pkgutil.iter_modules(claims.__path__)]
    named = sorted(name.replace(":", "_").replace("-", "").lower() for name in FINDINGS)
    assert sorted(files) == named


def test_a_new_file_is_a_new_claim(tmp_path, monkeypatch):
    from infoflow.findings import FINDINGS, claims
    from infoflow.findings._registry import _discover

    source = (
        "from dataclasses import replace\n"
        "from infoflow.findings.claims.representations_v1 import FINDING as OTHER\n"
        "NEW = replace(OTHER, id='representations:V-99')\n"
        "del OTHER\n"
    )
    (tmp_path / "representations_v99.py").write_text(source)
    monkeypatch.setattr(claims, "__path__", [*claims.__path__, str(tmp_path)])
    assert set(_discover()) == {*FINDINGS, "representations:V-99"}


@pytest.mark.parametrize("field", ["claim", "source", "published", "statistic"])
def test_every_claim_says_what_it_is(field):
    from infoflow.findings import FINDINGS, describe

    tested = [finding for finding in FINDINGS.values() if finding.tables]
    assert all(len(getattr(finding, field)) > 20 for finding in tested)
    untested = [finding for finding in FINDINGS.values() if not finding.tables]
    assert [finding.id for finding in untested] == ["dynamics:L5", "probing:M-4"]
    assert all(len(finding.why) > 20 and finding.why in describe() for finding in untested)


def test_every_claim_has_a_decisive_control_and_says_how_many_seeds_it_needs():
    from infoflow.findings import FINDINGS

    for finding in FINDINGS.values():
        if not finding.tables:  # untested
            continue
        assert any(control.decisive for control in finding.controls) != bool(finding.uncontrolled)
        assert finding.minimum_seeds in (1, 3)
        assert finding.tables[-1] == "task_scores"


@pytest.mark.parametrize("name", ["V-2", "V-5", "V-6", "V-7", "V-8", "V-13", "V-14", "Z-4", "Z-5", "Z-6"])
def test_what_compares_objectives_needs_three_seeds(name):
    from infoflow.findings import FINDINGS

    assert FINDINGS[f"representations:{name}"].minimum_seeds == 3


def test_description_lists_every_claim_with_test_and_control():
    from infoflow.findings import FINDINGS, describe

    text = describe()
    for finding in FINDINGS.values():
        assert f"### {finding.id}\n" in text
        assert finding.published in text
        assert all(one.name in text and finding.statistic in text for one in getattr(finding, "controls", ()))
