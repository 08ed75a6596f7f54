"""The loss per word against plain sums, and against the same text in another order."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from infoflow.results import Subject
from infoflow.studies import StudyPlan, Train, graph
from infoflow.subjects.adaptation.stages import MeasureDomain

PLAN = {
    "objectives": ["causal-lm", "masked-lm", "translation"],
    "corpus": {"name": "grammar:200", "vocabulary": 150, "test": 0.2, "validation": 0.1},
    "model": {"width": 16, "layers": 1, "heads": 2, "feedforward": 32},
    "training": {"updates": 2, "batch_tokens": 256, "device": "cpu"},
}
WORDS = ["rain", "falls", "where", "old", "boats", "rest", "near", "quiet", "hills", "while", "birds", "circle"]


def write_domain(folder: Path, reverse: bool = False) -> Path:
    """Sentences that the grammar cannot make, with translations."""
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(WORDS, 6)) for _ in range(60)]
    path = folder / f"domain-{reverse}.tsv"
    path.write_text("".join(f"{line}\t{line[::-1]}\n" for line in (lines[::-1] if reverse else lines)))
    return path


def stages_of(folder: Path, reverse: bool = False):
    domain = {"corpus": str(write_domain(folder, reverse)), "strategies": ["continued"], "loss_sentences": 0}
    stages = graph(StudyPlan.from_json({**PLAN, "domain": domain}), folder / "run")
    for stage in stages.of(Train):
        if not stage.is_done():
            stage.run()
    return [stage for stage in stages.of(MeasureDomain) if stage.model is None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("words")


@pytest.fixture(scope="module")
def measured(folder) -> list:
    stages = stages_of(folder)
    for stage in stages:
        stage.run()
    return stages


def rows_of(stage: MeasureDomain) -> pd.DataFrame:
    return pd.DataFrame(stage.tables()["domain_loss"]).set_index("text")


@pytest.mark.parametrize("name", PLAN["objectives"])
def test_nats_per_word_are_those_of_a_loop_over_sentences(measured, name) -> None:
    (stage,) = (one for one in measured if one.recipe.objective.name == name)
    models, recipe, row = stage.models, stage.recipe, rows_of(stage).loc["general"]
    objective, text = models.objective(recipe), models.data.analysed
    model, data = models.load(Subject(recipe=recipe)), models.held_out(recipe, text)

    total, predicted, tokens = 0.0, 0, 0
    for index in range(len(text)):
        batch = data.batch(objective.for_evaluation(), np.array([index]), ("evaluation-noise", 0), 0)
        with torch.inference_mode():
            (term,) = objective.loss(model.module, batch, batch.noise).values()
        total, predicted = total + float(term.total), predicted + term.count
        rows = data.target if name == "translation" else data.source
        tokens += int((np.asarray(rows.row(index)) > 4).sum())  # the first five are special
    side = "translation" if name == "translation" else "text"
    words = sum(len(sentence.split()) for sentence in text.column(side))
    assert row["value"] == pytest.approx(total / predicted * tokens / words, rel=1e-5)
    assert row["count"] == words
    assert row["low"] < row["value"] < row["high"]
    assert row["baseline"] > 0


def test_the_order_of_sentences_changes_nothing(measured, folder) -> None:
    stage, again = measured[0], stages_of(folder, reverse=True)[0]  # a causal LM, whose loss has no noise
    assert stage.key != again.key
    again.run()
    found, wanted = rows_of(again), rows_of(stage)
    assert found["count"].tolist() == wanted["count"].tolist()
    np.testing.assert_allclose(found["value"], wanted["value"], rtol=1e-5)
