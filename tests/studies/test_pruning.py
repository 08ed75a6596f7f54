"""Pruning in a study: curves of every way of choosing heads, point by point, beside the models that it leaves alone."""

import copy
import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from undrawn import undrawn

from infoflow.foundation import UserError, file_digest
from infoflow.heads import HEAD_ROLES, head_roles
from infoflow.pruning import PRUNED_HEADS, PRUNED_ROLES, PRUNING, quality, role_measures
from infoflow.results import RunFolder
from infoflow.studies import PruningPlan, StudyPlan, _pruning, study, train_model
from infoflow.studies._data import at_most
from infoflow.studies._jobs import Job, StudyJobs, pruning_jobs, requirement, study_jobs
from infoflow.studies._pruning import pruned_tables
from infoflow.studies._pruning_pieces import UNPRUNED, Curve, curves, learning_key, places
from infoflow.studies._pruning_points import pass_options
from infoflow.studies._workbench import Workbench
from infoflow.training import _train

SETTINGS = {
    "on": True,
    "penalties": [0.0, 500.0],  # too few updates to decide, and enough to close every gate
    "updates": 4,
    "learning_rate": 1e-3,
    "gate_rate": 800.0,
    "keep": [0.75, 40],
    "greedy": ["random"],
    "random_draws": 1,
    "scratch": True,
    "scratch_scopes": ["encoder-self"],
    "scratch_points": [0],
    "score_sentences": 12,
    "rank_sentences": 8,
    "role_sentences": 60,
    "save_every": 0,
}
MODEL = "translation/seed-0"
TRAIN = Job(kind="train", objective="translation", seed=0)
KEYS = ["stack", "kind", "layer", "head"]


@pytest.fixture(scope="module")
def plan() -> StudyPlan:
    return StudyPlan.from_json(
        {
            "objectives": ["translation"],
            "corpus": {"name": "grammar:300", "vocabulary": 120, "test": 0.3, "validation": 0.1},
            "model": {"width": 16, "layers": 2, "heads": 2, "feedforward": 32},
            "training": {"updates": 4, "batch_tokens": 128, "keep_log_spaced": False},
            "analysis": {"tables": ["task_scores"], "untrained": False, "bleu_sentences": 4, "beams": 2},
            "pruning": SETTINGS,
        }
    )


@pytest.fixture(scope="module")
def told(plan, tmp_path_factory):
    """A study that was run once, and its warnings."""
    with warnings.catch_warnings(record=True) as caught, undrawn():
        warnings.simplefilter("always")
        run = study(plan, tmp_path_factory.mktemp("runs") / "pruned", num_processes=1)
    return run, [str(warning.message) for warning in caught]


def planned(jobs: StudyJobs, **changes) -> StudyJobs:
    """The same run folder and data with other settings of `[pruning]`."""
    other = copy.copy(jobs)
    other.plan = dataclasses.replace(jobs.plan, pruning=dataclasses.replace(jobs.plan.pruning, **changes))
    return other


@pytest.fixture(scope="module")
def run(told):
    return told[0]


@pytest.fixture(scope="module")
def jobs(plan, run) -> StudyJobs:
    return StudyJobs(plan, RunFolder(run.path))


def removed(run, method: str, draw: int, point: int) -> frozenset:
    heads = run.tables["pruned_heads"].set_index(["method", "draw", "point"]).sort_index().loc[(method, draw, point)]
    return frozenset(map(tuple, heads.loc[~heads["alive"], KEYS].to_numpy().tolist()))


def row(run, method: str, draw: int, point: int, metric: str) -> pd.Series:
    table = run.tables["pruning"].set_index(["method", "draw", "point", "metric"]).sort_index()
    return table.loc[(method, draw, point, metric)]


