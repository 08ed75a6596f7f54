"""Training sentences that information by clusters reads too."""

import dataclasses

import pytest
from support.undrawn import undrawn

from infoflow.results import RunFolder, Subject
from infoflow.studies import MeasureModel, Run, StudyModels, study

pytestmark = pytest.mark.slow


def with_text(plan, sentences):
    tables = ("task_scores", "mutual_information", "usable_information", "head_confidence")
    analysis = dataclasses.replace(plan.analysis, tables=tables, training_sentences=sentences, occurrences=100_000)
    return dataclasses.replace(plan, objectives=("causal-lm",), analysis=analysis)


def test_information_by_clusters_counts_training_sentences_too(tiny_plan, tmp_path):
    with undrawn():
        runs = [Run.open(study(with_text(tiny_plan, n), tmp_path / str(n), num_processes=1).path) for n in (0, 50)]
    plain, more = (run.tables["mutual_information"] for run in runs)
    counts = [frame.query("side == 'input'")["count"].max() for frame in (plain, more)]
    assert counts[1] > counts[0] + 50
    before, after = (run.tables["head_confidence"]["value"].tolist() for run in runs)
    assert before == after
    assert set(more["trained"]) == {True, False}


def test_only_their_keys_depend_on_it(tiny_plan, tmp_path):
    keys = []
    for sentences in (0, 50, 60):
        plan = with_text(tiny_plan, sentences)
        subject = Subject(recipe=plan.recipes()[0])
        keys.append(MeasureModel(models=StudyModels(plan, RunFolder(tmp_path)), subject=subject).table_keys())
    of_clusters = {each.pop("mutual_information") for each in keys}
    assert len(of_clusters) == 3
    assert keys[0] == keys[1] == keys[2]
