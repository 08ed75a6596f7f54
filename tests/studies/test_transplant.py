"""Transplants in a study: arms that differ in their heads alone, curves on the same sentences, resumed to the bit."""

import dataclasses
import os
import signal

import numpy as np
import pandas as pd
import pytest
import torch
from support.undrawn import undrawn

from infoflow.foundation import UserError
from infoflow.heads import TRANSPLANT_CURVES, TRANSPLANTED_HEADS, Head, head_slices
from infoflow.models import load_model
from infoflow.pruning import quality, rank_heads
from infoflow.results import KEYS, UNTRAINED, Subject
from infoflow.studies import Check, StudyModels, StudyPlan, Train, at_most, graph, study
from infoflow.subjects.transplant.settings import TransplantPlan
from infoflow.subjects.transplant.stages import ChooseHeads, Transplant
from infoflow.training import Snapshots, Step, TrainingHook, TrainingInterrupted

pytestmark = pytest.mark.slow

SETTINGS = {
    "on": True,
    "heads": 2,
    "updates": 5,
    "schedule": "log:3",
    "random_draws": 2,
    "rank_sentences": 12,
    "role_sentences": 20,
    "score_sentences": 12,
    "save_every": 2,
}
PLAN = {
    "objectives": ["translation"],
    "corpus": {"name": "grammar:300", "vocabulary": 120, "test": 0.3, "validation": 0.1},
    "model": {"width": 16, "layers": 2, "heads": 4, "feedforward": 32, "initializer_range": 0.3},
    "training": {"updates": 8, "batch_tokens": 128, "weight_decay": 0.1, "learning_rate": 1e-2},
    "analysis": {"tables": ["task_scores"], "untrained": False, "bleu_sentences": 4, "beams": 2},
    "transplant": SETTINGS,
}
ARM = ["arm", "frozen", "draw"]
HEAD = ["stack", "kind", "layer", "head"]


@pytest.fixture(scope="module")
def plan() -> StudyPlan:
    return StudyPlan.from_json(PLAN)


@pytest.fixture(scope="module")
def run(plan, tmp_path_factory):
    with undrawn():
        return study(plan, tmp_path_factory.mktemp("runs") / "transplanted", num_processes=1)


@pytest.fixture(scope="module")
def models(run) -> StudyModels:
    (training,) = run.stages.of(Train)
    return training.models


def changed(plan: StudyPlan, **changes) -> StudyPlan:
    return dataclasses.replace(plan, transplant=dataclasses.replace(plan.transplant, **changes))


def stage_of(stages, name: str, frozen: bool, draw: int = 0) -> Transplant:
    asked = (name, frozen, draw)
    (found,) = [s for s in stages.of(Transplant) if (s.variant.name, s.variant.frozen, s.variant.draw) == asked]
    return found


def heads_of(run, arm: str, draw: int = 0) -> list[Head]:
    rows = run.tables["transplanted_heads"].query("arm == @arm and draw == @draw").sort_values("rank")
    return [(str(s), str(k), int(layer), int(head)) for s, k, layer, head in rows[HEAD].itertuples(index=False)]


def test_every_arm_has_a_curve_on_the_same_sentences(run) -> None:
    curves = run.tables["transplant_curves"]
    arms = {("none", 0), ("specialised", 0), ("random", 0), ("random", 1), ("shuffled", 0)}
    assert set(curves[ARM].itertuples(index=False, name=None)) == {
        (name, frozen, draw) for name, draw in arms for frozen in (False, True)
    }
    losses = curves[curves["metric"] == "loss"]
    assert (losses.groupby(ARM)["step"].agg(list).map(sorted) == pd.Series([[0, 1, 2, 5]] * 10).tolist()).all()
    assert set(curves["count"]) == {12}
    bleu = curves[curves["metric"] == "bleu"]
    assert set(bleu["step"]) == {5}
    assert len(bleu) == 10
    assert losses.groupby("step")["source_tokens"].nunique().eq(1).all()  # the same batches
    assert np.isfinite(curves[["value", "low", "high"]]).all(axis=None)
    assert set(curves.columns) == {*TRANSPLANT_CURVES.column_names, *(column.name for column in KEYS)}
    assert set(curves["model"]) == {"translation/seed-0"}
    assert set(losses.loc[losses["arm"] != "none", "heads"]) == {2}


