"""The claims about probes on invented tables: where they hold, and what makes each fail or leaves it open."""

import pytest

from infoflow.findings import FINDINGS, evaluate

from .probed_tables import BITS, Probed

pytestmark = pytest.mark.slow

TESTED = [f"probing:{name}" for name in ("T-1", "T-2", "T-3", "M-1", "M-2", "M-3", "M-5", "M-6", "P-1", "P-2", "P-3",
                                         "P-4", "P-5", "P-6")]  # fmt: skip


def verdict(name: str, given: Probed, **changes):
    tables = {table: frame for table, frame in {**given.tables(), **changes}.items() if frame is not None}
    return evaluate(tables, [FINDINGS[f"probing:{name.removeprefix('probing:')}"]]).iloc[0]


@pytest.mark.parametrize("name", TESTED)
def test_it_holds_where_every_number_is_as_published(name):
    found = verdict(name, Probed())
    assert found["verdict"] == "holds", (found["reason"], found["note"])


def _changed(**curves) -> Probed:
    given = Probed()
    for name, curve in curves.items():
        own = getattr(given, name)
        setattr(given, name, {**own, **curve} if isinstance(curve, dict) else curve)
    return given


@pytest.mark.parametrize(
    ("name", "changes", "control"),
    [("P-1", {("upos", "linear", "selectivity"): ((0.1, 0.3, 0.36, 0.35, 0.34),) * 2}, "untrained model")],
)
def test_untrained_models_that_show_it_too_leave_it_open(name, changes, control):
    found = verdict(name, _changed(scores=changes))
    assert (found["verdict"], found["control_name"]) == ("undetermined", control)


def test_a_pipeline_that_spans_little_more_than_it_must_holds():
    """Half of all orders have the last task above the first: that alone shows no pipeline."""
    order = dict(zip(("upos", "constituents", "arc-label", "coreference"), (1.0, 1.2, 1.4, 1.57), strict=True))
    found = verdict("T-1", _changed(layers=order))
    assert found["verdict"] == "holds", (found["reason"], found["note"])
    assert found["unit"] == "layers"


def test_trees_that_an_untrained_model_shows_are_not_learned():
    given = Probed()
    given.uuas, given.spearman = (given.uuas[0],) * 2, (given.spearman[0],) * 2
    assert verdict("P-4", given)["verdict"] == "undetermined"


def test_a_code_of_random_labels_as_short_as_the_task_leaves_it_open():
    found = verdict("M-1", _changed(bits={"shuffled": BITS["task"]}))
    assert found["verdict"] == "undetermined"
    assert found["control_name"] == "shuffled labels in place of the task"


@pytest.mark.parametrize(
    ("name", "table", "task"),
    [("T-1", "probe_depth", "coreference"), ("P-3", "probe_scores", "word"), ("P-6", "probe_scores", "grandparent")],
)
def test_it_cannot_be_tested_without_its_task(name, table, task):
    frame = Probed().tables()[table]
    found = verdict(name, Probed(), **{table: frame[frame["task"] != task]})
    assert found["verdict"] == "not testable here"
    assert task in found["reason"]
