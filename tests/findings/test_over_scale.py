"""Claims of several runs: rows, the condition that is followed, trends, refusals."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from support.invented_scales import scale_run, study_tables, write_study

from infoflow.findings import FINDINGS_AT_SCALE, FINDINGS_BY_RUN, FINDINGS_OVER_SCALE, evaluate
from infoflow.foundation import UserError
from infoflow.results import RunFolder
from infoflow.subjects.over_scale.claims import TRENDS, ScaleRun, findings_over_scale, reported_claims

CLAIM = "representations:V-1"
TOKENS = (3e5, 1e6, 3e6)
GROWING, FALLING = (0.6, 0.9, 1.2), (1.2, 0.9, 0.6)


def runs(falls, tokens=TOKENS, **how):
    return [scale_run(f"run-{place}", *pair, **how) for place, pair in enumerate(zip(falls, tokens, strict=True))]


@pytest.fixture(scope="module")
def grown():
    return findings_over_scale(runs(GROWING))


def total(found: dict[str, pd.DataFrame]) -> pd.DataFrame:
    frame = found["trends"]
    return frame[(frame["id"] == CLAIM) & frame["condition"].str.startswith("total fall")]


def test_each_claim_has_a_row_for_each_run(grown):
    frame = grown["findings_over_scale"]
    assert list(frame.columns) == FINDINGS_OVER_SCALE.column_names
    followed = frame[frame["followed"]]
    assert not followed.duplicated(["id", "architecture", "run", "update"]).any()
    own = followed[followed["id"] == CLAIM]
    assert list(own["run"]) == ["run-0", "run-1", "run-2"]
    assert list(own["tokens"]) == list(TOKENS)
    assert list(own["verdict"]) == ["holds"] * 3
    assert set(own["condition"]) == {"fall at every layer"}
    assert set(frame.loc[frame["id"] == CLAIM, "width"]) == {64}


def test_effects_are_those_of_the_findings(grown):
    frame = grown["findings_over_scale"]
    for place, run in enumerate(runs(GROWING)):
        findings = evaluate(run.tables).set_index("id")
        own = frame[(frame["run"] == f"run-{place}") & (frame["id"] == CLAIM) & frame["decides"]].iloc[0]
        assert own["effect"] == findings.loc[CLAIM, "effect"]
        assert (own["low"], own["high"]) == (findings.loc[CLAIM, "low"], findings.loc[CLAIM, "high"])
        assert own["published"] in (1.33, 0.015)


def test_a_run_without_a_claims_tables_cannot_test_it(grown):
    frame = grown["findings_over_scale"]
    other = frame[frame["id"] == "representations:V-13"]
    assert set(other["verdict"]) == {"not testable here"}
    assert list(other["run"]) == ["run-0", "run-1", "run-2"]
    assert other["effect"].isna().all()
    assert other["reason"].str.contains("is absent").all()
    assert not (grown["trends"]["id"] == "representations:V-13").any()


@pytest.mark.parametrize(("falls", "word"), [(GROWING, "grows"), (FALLING, "falls"), ((0.9, 0.901, 0.9), "flat")])
def test_known_slopes_over_tokens(falls, word):
    row = total(findings_over_scale(runs(falls))).iloc[0]
    assert (row["axis"], row["trend"], row["scales"], row["method"]) == ("tokens", word, 3, "intervals")
    assert row["slope"] == pytest.approx((falls[2] - falls[0]), abs=0.06)
    assert row["flat_within"] == pytest.approx(0.1)


def test_over_width_at_the_same_tokens():
    wide = [
        scale_run(f"w-{width}", fall, 1e6, width=width) for width, fall in zip((64, 128, 256), GROWING, strict=True)
    ]
    rows = total(findings_over_scale(wide))
    assert list(rows["axis"]) == ["width"]
    assert list(rows["trend"]) == ["grows"]
    assert rows["slope"].iloc[0] == pytest.approx(1.0, abs=0.1)


def test_other_corpora_and_depths_are_not_mixed():
    mixed = [*runs(GROWING[:2], TOKENS[:2]), scale_run("other", 1.2, 3e6, corpus="another")]
    rows = total(findings_over_scale(mixed))
    assert list(rows["reason"]) == ["2 scales, but 3 are needed"]
    deep = [*runs(GROWING[:2], TOKENS[:2]), scale_run("deep", 1.2, 3e6, layers=6)]
    assert set(total(findings_over_scale(deep))["trend"]) == {"undetermined"}


def test_checkpoints_give_a_trend_of_their_own_by_seeds():
    courses = {100: 0.3, 300: 0.6, 1000: 0.9}
    found = findings_over_scale([scale_run("a", 0.9, 1e6, course=courses), scale_run("b", 1.2, 3e6)])
    rows = total(found).set_index("axis")
    assert rows.loc["checkpoints", "method"] == "seeds"
    assert rows.loc["checkpoints", "points"] == 3
    assert rows.loc["checkpoints", "slope"] == pytest.approx(0.6, abs=0.05)
    assert rows.loc["tokens", "points"] == 2  # ends of trainings alone
    own = found["findings_over_scale"]
    at = own[(own["id"] == CLAIM) & (own["run"] == "a") & own["followed"] & (own["update"] > 0)]
    assert sorted(at["tokens"]) == [1e5, 3e5, 1e6]
    assert reported_claims(found["trends"])[CLAIM, "bert"].endswith("over checkpoints")


def test_one_run_with_checkpoints_is_enough(tmp_path):
    alone = scale_run("a", 0.9, 1e6, course={100: 0.3, 300: 0.6, 1000: 0.9})
    found = findings_over_scale([alone])
    row = total(found).iloc[0]
    assert (row["axis"], row["trend"]) == ("checkpoints", "grows")
    folder = stored(found, [alone], tmp_path / "before")
    pd.testing.assert_frame_equal(findings_over_scale([folder])["trends"], found["trends"], check_exact=True)


def test_one_seed_between_the_ends_is_a_point_too():
    middle = scale_run("run-1", 0.9, 1e6, seeds=(0,))
    first, _, last = runs(GROWING)
    row = total(findings_over_scale([first, middle, last])).iloc[0]
    assert (row["trend"], row["method"]) == ("grows", "intervals")
    alone = runs(GROWING, seeds=(0,))
    assert total(findings_over_scale(alone)).iloc[0]["method"] == "residuals"


def test_the_order_of_runs_does_not_matter(grown):
    again = findings_over_scale(runs(GROWING)[::-1])
    for name, frame in grown.items():
        pd.testing.assert_frame_equal(frame, again[name])


def test_findings_are_those_of_the_largest_run_with_the_trend(grown):
    frame = grown[FINDINGS_AT_SCALE.name]
    assert list(frame.columns) == FINDINGS_AT_SCALE.column_names
    assert not frame["id"].duplicated().any()
    own = frame.set_index("id").loc[CLAIM]
    assert own["run"] == "run-2"
    assert own["trend"] == reported_claims(grown[TRENDS.name])[CLAIM, "bert"]


@pytest.fixture(scope="module")
def wide_grid() -> list[ScaleRun]:
    """Four runs of which the largest tests little, so that its rows come from others; one has checkpoints."""
    course = {100: 0.3, 300: 0.6, 1000: 0.9}
    made = [*runs(GROWING), scale_run("run-3", 0.9, 1e7, course=course)]
    large = made.pop(1)
    empty = {**large.tables, "mutual_information": large.tables["mutual_information"].head(0)}
    return [*made, ScaleRun(name="run-9", tables=empty, manifest=large.manifest)]


@pytest.fixture(scope="module")
def once(wide_grid) -> dict[str, pd.DataFrame]:
    return findings_over_scale(wide_grid)


def stored(found: dict[str, pd.DataFrame], given: list, path: Path) -> Path:
    """What `over_scale` leaves of a comparison, without its report."""
    folder = RunFolder(path)
    folder.update(kind="over-scale", runs=[one.entry for one in given])
    for schema in (FINDINGS_OVER_SCALE, FINDINGS_BY_RUN, FINDINGS_AT_SCALE, TRENDS):
        folder.tables.write(found[schema.name], schema)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("first", [(1, 3), (0, 1, 2)])
def test_an_earlier_comparison_stands_for_the_studies_that_it_compared(wide_grid, once, first, tmp_path):
    """Whichever were compared first: all at once give the same, to the bit, from the file."""
    before = [wide_grid[place] for place in first]
    others = [one for place, one in enumerate(wide_grid) if place not in first]
    folder = stored(findings_over_scale(before), before, tmp_path / "before")
    again = findings_over_scale([*others, folder])
    for name, frame in once.items():
        pd.testing.assert_frame_equal(frame, again[name], check_exact=True)
    twice = stored(again, wide_grid, tmp_path / "twice")
    for name, frame in findings_over_scale([twice]).items():
        pd.testing.assert_frame_equal(frame, once[name], check_exact=True)


def test_a_study_takes_the_place_of_what_was_said_of_its_models(tmp_path):
    models = [{"model": "causal-lm/seed-0", "sha256": "ab12"}]
    small, large = runs((0.6, 0.9), TOKENS[:2])
    small = ScaleRun(name="small", tables=small.tables, manifest={**small.manifest, "models": models})
    folder = stored(findings_over_scale([small, large]), [small, large], tmp_path / "before")
    measured_again = ScaleRun(name="again", tables=study_tables(0.7, 3e5), manifest=small.manifest)
    found = findings_over_scale([folder, measured_again])
    expected = findings_over_scale([measured_again, large])
    for name, frame in expected.items():
        pd.testing.assert_frame_equal(frame, found[name], check_exact=True)
    twin = ScaleRun(name="twin", tables=small.tables, manifest=small.manifest)
    with pytest.raises(UserError, match="again and twin hold the very same model causal-lm/seed-0"):
        findings_over_scale([folder, measured_again, twin])


def test_an_earlier_comparison_is_checked(tmp_path):
    given = runs(GROWING[:2], TOKENS[:2])
    folder = stored(findings_over_scale(given), given, tmp_path / "before")
    with pytest.raises(UserError, match=r"a unique name\. Got run-0, run-0, run-1\."):
        findings_over_scale([folder, given[0]])
    known = [{**given[0].entry, "weights": {"ab12": "causal-lm/seed-0"}}, given[1].entry]
    RunFolder(folder).update(runs=known)
    twice = stored(findings_over_scale(given), given, tmp_path / "twice")
    RunFolder(twice).update(runs=[{**one, "run": f"again {one['run']}"} for one in known])
    with pytest.raises(UserError, match="holds no findings of again run-0"):
        findings_over_scale([folder, twice])
    RunFolder(folder).update(runs=[{**given[0].entry, "run": "gone"}])
    with pytest.raises(UserError, match="holds no findings of gone"):
        findings_over_scale([folder, given[0]])
    RunFolder(folder).update(runs="all")
    with pytest.raises(UserError, match="does not name the runs"):
        findings_over_scale([folder, given[0]])
    RunFolder(folder).update(runs=known)
    old = replace(FINDINGS_OVER_SCALE, version=FINDINGS_OVER_SCALE.version - 1)
    RunFolder(folder).tables.write(RunFolder(folder).tables[old.name], old)
    with pytest.raises(UserError, match="compared by another version"):
        findings_over_scale([folder, given[0]])
    RunFolder(folder).tables.remove([old.name])
    with pytest.raises(UserError, match="has no table findings_over_scale"):
        findings_over_scale([folder, given[0]])


def test_what_is_refused(tmp_path):
    one = write_study(tmp_path / "one", 0.6, 3e5)
    with pytest.raises(UserError, match=r"need at least two runs, or one that kept checkpoints\. Got 1"):
        findings_over_scale([one])
    with pytest.raises(UserError, match=r"counts once\. .* was given twice"):
        findings_over_scale([one, tmp_path / "." / "one"])
    with pytest.raises(UserError, match="is not a run folder"):
        findings_over_scale([one, tmp_path / "nothing"])


def test_copies_of_one_model_and_damaged_plans_are_refused(tmp_path):
    folders = [write_study(tmp_path / name, 0.6, tokens) for name, tokens in (("one", 3e5), ("two", 1e6))]
    for folder in folders:
        RunFolder(folder).update(models=[{"model": "causal-lm/seed-0", "sha256": "ab12"}])
    with pytest.raises(UserError, match="one and two hold the very same model causal-lm/seed-0"):
        findings_over_scale(folders)
    RunFolder(folders[1]).update(models=[], plan={"model": {"width": "wide", "layers": 3}})
    with pytest.raises(UserError, match=r"two is damaged: the plan in its run.json does not give the width"):
        findings_over_scale(folders)
    RunFolder(folders[1]).update(kind="analyze")
    with pytest.raises(UserError, match="is not a study"):
        findings_over_scale(folders)