def test_the_donor_is_the_published_model(run, models) -> None:
    (recipe,) = models.plan.recipes()
    donor, held_out = models.load(Subject(recipe=recipe)), at_most(models.data.analysed, 12)
    curves = run.tables["transplant_curves"]
    for metric in ("loss", "bleu"):
        (stored,) = curves.loc[curves["metric"] == metric, "baseline"].unique()
        assert stored == pytest.approx(quality(donor, held_out, frozenset(), metric, beams=2)["scores"][0], rel=1e-6)


def test_chosen_heads_have_roles_or_matter_most_and_drawn_ones_are_others(run, models) -> None:
    heads = run.tables["transplanted_heads"]
    assert set(heads.columns) == {*TRANSPLANTED_HEADS.column_names, *(column.name for column in KEYS)}
    (recipe,) = models.plan.recipes()
    donor, chosen = models.load(Subject(recipe=recipe)), heads_of(run, "specialised")
    assert len(chosen) == 2
    assert (heads["by_chance"] >= 0).all()
    ranked = rank_heads(donor, at_most(models.data.validation, 12), kinds=["encoder-self"])[::-1]
    roles = dict(zip(chosen, heads.query("arm == 'specialised'").sort_values("rank")["roles"], strict=True))
    without = [head for head in chosen if not roles[head]]
    assert without == [head for head in ranked if head in without]
    for draw in (0, 1):
        drawn = heads_of(run, "random", draw)
        assert not set(drawn) & set(chosen)
        assert sorted(head[2] for head in drawn) == sorted(head[2] for head in chosen)


class Watch(TrainingHook):
    """What each fresh model is before its first update, reads, and is in the end."""

    def __init__(self) -> None:
        self.batches: list[torch.Tensor] = []
        self.first: dict[str, torch.Tensor] = {}
        self.last: dict[str, torch.Tensor] = {}

    def on_step_begin(self, step: Step) -> None:
        if step.update == 1:
            self.first = {name: p.detach().clone() for name, p in step.module.named_parameters()}
        self.batches += [tensor.clone() for batch in step.batches for tensor in batch.tensors.values()]

    def on_train_end(self, module) -> None:
        self.last = {name: p.detach().clone() for name, p in module.named_parameters()}


@pytest.fixture(scope="module")
def watched(plan, run, tmp_path_factory):
    """All arms again, each looked at from within."""
    found = {}
    original = StudyModels.train_into

    def watching(self, recipe, folder, hooks, *arguments, **settings):
        found["now"] = watch = Watch()
        return original(self, recipe, folder, [*hooks, watch], *arguments, **settings)

    with pytest.MonkeyPatch.context() as patch:
        stages = graph(plan, tmp_path_factory.mktemp("runs") / "watched")
        for stage in stages:
            if isinstance(stage, Train | ChooseHeads):
                stage.run()
        patch.setattr(StudyModels, "train_into", watching)
        for stage in stages.of(Transplant):
            stage.run()
            found[stage.variant.name, stage.variant.frozen, stage.variant.draw] = found.pop("now")
    return found


def masks(module, heads) -> dict[str, torch.Tensor]:
    masks: dict[str, torch.Tensor] = {}
    for piece in head_slices(load_model(module), heads):
        own = masks.setdefault(piece.parameter, torch.zeros(module.get_parameter(piece.parameter).shape).bool())
        own |= piece.mask(own)
    return masks