def test_every_way_of_choosing_gives_a_curve(run) -> None:
    curve = run.tables["pruning"]
    assert set(curve["model"]) == {MODEL}
    assert curve["trained"].all()
    ways = {"hard-concrete", "random"}
    assert set(curve["method"]) == ways | {f"{way}-all" for way in ways} | {"scratch", "unpruned"}
    assert set(curve["metric"]) == {"loss", "bleu"}
    assert (curve["signature"].str.startswith("nrefs:1|case:lc") == (curve["metric"] == "bleu")).all()
    loss = curve[curve["metric"] == "loss"].set_index(["method", "draw", "point"])["setting"].sort_index()
    assert loss["hard-concrete", 0].tolist() == [0.0, 500.0]
    assert loss["scratch", 0].tolist() == [0.0]
    assert loss["random", 0].tolist() == [3]  # three quarters of four heads, which have no 40
    assert loss["random-all", 0].tolist() == [9]
    unpruned = curve[curve["method"] == "unpruned"]
    assert (unpruned["value"] == unpruned["baseline"]).all()
    assert (unpruned[["point", "kept"]] == [-1, 12]).all(axis=None)
    encoder = curve[~curve["method"].str.endswith("-all") & (curve["point"] >= 0)]
    assert (encoder[["kept_decoder_self", "kept_decoder_cross"]] == 4).all(axis=None)
    assert (curve["baseline"].groupby(curve["metric"]).nunique() == 1).all()
    assert set(curve.columns) == {*PRUNING.column_names, "model", "objective", "seed", "trained"}


def test_what_cannot_be_kept_and_gates_that_do_not_decide_are_told(told) -> None:
    _, texts = told
    assert any("fewer heads than 40 in encoder-self: random leaves it out" in text for text in texts)
    assert any("fewer heads than 40 in all: random-all leaves it out" in text for text in texts)
    assert any("penalty 500 closed every gate" in text for text in texts)
    assert any("gates are still between 0 and 1 at penalty 0:" in text for text in texts)


def test_a_penalty_that_kills_every_head_is_a_point(run) -> None:
    assert row(run, "hard-concrete-all", 0, 1, "loss")["kept"] == 0
    assert len(removed(run, "hard-concrete-all", 0, 1)) == 12
    assert len(removed(run, "hard-concrete", 0, 1)) == 4
    assert np.isfinite(run.tables["pruning"]["value"]).all()


def test_scratch_has_the_map_and_the_place_of_its_sweep(run) -> None:
    assert removed(run, "scratch", 0, 0) == removed(run, "hard-concrete", 0, 0)
    assert 0 < len(removed(run, "scratch", 0, 0)) < 4
    heads = run.tables["pruned_heads"]
    scratch = heads[heads["method"] == "scratch"]
    assert (scratch["gate"] == scratch["alive"]).all()
    assert scratch["log_alpha"].isna().all()


def test_a_greedy_point_is_the_published_model_without_its_heads(run, jobs) -> None:
    model, held_out = jobs.load(TRAIN), at_most(jobs.data.analysed, 12)
    for metric in ("loss", "bleu"):
        found = quality(model, held_out, removed(run, "random-all", 0, 0), metric, beams=2)
        assert row(run, "random-all", 0, 0, metric)["value"] == pytest.approx(found["scores"][0], rel=1e-6)
    full = quality(model, held_out, frozenset(), "loss")["scores"][0]
    assert row(run, "random", 0, 0, "loss")["baseline"] == pytest.approx(full, rel=1e-6)


def test_a_learned_point_is_its_weights_times_its_gates(run, jobs) -> None:
    """From the files: output projections' columns times the table's gates, and no gate anywhere."""
    job = Job(kind="prune", objective="translation", seed=0)
    curve = Curve(way="hard-concrete", scope="all")
    model = jobs.load(TRAIN)
    (folder,) = (jobs.bench.path("pruning", learning_key(jobs, job, curve))).glob("penalty-00-*")
    weights = load_file(folder / "model" / "model.safetensors")
    assert any("gates" in name for name in weights)
    model.module.load_state_dict({name: w for name, w in weights.items() if "gates" not in name}, strict=False)
    heads = run.tables["pruned_heads"]
    heads = heads[(heads["method"] == "hard-concrete-all") & (heads["point"] == 0)]
    outputs = {(a.stack, a.kind, a.layer): a.output for a in model.anatomy.attentions()}
    with torch.no_grad():
        for head in heads.itertuples():
            for piece in outputs[head.stack, head.kind, head.layer].head(head.head):
                weight = model.module.get_parameter(piece.parameter)
                weight[piece.mask(weight)] *= head.gate
    found = quality(model, at_most(jobs.data.analysed, 12), frozenset(), "loss")["scores"][0]
    stored = row(run, "hard-concrete-all", 0, 0, "loss")
    assert stored["value"] == pytest.approx(found, rel=1e-5)
    assert 0 < heads["alive"].sum() < 12
    assert stored["kept"] == heads["alive"].sum()


