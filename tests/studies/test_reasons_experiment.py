"""What claims say of states that are read in other ways: effects of known curves, and verdicts of their intervals.

And what becomes of arms that were collected before.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scripts import script

REASONS = Path(__file__).parents[2] / "experiments" / "reasons"
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
    tables = [shutil.copy(REASONS / f"{name}.csv", tmp_path) for name in ("findings", "scores", "by_frequency")]
    before = [Path(table).read_bytes() for table in tables]
    monkeypatch.setattr("sys.argv", ["run.py", "--out", str(tmp_path / "runs"), "--only", "--results", str(tmp_path)])
    RUN.main()
    assert [Path(table).read_bytes() for table in tables] == before
    assert not (tmp_path / "distances.csv").exists()
