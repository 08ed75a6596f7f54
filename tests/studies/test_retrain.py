"""Training on with closed self-attention in a study: beside the same training with all open, and resumable."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from support.undrawn import undrawn

from infoflow.flow import PassOptions, Reader
from infoflow.foundation import UserError, file_digest
from infoflow.heads import ENCODER_CONTEXT, closed_attention, closings_of, context_bleu, context_scores
from infoflow.results import KEYS, UNTRAINED, Subject
from infoflow.studies import ContextPlan, Retrain, StudyPlan, Train, at_most, graph, study

pytestmark = pytest.mark.slow

MODEL = "translation/seed-0"
SETTINGS = {"on": True, "updates": 4, "learning_rate": 1e-2, "sentences": 20, "bleu_sentences": 6, "save_every": 0}
PLACE = ["kind", "which", "number", "retrained", "metric"]


@pytest.fixture(scope="module")
def plan() -> StudyPlan:
    return StudyPlan.from_json(
        {
            "objectives": ["translation"],
            "corpus": {"name": "grammar:300", "vocabulary": 120, "test": 0.3, "validation": 0.1},
            "model": {"width": 16, "layers": 2, "heads": 2, "feedforward": 32},
            "training": {"updates": 40, "batch_tokens": 256, "learning_rate": 1e-2},
            "analysis": {
                "tables": ["task_scores", "encoder_context"],
                "bleu_sentences": 4,
                "beams": 1,
                "context_sentences": 20,
            },
            "context": SETTINGS,
        }
    )


@pytest.fixture(scope="module")
def run(plan, tmp_path_factory):
    with undrawn(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return study(plan, tmp_path_factory.mktemp("runs") / "closed", num_processes=1)


@pytest.fixture(scope="module")
def models(run):
    (training,) = run.stages.of(Train)
    return training.models


@pytest.fixture(scope="module")
def table(run) -> pd.DataFrame:
    return run.tables["encoder_context"]


def at(table: pd.DataFrame, *place) -> pd.Series:
    own = table[table["trained"]]
    (index,) = np.flatnonzero((own[PLACE].astype(object).to_numpy() == np.array(place, dtype=object)).all(axis=1))
    return own.iloc[index]


def retrained(run, closed: str):
    (stage,) = (stage for stage in run.stages.of(Retrain) if stage.closed == closed)
    return stage._retrained(closed)


def loss_of(models, model, closings, place):
    reader = Reader(
        model, models.data.analysed, max_length=PassOptions().max_length, seed=0, decoder=True,
        ranks_from=models.data.train,
    )  # fmt: skip
    return context_scores(reader, closings, 20).scores()[place, 0]


def test_every_kind_stands_beside_the_control_in_one_table(table) -> None:
    assert set(table.columns) == {*ENCODER_CONTEXT.column_names, *(column.name for column in KEYS)}
    later = table[table["retrained"] > 0]
    assert (later["retrained"] == 4).all()
    assert later["trained"].all()
    found = {tuple(row) for row in later[["kind", "which", "number", "metric"]].to_numpy()}
    metrics = ("loss", "share", "bleu") if "share" in set(later["metric"]) else ("loss", "bleu")
    kinds = [("", "none", 0), ("encoder-self", "all", 2), ("decoder-self", "all", 2)]
    assert found == {(*kind, metric) for kind in kinds for metric in metrics}
    before = table[table["trained"] & (table["retrained"] == 0) & (table["metric"] == "bleu")]
    assert {tuple(row) for row in before[["kind", "which", "number"]].to_numpy()} == {
        (kind, *place) for kind in ("encoder-self", "decoder-self") for place in (("all", 2), ("upper", 1))
    }
    assert set(table.loc[~table["trained"], "update"]) == {UNTRAINED}


def test_numbers_are_those_of_the_retrained_models(run, models, table) -> None:
    (recipe,) = models.plan.recipes()
    converged = models.load(Subject(recipe=recipe))
    control, closed = retrained(run, ""), retrained(run, "encoder-self")
    whole = closings_of(closed, "encoder-self")[0]
    opened, before = loss_of(models, control, [], 0), loss_of(models, converged, [], 0)
    none = at(table, "", "none", 0, 4, "loss")
    assert none["value"] == pytest.approx(opened - before, abs=1e-6)
    assert none["baseline"] == pytest.approx(before, rel=1e-6)
    row = at(table, "encoder-self", "all", 2, 4, "loss")
    assert row["value"] == pytest.approx(loss_of(models, closed, [whole], 1) - opened, abs=1e-6)
    assert row["baseline"] == pytest.approx(opened, rel=1e-6)
    few = at_most(models.data.analysed, 6)
    scores = [context_bleu(model, few, [whole]).scores()[:, 0] for model in (converged, control, closed)]
    at_test = at(table, "encoder-self", "all", 2, 0, "bleu")
    assert at_test["value"] == pytest.approx(scores[0][1] - scores[0][0])
    assert at(table, "encoder-self", "all", 2, 4, "bleu")["value"] == pytest.approx(scores[2][1] - scores[1][0])
    test_time = at(table, "encoder-self", "all", 2, 0, "loss")
    assert test_time["value"] == pytest.approx(loss_of(models, converged, [whole], 1) - before, abs=1e-6)


def test_it_is_the_closed_model_that_was_trained(run, models) -> None:
    """By hand: the same updates inside `closed_attention`, in another folder."""
    (recipe,) = models.plan.recipes()
    weights = {}
    for closed in ("", "encoder-self"):
        weights[closed] = retrained(run, closed).module.state_dict()
    other = models.load(Subject(recipe=recipe))
    blocks = [("encoder", 0), ("encoder", 1)]
    folder = run.path / "by-hand"
    how = {"learning_rate": 1e-2, "warmup": 0.1, "schedule": "linear", "end_learning_rate": 0.0, "save_every": 0}
    with closed_attention(other, blocks):
        models.train_into(recipe, folder, [], other.module, updates=4, evaluate_every=0, **how)
    for name, value in other.module.state_dict().items():
        assert torch.equal(value, weights["encoder-self"][name]), name
    name = "encoder.encoder.layer.0.attention.self.query.weight"
    moved = {closed: (state[name] - models.load(Subject(recipe=recipe)).module.state_dict()[name]).abs().max()
             for closed, state in weights.items()}  # fmt: skip
    assert moved["encoder-self"] < moved[""] / 2  # of queries that mean nothing only the weight decay is left


def test_an_interrupted_retraining_ends_with_the_same_weights(run, plan, tmp_path, monkeypatch) -> None:
    again = dataclasses.replace(plan, context=dataclasses.replace(plan.context, save_every=2, kinds=("encoder-self",)))
    stages = graph(again, tmp_path / "cut")
    todo = [stage for stage in stages if isinstance(stage, Train | Retrain)]
    original, calls = torch.optim.AdamW.step, []

    def step(*args, **kwargs):
        calls.append(1)
        if len(calls) in (plan.training.updates + 4, plan.training.updates + 4 + 5):
            raise KeyboardInterrupt  # in the last update of the control, then in the third of the closed model
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    interrupted = 0
    for _ in range(4):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for stage in todo:
                    stage.run()
            break
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted == 2
    assert all(stage.is_done() for stage in todo)
    models = sorted((run.path / "work" / "retraining").glob("*/model/model.safetensors"))
    digests = {path.parent.parent.name: file_digest(path) for path in models}
    cut = {
        path.parent.parent.name: file_digest(path)
        for path in (tmp_path / "cut" / "work" / "retraining").glob("*/model/model.safetensors")
    }
    assert len(cut) == 2
    assert cut.items() <= digests.items()
    whole = pd.DataFrame(run.tables["encoder_context"])
    for stage in todo[2:]:
        frame = stage.tables()["encoder_context"]
        same = whole[(whole["kind"] == stage.closed) & (whole["retrained"] == 4)].reset_index(drop=True)
        pd.testing.assert_frame_equal(frame[whole.columns], same, check_dtype=False, rtol=0, atol=0)


def test_stages_stand_behind_what_they_need_and_published_models_stay(run, plan) -> None:
    stages = run.stages
    needs = {stage.label: [stages[key].label for key in stage.needs] for stage in stages.of(Retrain)}
    control = f"retrain {MODEL}, all open"
    assert needs == {
        control: [f"train {MODEL}"],
        f"retrain {MODEL}, encoder-self closed": [control],
        f"retrain {MODEL}, decoder-self closed": [control],
    }
    plain = graph(dataclasses.replace(plan, context=ContextPlan()), run.folder)
    assert not plain.of(Retrain)
    assert [stage.key for stage in plain.of(Train)] == [stage.key for stage in stages.of(Train)]
    assert [stage.kind for stage in graph(plan, run.folder).missing()] == ["check"]
    shorter = dataclasses.replace(plan, context=dataclasses.replace(plan.context, updates=3))
    assert sum(isinstance(stage, Retrain) for stage in graph(shorter, run.folder).missing()) == 3


def test_models_of_one_stack_close_what_they_have(plan, tmp_path) -> None:
    objectives = ("masked-lm", "causal-lm")
    asked = dataclasses.replace(plan, objectives=objectives, context=ContextPlan(on=True, objectives=objectives))
    found = [(stage.recipe.objective.name, stage.closed) for stage in graph(asked, tmp_path).of(Retrain)]
    assert found == [("masked-lm", ""), ("masked-lm", "encoder-self"), ("causal-lm", ""), ("causal-lm", "decoder-self")]


def test_what_cannot_be_scored_is_refused() -> None:
    plan = {"objectives": ["denoise-full"], "context": {"on": True, "objectives": ["denoise-full"]}}
    with pytest.raises(UserError, match=r"context\.objectives must be language models .* Got denoise-full"):
        StudyPlan.from_json(plan)
    plan = {"objectives": ["electra"], "context": {"on": True, "objectives": ["electra"]}}
    with pytest.raises(UserError, match=r"context\.objectives must train a single model"):
        StudyPlan.from_json(plan)
