"""Pruning in a study: curves of every way of choosing heads, point by point, beside the models that it leaves alone."""

import dataclasses
import itertools
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from support.undrawn import undrawn

from infoflow.flow import PassOptions, measure
from infoflow.foundation import SEAL, UserError, file_digest, hash64
from infoflow.heads import HEAD_ROLES, head_roles
from infoflow.pruning import PRUNED_HEADS, PRUNED_ROLES, PRUNING, quality, rank_heads, role_measures
from infoflow.results import KEYS, Subject, read_table, write_table
from infoflow.studies import Graph, StudyModels, StudyPlan, Train, at_most, graph, study, train_model
from infoflow.subjects.pruning.settings import PruningPlan
from infoflow.subjects.pruning.stages import Prune
from infoflow.training import train

pytestmark = pytest.mark.slow

SETTINGS = {
    "on": True,
    "penalties": [5e-6, 500.0],  # closes some gates and leaves others undecided; closes every gate
    "updates": 8,
    "learning_rate": 1e-3,
    "gate_rate": 800.0,
    "keep": [0.75, 40],
    "greedy": ["random"],
    "random_draws": 1,
    "scratch": True,
    "scratch_scopes": ["encoder-self"],
    "scratch_points": [0],
    "recover": True,
    "recover_points": [0],
    "recover_updates": 3,
    "recover_learning_rate": 2e-3,
    "score_sentences": 12,
    "rank_sentences": 8,
    "role_sentences": 60,
    "save_every": 0,
}
MODEL = "translation/seed-0"
HEAD = ["stack", "kind", "layer", "head"]
OF_MODELS = {column.name for column in KEYS}


