"""Heads that matter on a study's own sentences, on sentences of another domain."""

import dataclasses
import shutil

import pandas as pd
import pytest

from infoflow.corpus import load_corpus
from infoflow.flow import PassOptions
from infoflow.heads import ablation_transfer
from infoflow.models import load_model
from infoflow.studies import Run, StudyPlan, study


@pytest.fixture
def other_domain(tmp_path):
    corpus = load_corpus("grammar:900").select(range(700, 740))
    path = tmp_path / "other.tsv"
    pairs = zip(corpus.column("text"), corpus.column("translation"), strict=True)
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def test_a_study_with_another_domain_trains_nothing_again(
    grown_run: Run, tiny_plan: StudyPlan, other_domain, no_drawing, monkeypatch, tmp_path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(grown_run.path, folder)
    monkeypatch.setattr("infoflow.studies._jobs.train", lambda *args, **kwargs: pytest.fail("trains again"))
    plan = dataclasses.replace(
        tiny_plan,
        objectives=("translation",),
        seeds=(0, 1),
        corpus=dataclasses.replace(tiny_plan.corpus, transfer_name=str(other_domain)),
        analysis=dataclasses.replace(tiny_plan.analysis, tables=("task_scores",)),
    )
    run = study(plan, folder, num_processes=1)
    table = run.tables["ablation_transfer"]
    assert set(table["kind"]) == {"all", "encoder-self", "decoder-self", "decoder-cross"}
    assert len(table) == 4 * 2 * 2  # kinds, seeds, trained and not
    model = load_model(folder / "models" / "translation" / "seed-1")
    expected = ablation_transfer(
        model,
        _analysed(plan, tmp_path),
        load_corpus(str(other_domain)),
        sentences=plan.analysis.ablation_sentences,
        options=PassOptions(tokens_per_batch=plan.analysis.tokens_per_batch),
    ).set_index("kind")
    own = table[(table["seed"] == 1) & table["trained"]].set_index("kind")
    pd.testing.assert_series_equal(own["value"], expected["value"])
    claim = run.findings.set_index("id").loc["heads:M5"]
    assert "absent" not in claim["reason"]


def _analysed(plan: StudyPlan, folder):
    from infoflow.studies._data import prepare

    return prepare(plan, folder).analysed