def test_arms_differ_in_their_heads_alone(run, models, watched) -> None:
    """First weights outside the heads that were put in, and the batches of every update, are those of all arms."""
    (recipe,) = models.plan.recipes()
    donor = models.load(Subject(recipe=recipe)).module
    plain = watched["none", False, 0]
    for (name, frozen, draw), watch in watched.items():
        assert len(watch.batches) == len(plain.batches) >= 10
        assert all(torch.equal(*pair) for pair in zip(watch.batches, plain.batches, strict=True))
        put = [] if name == "none" else heads_of(run, "specialised" if name == "shuffled" else name, draw)
        own = masks(donor, put) if put else {}
        for key, first in watch.first.items():
            mask = own.get(key, torch.zeros(first.shape, dtype=torch.bool))
            assert torch.equal(first[~mask], plain.first[key][~mask])
            given = donor.get_parameter(key)[mask]
            if name in ("specialised", "random"):
                assert torch.equal(first[mask], given)
            elif len(given):  # shuffled: the same numbers, head by head and matrix by matrix
                assert torch.equal(first[mask].sort().values, given.sort().values)
        kept = heads_of(run, "specialised") if name == "none" else put
        for key, mask in masks(donor, kept).items():
            assert torch.equal(watch.last[key][mask], watch.first[key][mask]) == frozen
            assert not torch.equal(watch.last[key][~mask], watch.first[key][~mask])


def test_a_fresh_model_is_of_another_seed_than_the_trained_one(models, watched) -> None:
    (recipe,) = models.plan.recipes()
    own = dict(models.load(Subject(recipe=recipe, update=UNTRAINED)).module.named_parameters())
    first = watched["none", False, 0].first
    assert all(not torch.equal(first[name], own[name]) for name in own if own[name].ndim > 1)


def test_a_point_is_the_loss_of_the_weights_kept_there(plan, run, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("infoflow.subjects.transplant.stages.shutil.rmtree", lambda *_, **__: None)
    stages = graph(plan, tmp_path / "kept")
    for stage in stages:
        if isinstance(stage, Train | ChooseHeads):
            stage.run()
    stage = stage_of(stages, "specialised", True)
    stage.run()
    frame = stage.tables()["transplant_curves"]
    again = run.tables["transplant_curves"].query("arm == 'specialised' and frozen")
    assert frame["value"].tolist() == again["value"].tolist()  # another run folder, the same numbers
    (folder,) = (tmp_path / "kept" / "work" / "transplanting").glob("*/snapshots")
    seen = Snapshots(folder).entries()
    assert list(seen) == [0, 1, 2, 5]
    models = stage.models
    for step, entry in seen.items():
        model = dataclasses.replace(
            load_model(folder / f"step-{step:08}"), target_tokenizer=models.data.target_tokenizer
        )
        expected = quality(model, at_most(models.data.analysed, 12), frozenset(), "loss")["scores"][0]
        row = frame[(frame["step"] == step) & (frame["metric"] == "loss")].iloc[0]
        assert row["value"] == pytest.approx(expected, rel=1e-6)
        assert row["source_tokens"] == entry.source_tokens


@pytest.mark.parametrize("frozen", [True])
def test_an_interrupted_arm_ends_with_the_same_numbers(plan, run, tmp_path, monkeypatch, frozen) -> None:
    stages = graph(plan, tmp_path / "cut")
    for stage in stages:
        if isinstance(stage, Train | ChooseHeads):
            stage.run()
    stage, stopped = stage_of(stages, "random", frozen, 1), []
    original = StudyModels.train_into

    class Stop(TrainingHook):
        def on_step_end(self, step: Step) -> None:
            if step.update == 3 and not stopped:
                stopped.append(step.update)
                os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(
        StudyModels,
        "train_into",
        lambda self, recipe, folder, hooks, *rest, **more: original(
            self, recipe, folder, [*hooks, Stop()], *rest, **more
        ),
    )
    with pytest.raises(TrainingInterrupted):
        stage.run()
    assert not stage.is_done()
    stage.run()
    assert stopped == [3]
    assert stage.is_done()
    found = stage.tables()["transplant_curves"].reset_index(drop=True)
    whole = stage_of(run.stages, "random", frozen, 1).tables()["transplant_curves"].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, whole, check_exact=True)
    assert not list((tmp_path / "cut" / "work" / "transplanting").glob("*"))  # weights go when they are scored