@pytest.fixture(scope="module")
def plan() -> StudyPlan:
    return StudyPlan.from_json(
        {
            "objectives": ["translation"],
            "corpus": {"name": "grammar:300", "vocabulary": 120, "test": 0.3, "validation": 0.1},
            "model": {"width": 16, "layers": 2, "heads": 2, "feedforward": 32},
            "training": {"updates": 4, "batch_tokens": 128, "end_learning_rate": 1.2e-3},  # above that of gates
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


def changed(plan: StudyPlan, **changes) -> StudyPlan:
    """The same plan with other settings of `[pruning]`."""
    return dataclasses.replace(plan, pruning=dataclasses.replace(plan.pruning, **changes))


def stacked(stages: Graph) -> dict[str, pd.DataFrame]:
    """The tables of all pieces, below each other."""
    tables: dict[str, list[pd.DataFrame]] = {}
    for stage in stages.of(Prune):
        for name, frame in stage.tables().items():
            tables.setdefault(name, []).append(frame)
    return {name: pd.concat(frames, ignore_index=True) for name, frames in tables.items()}


@pytest.fixture(scope="module")
def run(told):
    return told[0]


@pytest.fixture(scope="module")
def models(run) -> StudyModels:
    (training,) = run.stages.of(Train)
    return training.models


def published(models: StudyModels):
    """The trained model."""
    (recipe,) = models.plan.recipes()
    return models.load(Subject(recipe=recipe))


def removed(run, method: str, point: int, scope: str = "encoder-self") -> frozenset:
    heads = run.tables["pruned_heads"].query("method == @method and scope == @scope and draw == 0 and point == @point")
    assert len(heads) == 12
    return frozenset(map(tuple, heads.loc[~heads["alive"], HEAD].to_numpy().tolist()))


def row(run, method: str, point: int, metric: str, scope: str = "encoder-self") -> pd.Series:
    table = run.tables["pruning"].set_index(["method", "scope", "draw", "point", "metric"]).sort_index()
    return table.loc[(method, scope, 0, point, metric)]


def test_every_way_of_choosing_gives_a_curve(run) -> None:
    curve = run.tables["pruning"]
    assert set(curve["model"]) == {MODEL}
    assert curve["trained"].all()
    assert set(zip(curve["method"], curve["scope"], strict=True)) == {
        *itertools.product(("hard-concrete", "random"), ("encoder-self", "all")),
        *itertools.product(("recovered", "recovered-random"), ("encoder-self", "all")),
        ("scratch", "encoder-self"),
        ("recovered-all", ""),
        ("unpruned", ""),
    }
    assert set(curve["metric"]) == {"loss", "bleu"}
    assert (curve["signature"].str.startswith("nrefs:1|case:lc") == (curve["metric"] == "bleu")).all()
    loss = curve[curve["metric"] == "loss"].set_index(["method", "scope", "draw", "point"])["setting"].sort_index()
    assert loss["hard-concrete", "encoder-self", 0].tolist() == [5e-6, 500.0]
    assert loss["scratch", "encoder-self", 0].tolist() == [5e-6]
    assert loss["random", "encoder-self", 0].tolist() == [3]  # three quarters of four heads, which have no 40
    assert loss["random", "all", 0].tolist() == [9]
    unpruned = curve[curve["method"] == "unpruned"]
    assert (unpruned["value"] == unpruned["baseline"]).all()
    assert (unpruned[["point", "kept"]] == [-1, 12]).all(axis=None)
    encoder = curve[curve["scope"] == "encoder-self"]
    assert (encoder[["kept_decoder_self", "kept_decoder_cross"]] == 4).all(axis=None)
    assert (curve["baseline"].groupby(curve["metric"]).nunique() == 1).all()
    assert set(curve.columns) == {*PRUNING.column_names, *OF_MODELS}


def test_what_cannot_be_kept_and_gates_that_do_not_decide_are_told(told) -> None:
    _, texts = told
    assert any("fewer heads than 40 in encoder-self: random skips this step" in text for text in texts)
    assert any("fewer heads than 40 in all: random skips this step" in text for text in texts)
    assert any("penalty 500 closed every gate" in text for text in texts)
    assert any("still between 0 and 1 at penalty 5e-06, and an undecided head counts as kept" in text for text in texts)


def test_a_penalty_that_kills_every_head_is_a_point(run) -> None:
    assert row(run, "hard-concrete", 1, "loss", "all")["kept"] == 0
    assert len(removed(run, "hard-concrete", 1, "all")) == 12
    assert len(removed(run, "hard-concrete", 1)) == 4
    assert np.isfinite(run.tables["pruning"]["value"]).all()


def test_scratch_has_the_map_and_the_place_of_its_sweep(run) -> None:
    assert removed(run, "scratch", 0) == removed(run, "hard-concrete", 0)
    assert 0 < len(removed(run, "scratch", 0)) < 4
    heads = run.tables["pruned_heads"]
    scratch = heads[heads["method"] == "scratch"]
    assert (scratch["gate"] == scratch["alive"]).all()
    assert scratch["log_alpha"].isna().all()


def test_what_recovers_has_the_heads_of_its_sweep_or_as_many_random_ones(run, models) -> None:
    for scope, kinds in (("encoder-self", ("encoder-self",)), ("all", None)):
        gone = removed(run, "hard-concrete", 0, scope)
        assert removed(run, "recovered", 0, scope) == gone
        order = rank_heads(published(models), models.data.validation, "random", kinds=kinds, draw=0)  # of the seed
        assert removed(run, "recovered-random", 0, scope) == frozenset(order[: len(gone)])
    assert removed(run, "recovered-all", 0, "") == frozenset()
    assert row(run, "recovered-all", 0, "loss", "")["kept"] == 12


def test_what_recovers_is_trained_on_without_its_heads(run, models, tmp_path) -> None:
    """By hand: the weights of the sweep's point, heads' columns of the output projections zeroed in every update."""
    (recipe,) = models.plan.recipes()
    gone = removed(run, "hard-concrete", 0)
    every = [load_file(path) for path in (run.path / "work" / "pruning").glob("*/penalty-00-*/model/model.safetensors")]
    gates = [sum("gates" in name for name in weights) for weights in every]
    weights = every[gates.index(min(gates))]  # those of the encoder's heads
    for method, begin in (("recovered", weights), ("recovered-all", {})):
        model = published(models)
        if begin:
            model.module.load_state_dict({name: w for name, w in begin.items() if "gates" not in name}, strict=False)
        outputs = {(a.stack, a.kind, a.layer): a.output for a in model.anatomy.attentions()}
        pieces = [p for head in gone for p in outputs[head[:3]].head(head[3])] if begin else []

        def close(module, *_, pieces=pieces) -> None:
            with torch.no_grad():
                for piece in pieces:
                    weight = module.get_parameter(piece.parameter)
                    weight[piece.mask(weight)] = 0.0

        model.module.register_forward_pre_hook(close)
        # All heads learn as long as gates and what recovers together, on other batches than at first.
        settings = {"updates": 3 if begin else 3 + 8, "learning_rate": 2e-3, "end_learning_rate": 0.0, "warmup": 0.0}
        config = dataclasses.replace(
            models.plan.training, seed=2**31 + hash64("recovering-model", 0) % 2**31, **settings
        )
        train(models.objective(recipe), config, models.training_data(recipe), model.module, tmp_path / method)
        model.module.eval()
        found = quality(model, at_most(models.data.analysed, 12), frozenset(), "loss")["scores"][0]
        scope = "encoder-self" if begin else ""
        assert row(run, method, 0, "loss", scope)["value"] == pytest.approx(found, rel=1e-5)
        assert row(run, method, 0, "loss", scope)["value"] != row(run, method, 0, "loss", scope)["baseline"]


def test_a_greedy_point_is_the_published_model_without_its_heads(run, models) -> None:
    model, held_out = published(models), at_most(models.data.analysed, 12)
    for metric in ("loss", "bleu"):
        found = quality(model, held_out, removed(run, "random", 0, "all"), metric, beams=2)
        assert row(run, "random", 0, metric, "all")["value"] == pytest.approx(found["scores"][0], rel=1e-6)
    full = quality(model, held_out, frozenset(), "loss")["scores"][0]
    assert row(run, "random", 0, "loss")["baseline"] == pytest.approx(full, rel=1e-6)


def test_a_learned_point_is_its_weights_times_its_gates(run, models) -> None:
    """From the files: output projections' columns times the table's gates, and no gate anywhere."""
    model = published(models)
    every = [load_file(path) for path in (run.path / "work" / "pruning").glob("*/penalty-00-*/model/model.safetensors")]
    gates = [sum("gates" in name for name in weights) for weights in every]
    assert len(every) == 2
    assert 0 < min(gates) < max(gates)
    weights = every[gates.index(max(gates))]  # those of all kinds of attention
    model.module.load_state_dict({name: w for name, w in weights.items() if "gates" not in name}, strict=False)
    heads = run.tables["pruned_heads"]
    heads = heads[(heads["method"] == "hard-concrete") & (heads["scope"] == "all") & (heads["point"] == 0)]
    outputs = {(a.stack, a.kind, a.layer): a.output for a in model.anatomy.attentions()}
    with torch.no_grad():
        for head in heads.itertuples():
            for piece in outputs[head.stack, head.kind, head.layer].head(head.head):
                weight = model.module.get_parameter(piece.parameter)
                weight[piece.mask(weight)] *= head.gate
    found = quality(model, at_most(models.data.analysed, 12), frozenset(), "loss")["scores"][0]
    stored = row(run, "hard-concrete", 0, "loss", "all")
    assert stored["value"] == pytest.approx(found, rel=1e-5)
    assert 0 < heads["alive"].sum() < 12
    assert stored["kept"] == heads["alive"].sum()


def test_roles_are_measured_again_at_each_point(run, models) -> None:
    roles = run.tables["pruned_roles"]
    assert set(roles.columns) == {*PRUNED_ROLES.column_names, *OF_MODELS}
    ways = {*itertools.product(("hard-concrete", "random"), ("encoder-self", "all")), ("scratch", "encoder-self")}
    assert set(zip(roles["method"], roles["scope"], strict=True)) == ways
    assert {"positional -1", "positional +1"} < set(roles["role"])
    assert roles["role"].str.contains("dependent").any()  # the grammar's trees
    before = roles[roles["point"] == -1]
    assert before["alive"].all()
    assert set(zip(before["method"], before["scope"], strict=True)) == ways
    sentences = at_most(models.data.analysed, 60)
    options = PassOptions(tokens_per_batch=models.plan.analysis.tokens_per_batch)
    found = head_roles(measure(published(models), sentences, role_measures(), options, models.data.train))
    assert set(HEAD_ROLES.column_names) == set(found.columns)
    one = before[before["method"] == "random"].groupby([*HEAD, "role"])[["score", "present"]].first()
    pd.testing.assert_frame_equal(
        one.sort_index(),
        found.set_index([*HEAD, "role"])[["value", "holds"]].set_axis(["score", "present"], axis=1).sort_index(),
    )
    later = roles.query("method == 'hard-concrete' and scope == 'encoder-self' and point == 0")
    gone = removed(run, "hard-concrete", 0)
    assert {tuple(head) for head in later.loc[~later["alive"], HEAD].to_numpy().tolist()} == set(gone)


def test_published_models_stay_as_they_are(run, plan, tmp_path) -> None:
    train_model("translation", plan, out=tmp_path / "plain")
    model = f"models/{MODEL}/model.safetensors"
    assert file_digest(tmp_path / "plain" / model) == file_digest(run.path / model)
    plain = graph(dataclasses.replace(plan, pruning=PruningPlan()), tmp_path / "plain")
    assert [stage.key for stage in plain.of(Train)] == [stage.key for stage in run.stages.of(Train)]
    others = [stage.label for stage in run.stages if not isinstance(stage, Prune)]
    assert [stage.label for stage in plain] == others


def test_an_interrupted_study_ends_with_the_same_tables(run, plan, tmp_path, monkeypatch) -> None:
    stages = graph(changed(plan, scopes=("encoder-self",), save_every=2), tmp_path / "cut")
    todo = [stage for stage in stages if isinstance(stage, Train | Prune)]

    def do_all() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for stage in todo:
                stage.run()

    def interrupted_at(owner: type, name: str, call: int) -> None:
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

    interrupted_at(torch.optim.AdamW, "step", 4 + 8 + 8)  # in the last update at the sweep's second penalty
    interrupted_at(Prune, "_roles", 1)  # the second point is scored, its roles are not there
    interrupted_at(torch.optim.AdamW, "step", 3)  # in the training from scratch
    assert [stage.is_done() for stage in todo] == [True, True, True, True, False, False, False, False]
    interrupted_at(torch.optim.AdamW, "step", 2 + 3)  # in the last update but one of what recovers
    interrupted_at(Prune, "_scores", 2)  # the random heads have recovered, and are not scored
    assert [stage.is_done() for stage in todo] == [True] * 6 + [False, False]
    do_all()
    assert all(stage.is_done() for stage in todo)
    for name, frame in stacked(stages).items():
        whole = pd.DataFrame(run.tables[name])
        whole = whole[whole["scope"].isin({"", "encoder-self"}) & (whole["draw"] == 0)]
        assert len(frame) == len(whole) > 0
        pd.testing.assert_frame_equal(
            frame[whole.columns], whole.reset_index(drop=True), check_dtype=False, rtol=0, atol=0
        )


def test_a_larger_plan_does_only_what_is_missing(run, plan) -> None:
    def missing(**changes) -> list[str]:
        stages = graph(changed(plan, **changes), run.folder)
        return [str(stage.piece) for stage in stages.missing() if isinstance(stage, Prune)]

    assert missing() == []
    assert missing(greedy=("confidence", "random"), scopes=("all",)) == ["greedy in all"]
    assert missing(random_draws=2) == ["greedy in encoder-self", "greedy in all"]
    assert missing(keep=(3, 2), scopes=("all",)) == ["greedy in all"]
    # What may follow from the sweep waits for it.
    pieces = [f"{way} in encoder-self" for way in ("hard-concrete", "greedy", "scratch", "recovered")]
    pieces.append("recovered-random in encoder-self")
    assert missing(recover_updates=4, scopes=("encoder-self",)) == [*pieces[3:], "recovered-all"]
    assert missing(penalties=(5e-6, 500.0, 600.0), scopes=("encoder-self",)) == pieces


def test_points_that_an_earlier_version_wrote_are_read_and_not_made_again(run, plan, tmp_path) -> None:
    """It had no column for the scope, and named it behind the method."""
    folder = tmp_path / "earlier"
    shutil.copytree(run.path, folder)
    for path in (folder / "work" / "pruned").rglob("*.parquet"):
        frame, schema, _ = read_table(path)
        ends = frame["scope"].map({"": "", "encoder-self": "", "all": "-all"})
        columns = tuple(column for column in schema.columns if column.name != "scope")
        earlier = frame.assign(method=frame["method"] + ends).drop(columns="scope")
        write_table(path, earlier, dataclasses.replace(schema, columns=columns))
        (path.parent / SEAL).unlink(missing_ok=True)  # nor were parts sealed
    stages = graph(plan, folder)
    assert [stage.kind for stage in stages.missing()] == ["check"]
    for name, frame in stacked(stages).items():
        whole = pd.DataFrame(run.tables[name])
        pd.testing.assert_frame_equal(frame[whole.columns], whole, check_dtype=False, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:.*closed every gate", "ignore:.*still between 0 and 1")
def test_a_longer_sweep_goes_on_from_its_last_penalty(run, plan, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "longer"
    shutil.copytree(run.path, folder)
    longer = changed(plan, penalties=(5e-6, 500.0, 600.0), scopes=("encoder-self",))
    original, updates = torch.optim.AdamW.step, []
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda *args: updates.append(1) or original(*args))
    (sweep,) = (stage for stage in graph(longer, folder).of(Prune) if str(stage.piece).startswith("hard-concrete"))
    before = run.tables["pruning"].query("method == 'hard-concrete' and scope == 'encoder-self'")
    sweep.run()
    assert len(updates) == plan.pruning.updates
    after = sweep.tables()["pruning"]
    assert sorted(set(after["point"])) == [0, 1, 2]
    first = after[after["point"] < 2]
    assert first["value"].tolist() == before["value"].tolist()


def test_pieces_are_stages_behind_what_they_need(run, plan) -> None:
    stages = run.stages
    (training,) = stages.of(Train)
    needs = {str(stage.piece): [stages[key].label for key in stage.needs] for stage in stages.of(Prune)}
    prefix = f"prune {MODEL}, "
    assert needs["unpruned"] == [training.label]
    assert {piece: labels for piece, labels in needs.items() if piece != "unpruned"} == {
        "hard-concrete in encoder-self": [prefix + "unpruned"],
        "greedy in encoder-self": [prefix + "hard-concrete in encoder-self"],
        "scratch in encoder-self": [prefix + "hard-concrete in encoder-self"],
        "hard-concrete in all": [prefix + "unpruned"],
        "greedy in all": [prefix + "hard-concrete in all"],
        **{
            f"{way} in {scope}": [f"{prefix}hard-concrete in {scope}"]
            for way in ("recovered", "recovered-random")
            for scope in ("encoder-self", "all")
        },
        "recovered-all": [prefix + "unpruned"],
    }


def test_models_of_one_stack_have_one_scope(plan, tmp_path) -> None:
    objectives = ("masked-lm", "causal-lm")
    pruning = PruningPlan(on=True, objectives=objectives, greedy=())
    stages = graph(dataclasses.replace(plan, objectives=objectives, pruning=pruning), tmp_path)
    found = {(stage.recipe.objective.name, str(stage.piece)) for stage in stages.of(Prune)}
    assert found == {
        ("masked-lm", "unpruned"),
        ("masked-lm", "hard-concrete in encoder-self"),
        ("causal-lm", "unpruned"),
        ("causal-lm", "hard-concrete in all"),
    }


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
    stages = graph(dataclasses.replace(plan, objectives=("masked-lm",), pruning=settings), tmp_path / "masked")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for stage in stages:
            if isinstance(stage, Train | Prune):
                stage.run()
    tables = stacked(stages)
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
        ({"greedy": ["size"]}, r"pruning\.greedy must be among importance"),
        ({"keep": [2.5]}, "numbers of heads, or shares below 1. Got 2.5"),
        ({"subset": [-1]}, r"pruning\.subset\[0\] must be a number from 0 .* Got -1"),
        ({"scratch_points": [9]}, r"scratch_points must lie in 0\.\.5, one for each penalty\. Got 9"),
        (
            {"on": True, "objectives": ["masked"]},
            r"pruning\.objectives must be among causal-lm, masked-lm, translation",
        ),
    ],
)
def test_settings_are_checked(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        StudyPlan.from_json({"pruning": settings})
