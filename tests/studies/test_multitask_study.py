"""A study of one model with several tasks: data, scores of each task, and what is measured."""

import numpy as np
import pytest
import torch

from infoflow import models
from infoflow.foundation import UserError
from infoflow.objectives import UNSUPERVISED, MultiTask, make_objective
from infoflow.results import RunFolder, Subject
from infoflow.studies import AnalysisPlan, CorpusPlan, StudyModels, StudyPlan, study
from infoflow.training import ModelConfig, TrainConfig

CORPUS = CorpusPlan(name="grammar:600", vocabulary=200, joint_vocabulary=True, validation=0.1, test=0.2)


def plan(**settings) -> StudyPlan:
    return StudyPlan(
        objectives=("multitask",),
        corpus=settings.pop("corpus", CORPUS),
        model=ModelConfig(width=16, layers=1, heads=2, feedforward=32, positions=settings.pop("positions", 64)),
        training=TrainConfig(updates=3, warmup=1, batch_tokens=256),
        analysis=AnalysisPlan(tables=("task_scores", "head_confidence"), sentences=60, bleu_sentences=4),
        **settings,
    )


@pytest.fixture(scope="module")
def read() -> list[str]:
    """The texts that were translated for a score."""
    return []


@pytest.fixture(scope="module")
def run(tmp_path_factory, read):
    def spied(model, sources, **options):
        read.extend(sources)
        return translate(model, sources, **options)

    translate = models.translate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("infoflow.models.translate", spied)
        return study(plan(), tmp_path_factory.mktemp("run"), num_processes=1)


def test_each_task_has_its_loss_and_translation_its_bleu(run, read) -> None:
    scores = run.tables["task_scores"].query("trained and split == 'test'").set_index("metric")
    assert {"loss", "perplexity", "bleu", "loss of translation", "loss of span-corruption"} == set(scores.index)
    assert len(read) == 4
    assert all(text.startswith("translate English to French: ") for text in read)
    assert scores.loc["loss of translation", "value"] != scores.loc["loss of span-corruption", "value"]
    assert (scores["low"] <= scores["value"]).all()


@torch.no_grad()
def test_the_loss_of_a_task_is_that_of_its_objective_on_every_sentence(run) -> None:
    """A loop over the held-out sentences, each told its task, in the noise of the objective alone."""
    models = StudyModels(plan(), RunFolder(run.path))
    (recipe,) = models.plan.recipes()
    model, held_out = models.load(Subject(recipe=recipe)), models.held_out(recipe, models.data.analysed)
    prefixes = dict(zip(MultiTask().tasks, MultiTask().prefixes, strict=True))
    scores = run.tables["task_scores"].query("trained and split == 'test'").set_index("metric")["value"]
    for task, prefix in prefixes.items():
        total = count = 0
        for row in range(len(held_out.source.lengths)):
            batch = held_out.batch(make_objective(task), np.array([row]), ("evaluation-noise", 0), 0)
            before = torch.tensor(held_out.vocabulary.ids[prefix])[None]
            ids = torch.cat([batch.input_ids[:, :1], before, batch.input_ids[:, 1:]], dim=1)
            logits = model.module(input_ids=ids, decoder_input_ids=batch.decoder_input_ids).logits[0]
            wanted = batch.labels[0]
            losses = -logits.log_softmax(-1).gather(1, wanted.clamp(min=0)[:, None])[:, 0]
            total += float(losses[wanted != UNSUPERVISED].sum())
            count += int((wanted != UNSUPERVISED).sum())
        assert scores[f"loss of {task}"] == pytest.approx(total / count, rel=1e-4)


def test_text_and_prefix_fit_the_model_s_positions(tmp_path) -> None:
    models = StudyModels(plan(), RunFolder(tmp_path))
    (recipe,) = models.plan.recipes()
    rows, objective = models.training_data(recipe), models.objective(recipe)
    cut = models.data.arranged(models.data.train, objective.added_tokens(rows.vocabulary) + 4, objective, "sentence")
    assert cut.source.lengths.max() == 4
    longest = int(np.argmax(rows.source.lengths))
    assert rows.batch(objective, np.array([longest]), ("noise",), 0).input_ids.shape[1] <= 64


def test_the_encoder_is_measured_and_the_decoder_is_not(run) -> None:
    assert set(run.tables["head_confidence"]["stack"]) == {"encoder"}


def test_a_prefix_that_leaves_no_room_is_refused(tmp_path) -> None:
    models = StudyModels(plan(positions=6), RunFolder(tmp_path))
    with pytest.raises(UserError, match="leaves no room for a text"):
        models.training_data(models.plan.recipes()[0])


def test_two_vocabularies_are_refused(tmp_path) -> None:
    apart = CorpusPlan(name="grammar:600", vocabulary=200)
    with pytest.raises(UserError, match="joint_vocabulary = true"):
        study(plan(corpus=apart), tmp_path / "run", num_processes=1)
