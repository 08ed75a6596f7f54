"""The loss per word against plain sums, and against another vocabulary of the same model."""

import numpy as np
import pytest
import torch

from infoflow.results import Subject
from infoflow.studies import StudyModels, StudyPlan
from infoflow.subjects.adaptation.stages._specialise import loss_per_word

PLAN = {
    "objectives": ["causal-lm", "masked-lm", "translation"],
    "corpus": {"name": "grammar:300", "vocabulary": 150, "test": 0.3, "validation": 0.1},
    "model": {"width": 16, "layers": 1, "heads": 2, "feedforward": 32},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    from infoflow.results import RunFolder

    return StudyModels(StudyPlan.from_json(PLAN), RunFolder(tmp_path_factory.mktemp("run") / "run"))


@pytest.mark.parametrize("name", ["causal-lm", "masked-lm", "translation"])
def test_nats_per_word_are_those_of_a_loop_over_sentences(models, name) -> None:
    recipe = next(one for one in models.plan.recipes() if one.objective.name == name)
    objective, text = models.objective(recipe), models.data.analysed.select(np.arange(20))
    model = models.load(Subject(recipe=recipe).before_training())
    data, training = models.held_out(recipe, text), models.held_out(recipe, models.data.train)
    row = loss_per_word(model, objective, data, text, training)

    total, predicted, tokens = 0.0, 0, 0
    for index in range(20):
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


def test_the_order_of_sentences_changes_nothing(models) -> None:
    recipe = models.plan.recipes()[0]
    objective, model = models.objective(recipe), models.load(Subject(recipe=recipe).before_training())
    training = models.held_out(recipe, models.data.train)
    text = models.data.analysed.select(np.arange(12))
    values = [
        loss_per_word(model, objective, models.held_out(recipe, part), part, training)["value"]
        for part in (text, text.select(np.arange(12)[::-1]))
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-5)
