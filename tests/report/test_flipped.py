"""Examples that changed sides, in the report."""

import adapted
import pytest
from drawn import drawn_figures
from findings.adapted_tables import Adapted

pytestmark = pytest.mark.slow


def test_numbers_are_neither_right_nor_wrong(tmp_path) -> None:
    """Of a regression nothing is counted, not even where an older table says that some are right."""
    given = Adapted(seeds=(1,), objectives=("masked-lm",))
    answers = given.tables(["task_answers"])["task_answers"]
    run = adapted.write_run(tmp_path, given, only=("tuning_change",))
    adapted.write_table(run, "task_answers", answers)
    assert "tuned-flipped" in drawn_figures(run, "adaptation")
    adapted.write_table(run, "task_answers", answers.assign(shape="regression"))
    assert list(drawn_figures(run, "adaptation")) == ["tuning-change"]
