"""Heads that matter on a study's own sentences, on sentences of another domain."""

import dataclasses
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from infoflow.corpus import load_corpus
from infoflow.flow import PassOptions
from infoflow.foundation import UserError
from infoflow.heads import Ablation, ablation_transfer
from infoflow.models import load_model
from infoflow.studies import MeasureModel, Run, StudyModels, StudyPlan, graph, prepare, study


@pytest.fixture
def other_domain(tmp_path):
    corpus = load_corpus("grammar:900").select(range(700, 740))
    path = tmp_path / "other.tsv"
    pairs = zip(corpus.column("text"), corpus.column("translation"), strict=True)
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


@pytest.mark.slow
def test_a_study_with_another_domain_trains_nothing_again(
    grown_run: Run, tiny_plan: StudyPlan, other_domain, no_drawing, monkeypatch, tmp_path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(grown_run.path, folder)
    monkeypatch.setattr(StudyModels, "train_into", lambda *args, **kwargs: pytest.fail("trains again"))
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
    assert json.loads((folder / "run.json").read_text())["corpus"]["other_domain"]["sentences"] == 40
    claim = run.findings.set_index("id").loc["heads:M5"]
    assert "absent" not in claim["reason"]


def test_sentences_of_the_study_are_no_other_domain(tiny_plan: StudyPlan, other_domain, tmp_path) -> None:
    def prepared(name: str):
        corpus = dataclasses.replace(tiny_plan.corpus, transfer_name=name)
        return prepare(dataclasses.replace(tiny_plan, corpus=corpus), tmp_path)

    with pytest.raises(UserError, match="also occurs in another part of the study"):
        prepared(tiny_plan.corpus.name)
    data = prepared(str(other_domain))
    mixed = tmp_path / "mixed.tsv"
    own = zip(data.analysed.column("text"), data.analysed.column("translation"), strict=True)
    mixed.write_text("".join(f"{s}\t{t}\n" for s, t in own) + other_domain.read_text("utf-8"), encoding="utf-8")
    assert list(prepared(str(mixed)).other_domain.column("text")) == list(data.other_domain.column("text"))


def test_another_measure_or_domain_is_another_table(tiny_plan: StudyPlan, other_domain, monkeypatch, tmp_path) -> None:
    def key(domain: Path) -> str:
        corpus = dataclasses.replace(tiny_plan.corpus, transfer_name=str(domain))
        plan = dataclasses.replace(tiny_plan, objectives=("masked-lm",), corpus=corpus)
        keys = {stage.table_keys()["ablation_transfer"] for stage in graph(plan, tmp_path / "run").of(MeasureModel)}
        assert len(keys) == 2, "the model's and its control's"
        return max(keys)

    smaller = tmp_path / "smaller.tsv"
    smaller.write_text("".join(other_domain.read_text("utf-8").splitlines(keepends=True)[:30]), encoding="utf-8")
    keys = {key(other_domain), key(smaller)}
    monkeypatch.setattr(Ablation, "table", dataclasses.replace(Ablation.table, version=99))
    assert len({*keys, key(other_domain)}) == 3


def _analysed(plan: StudyPlan, folder):
    return prepare(plan, folder).analysed