def test_roles_are_measured_again_at_each_point(run, jobs) -> None:
    from infoflow.flow import measure

    roles = run.tables["pruned_roles"]
    assert set(roles.columns) == {*PRUNED_ROLES.column_names, "model", "objective", "seed", "trained"}
    assert set(roles["method"]) == {m for w in ("hard-concrete", "random") for m in (w, f"{w}-all")} | {"scratch"}
    assert {"positional -1", "positional +1"} < set(roles["role"])
    assert roles["role"].str.contains("dependent").any()  # the grammar's trees
    before = roles[roles["point"] == -1]
    assert before["alive"].all()
    assert set(before["method"]) == set(roles["method"])
    sentences = at_most(jobs.data.analysed, 60)
    found = head_roles(
        measure(jobs.load(TRAIN), sentences, role_measures(), pass_options(jobs, TRAIN), jobs.data.train)
    )
    assert set(HEAD_ROLES.column_names) == set(found.columns)
    one = before[before["method"] == "random"].groupby([*KEYS, "role"])[["score", "present"]].first()
    pd.testing.assert_frame_equal(
        one.sort_index(),
        found.set_index([*KEYS, "role"])[["value", "holds"]].set_axis(["score", "present"], axis=1).sort_index(),
    )
    later = roles[(roles["method"] == "hard-concrete") & (roles["point"] == 0)]
    gone = removed(run, "hard-concrete", 0, 0)
    assert {tuple(head) for head in later.loc[~later["alive"], KEYS].to_numpy().tolist()} == set(gone)


def test_published_models_stay_as_they_are(run, jobs, plan, tmp_path) -> None:
    plain = dataclasses.replace(plan, pruning=PruningPlan())
    alone = StudyJobs(plain, RunFolder(tmp_path / "plain"))
    assert alone.train_key(TRAIN) == jobs.train_key(TRAIN)
    train_model("translation", plan, out=alone.run.path)
    model = f"models/{MODEL}/model.safetensors"
    assert file_digest(alone.run.path / model) == file_digest(run.path / model)
    assert study_jobs(plain) == [job for job in study_jobs(plan) if job.kind != "prune"]


def test_an_interrupted_study_ends_with_the_same_tables(run, jobs, tmp_path, monkeypatch) -> None:
    cut = planned(jobs, scopes=("encoder-self",), save_every=2)
    cut.run, cut.bench = RunFolder(tmp_path / "cut"), Workbench(tmp_path / "cut" / "work")
    todo = [job for job in study_jobs(cut.plan) if job.kind != "measure"]

    def do_all() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for job in todo:
                cut.do(job)

    def interrupted_at(owner, name: str, call: int) -> None:
        original, calls = getattr(owner, name), []

        def wrapped(*args, **kwargs):
            calls.append(name)
            if len(calls) == call:
                raise KeyboardInterrupt
            return original(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, wrapped)
            with pytest.raises(KeyboardInterrupt):
                do_all()

    interrupted_at(_train._Run, "_step", 4 + 4 + 4)  # in the last update at the sweep's second penalty
    interrupted_at(_pruning, "_roles", 1)  # the second point is scored, its roles are not there
    interrupted_at(_train._Run, "_step", 3)  # in the training from scratch
    assert [cut.is_done(job) for job in todo] == [True, True, True, True, False]
    do_all()
    assert all(cut.is_done(job) for job in todo)
    for schema, frame in pruned_tables(cut, pruning_jobs(cut.plan)):
        whole = run.tables[schema.name]
        whole = whole[whole["method"].isin(set(frame["method"])) & (whole["draw"] == 0)]
        assert len(frame) == len(whole) > 0
        pd.testing.assert_frame_equal(
            frame[whole.columns], whole.reset_index(drop=True), check_dtype=False, rtol=0, atol=0
        )


