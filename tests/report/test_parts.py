"""What the report says of a study's parts and of what leaks between them."""

import copy
import html
import re

import pytest

from infoflow.report import write_report
from infoflow.results import RunFolder, read_table

SPLIT = {
    "rule": "near-duplicates",
    "left_out": {"corpus": {"not of 1 to 10 words": 5}, "train": {"equal target": 1000, "near duplicate": 234}},
    "leakage": {
        "validation": {"sources": 0.5, "near_sources": 0.5},
        "test": {"sources": 0.0, "targets": 0.1004, "near_sources": 0.337, "near_targets": 0.31},
    },
}


def parts_text(run):
    """What the page says under its heading; "" without one."""
    page = write_report(run).read_text(encoding="utf-8")
    found = re.search(r"<h3>Training and test</h3>\s*<p>(.*?)</p>", page, re.DOTALL)
    return html.unescape(found[1]) if found else ""


@pytest.fixture
def told(tmp_path):
    def tell(plan="near-duplicates", **changes):
        run = RunFolder(tmp_path)
        split = {**copy.deepcopy(SPLIT), **changes}
        parts = {"train": 124545, "validation": 2848, "test": 16967, "analysed": 9}
        run.update(kind="study", plan={"corpus": {"split": plan}}, corpus={"parts": parts, "split": split})
        return parts_text(run)

    return tell


def test_sizes_rule_losses_and_leaks_are_told(told):
    text = told()
    assert "124,545 rows for training, 2,848 for validation and 16,967 for testing" in text
    assert "no two parts share a source, a target, or near duplicates" in text
    assert "1,234 rows were left out of training" in text
    assert "0.0% of its sources (33.7% with near duplicates) and 10.0% of its targets (31.0% with near" in text
    assert "too little" not in text


def test_a_weaker_rule_published_parts_and_one_language_are_told(told):
    text = told(rule="both-sides", leakage={"test": {"sources": 0.25, "near_sources": 0.5}}, left_out={})
    assert "no two parts share a source or a target (“near-duplicates” would have left too few rows). 0 rows" in text
    assert "with training 25.0% of its sources (50.0% with near duplicates)." in text
    text = told(rule=None)
    assert "validation and test part were published with it. " in text
    assert "too little" not in text


def test_the_sentence_is_in_the_methods_where_parts_were_counted(study, report, told, tmp_path):
    assert "Training and test" not in report.read_text(encoding="utf-8")
    alone = told()
    run = RunFolder(tmp_path)
    scores = read_table(study.path / "tables" / "task_scores.parquet")
    run.tables.write(scores.frame, scores.schema)
    run.update(models=study.read()["models"])
    assert parts_text(run) == alone != ""
    assert 'id="task-scores"' in run.report.read_text(encoding="utf-8")