def test_what_is_done_stays_done_and_more_is_only_more(plan, run) -> None:
    assert not [stage for stage in run.stages.missing() if isinstance(stage, ChooseHeads | Transplant)]
    more = graph(changed(plan, random_draws=3, frozen=(True, False)), run.path)
    assert {str(stage.variant) for stage in more.missing() if isinstance(stage, Transplant)} == {
        "random 2",
        "random 2, frozen",
    }
    longer = graph(changed(plan, updates=6), run.path).missing()
    assert len([stage for stage in longer if isinstance(stage, Transplant)]) == 10
    fewer = graph(changed(plan, heads=1), run.path).missing()
    assert "none" not in {str(stage.variant) for stage in fewer if isinstance(stage, Transplant)}  # has no heads put in
    plain = graph(dataclasses.replace(plan, transplant=TransplantPlan()), run.path)
    assert not plain.of(Transplant)
    assert not plain.of(ChooseHeads)
    assert not [stage for stage in plain.missing() if not isinstance(stage, Check)]


def test_a_model_without_roles_has_nothing_to_put_in_and_says_so(plan, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(ChooseHeads, "_roles", lambda *_: ({}, 0.0))
    stages = graph(changed(plan, choose=("roles",), random_draws=1), tmp_path / "none")
    for stage in stages.of(Train):
        stage.run()
    (choice,) = stages.of(ChooseHeads)
    with pytest.warns(
        UserWarning, match=r'0 of its heads .* fewer than the 2 .*: none are transplanted\. Add "importance"'
    ):
        choice.run()
    assert choice.tables()["transplanted_heads"].empty
    for name, frozen, rows in (("none", False, 5), ("specialised", False, 0), ("none", True, 0), ("random", True, 0)):
        stage = stage_of(stages, name, frozen)
        stage.run()
        assert stage.is_done()
        assert len(stage.tables()["transplant_curves"]) == rows


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objectives": ["masked-lm"]}, "transplant.objectives must be among translation"),
        ({"heads": 9}, r"at most half of the heads in each layer, 4 of 8 .* Got 9(\.0)?, which is 9"),
        ({"heads": 0.8}, r"at most half of the heads in each layer, 4 of 8 .* Got 0\.8, which is 6"),
        ({"heads": 1.5}, r"a number of heads, or a share below 1\. Got 1\.5"),
        ({"scope": "decoder-cros"}, "transplant.scope must be one of"),
        ({"schedule": "log:0"}, r"transplant.schedule must be log:K.*up to the last, 5.* Got \"log:0\""),
        ({"schedule": "3,9"}, r"up to the last, 5.* Got \"3,9\""),
        ({"frozen": [True, True]}, "transplant.frozen must be a list of different values"),
        ({"choose": []}, "transplant.choose must be a list, not empty"),
        ({"choose": ["confidence"]}, "transplant.choose"),
        ({"random_draws": 0}, "transplant.random_draws must be a whole number from 1"),
    ],
)
def test_a_bad_plan_is_refused_before_anything_trains(settings, message) -> None:
    with pytest.raises(UserError, match=message) as error:
        StudyPlan.from_json({**PLAN, "transplant": {**SETTINGS, **settings}})
    assert str(error.value).count("Got") == 1


def test_heads_that_no_layer_or_family_can_take_are_refused() -> None:
    single = {**PLAN, "model": {**PLAN["model"], "heads": 1}}
    with pytest.raises(UserError, match=r"0 of 2 in encoder-self .* or raise model\.heads"):
        StudyPlan.from_json({**single, "transplant": {**SETTINGS, "heads": 1}})
    masked = {**PLAN, "objectives": ["masked-lm"], "transplant": {**SETTINGS, "objectives": ["masked-lm"]}}
    with pytest.raises(UserError, match=r"a kind of attention that masked-lm has \(encoder-self\), or all"):
        StudyPlan.from_json({**masked, "transplant": {**masked["transplant"], "scope": "decoder-cross"}})
    with pytest.raises(UserError, match=r"transplanted into bert, gpt2, t5.*Got the architecture \"albert\""):
        StudyPlan.from_json({**masked, "architectures": ["albert"]})
    assert StudyPlan.from_json(masked).transplant.num_updates(StudyPlan.from_json(masked).training) == 5
    third = StudyPlan.from_json({**masked, "transplant": {"on": True, "objectives": ["masked-lm"]}})
    assert third.transplant.num_updates(third.training) == 2
