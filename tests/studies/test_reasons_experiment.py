"""What claims say of states that are read in other ways: effects of known curves, and verdicts of their intervals.

And what becomes of arms that were collected before.
"""

import csv
import io
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from support.invented_scales import study_tables, write_study
from support.scripts import script

REASONS = Path(__file__).parents[2] / "experiments" / "studies" / "reasons"
CLAIMS, RUN = script(REASONS / "claims.py"), script(REASONS / "run.py")


def test_every_layer_is_judged_by_the_one_nearest_to_failing():
    falls = np.array([[0.5, 0.1, 0.3], [0.4, 0.3, 0.2]])  # means .45, .20, .25: the second layer, in both seeds
    assert CLAIMS.least(falls).tolist() == [0.1, 0.3]


def test_order_with_depth_leaves_the_last_layer_out():
    values = np.array([[1.0, 2.0, 3.0, -9.0], [3.0, 2.0, 1.0, 9.0]])
    np.testing.assert_allclose(CLAIMS.with_depth(values), [1.0, -1.0])


def test_two_measures_agree_where_they_order_the_layers_alike():
    one, other = np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]]), np.array([[9.0, 5.0, 4.0], [4.0, 5.0, 9.0]])
    np.testing.assert_allclose(CLAIMS.with_layers(one, other), [1.0, -1.0])


@pytest.mark.parametrize(
    ("side", "threshold", "verdict"),
    [(">", 0.0, "holds"), (">", 2.0, "undetermined"), (">", 9.0, "fails"), ("<", 9.0, "holds"), ("<", 0.0, "fails")],
)
def test_a_verdict_is_that_of_student_s_interval_over_seeds(side, threshold, verdict):
    effects = np.array([1.0, 2.0, 3.0, 2.0])
    told = CLAIMS.judged(effects, side, threshold)
    low, high = stats.t.interval(0.95, 3, loc=2.0, scale=stats.sem(effects))
    assert (told["low"], told["high"]) == pytest.approx((low, high))
    assert (told["verdict"], told["seeds"]) == (verdict, 4)


def test_one_seed_decides_nothing():
    assert CLAIMS.judged(np.array([5.0]), ">", 0.0)["verdict"] == "undetermined"


def test_arms_whose_folders_are_gone_keep_their_rows(tmp_path, monkeypatch):
    from infoflow.findings import FINDINGS_TABLE, evaluate
    from infoflow.results import RunFolder

    norms = write_study(tmp_path / "runs" / "norms", 0.6, 1e6)
    RunFolder(norms).tables.write(evaluate(study_tables(0.6, 1e6)), FINDINGS_TABLE)
    before = {name: (REASONS / f"{name}.csv").read_text() for name in ("findings", "scores", "by_frequency")}
    for name in before:
        shutil.copy(REASONS / f"{name}.csv", tmp_path)
    monkeypatch.setattr("sys.argv", ["run.py", "--out", str(tmp_path / "runs"), "--only", "--results", str(tmp_path)])
    RUN.main()
    after = {name: (tmp_path / f"{name}.csv").read_text() for name in before}
    assert after["by_frequency"] == before["by_frequency"]
    assert not (tmp_path / "distances.csv").exists()
    for name in ("findings", "scores"):
        assert others(after[name]) == others(before[name])
    scores = pd.read_csv(tmp_path / "scores.csv").query("arm == 'norms'")
    assert scores["objective"].unique().tolist() == ["causal-lm"]  # it had three
    assert sorted(scores["seed"]) == [0, 1, 2]
    assert pd.read_csv(tmp_path / "findings.csv").query("arm == 'norms'")["id"].str.startswith("representations:").all()


def others(text: str) -> list[list[str]]:
    """The rows of a table that are of another arm than `norms`."""
    return [row for row in csv.reader(io.StringIO(text)) if row[0] != "norms"]