def test_a_larger_plan_does_only_what_is_missing(jobs) -> None:
    def missing(**changes) -> list[str]:
        other = planned(jobs, **changes)
        return [job.piece for job in study_jobs(other.plan) if not other.is_done(job)]

    assert missing() == []
    assert missing(greedy=("confidence", "random"), scopes=("all",)) == ["greedy/all"]
    assert missing(random_draws=2) == ["greedy/encoder-self", "greedy/all"]
    # What may follow from the sweep waits for it; nothing of it is done again.
    longer = {"penalties": (0.0, 500.0, 600.0), "scopes": ("encoder-self",)}
    assert missing(**longer) == ["hard-concrete/encoder-self", "greedy/encoder-self", "scratch/encoder-self"]
    assert missing(keep=(3, 2), scopes=("all",)) == ["greedy/all"]
    job = Job(kind="prune", objective="translation", seed=0)
    curve = Curve(way="hard-concrete", scope="all")
    assert places(planned(jobs, **longer), job, curve)[:2] == places(jobs, job, curve)


def test_pieces_are_jobs_behind_what_they_need(plan) -> None:
    pruning = pruning_jobs(plan)
    for job in pruning:
        assert Job.parse(job.write()) == job
        needed = requirement(job)
        assert needed == TRAIN or needed in pruning[: pruning.index(job)]
    assert requirement(pruning[0]) == TRAIN
    assert pruning[0].piece == UNPRUNED
    assert requirement(pruning[-1]).piece == "hard-concrete/all"


def test_models_of_one_stack_have_one_scope(plan) -> None:
    single = dataclasses.replace(plan, objectives=("masked-lm", "causal-lm"), pruning=PruningPlan(greedy=()))
    assert [curve.method for curve in curves(single, "masked-lm")] == ["hard-concrete"]
    assert [curve.method for curve in curves(single, "causal-lm")] == ["hard-concrete-all"]


def test_a_language_model_is_scored_by_its_loss(plan, tmp_path) -> None:
    settings = dataclasses.replace(
        plan.pruning,
        objectives=("masked-lm",),
        greedy=("importance", "iterative"),
        keep=(),
        subset=(2, 40),
        straight_through=True,
        scratch=False,
        roles=False,
    )
    jobs = StudyJobs(
        dataclasses.replace(plan, objectives=("masked-lm",), pruning=settings), RunFolder(tmp_path / "masked")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for job in study_jobs(jobs.plan):
            if job.kind != "measure":
                jobs.do(job)
    tables = {schema.name: frame for schema, frame in pruned_tables(jobs, pruning_jobs(jobs.plan))}
    curve = tables["pruning"]
    assert set(curve["metric"]) == {"loss"}
    learned, once, again = (
        set(curve.loc[curve["method"] == method, "kept"]) for method in ("hard-concrete", "importance", "iterative")
    )
    assert learned == once == again  # as many as the gates left
    for method in ("subset", "straight-through"):
        exactly = curve[curve["method"] == method]
        assert exactly[["kept", "setting"]].to_numpy().tolist() == [[2, 2]]  # there are no 40
    assert set(tables) == {PRUNING.name, PRUNED_HEADS.name}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"penalties": []}, "penalties must be a list, not empty, of numbers"),
        ({"penalties": [-1.0]}, r"penalties\[0\] must be a number from 0 .* Got -1\.0"),
        ({"scopes": ["cross"]}, r'pruning\.scopes\[0\] must be one of "encoder-self", .*, "all"\. Got "cross"'),
        ({"greedy": ["size"]}, r"pruning\.greedy must be among importance"),
        ({"keep": [2.5]}, "numbers of heads, or shares below 1. Got 2.5"),
        ({"subset": [-1]}, r"pruning\.subset\[0\] must be a number from 0 .* Got -1"),
        ({"scratch_points": [9]}, r"scratch_points must lie in 0\.\.5, one for each penalty\. Got 9"),
        ({"gate_rate": 0}, "gate_rate must be a number above 0"),
        ({"updates": 0}, r"pruning\.updates must be a whole number from 1"),
        ({"metric": "accuracy"}, r"pruning\.metric must be one of .bleu., .loss."),
        (
            {"on": True, "objectives": ["masked"]},
            r"pruning\.objectives must be among causal-lm, masked-lm, translation",
        ),
    ],
)
def test_settings_are_checked(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        StudyPlan.from_json({"pruning": settings})
