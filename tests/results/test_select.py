"""Models are chosen by what they are; where that leaves two, no reader gets the mean of both."""

import itertools
from dataclasses import replace

import pandas as pd
import pytest

from infoflow.foundation import UserError
from infoflow.results import (
    END,
    KEYS,
    PAIR_KEYS,
    AmbiguousModels,
    Recipe,
    Spec,
    Subject,
    first_architecture,
    models,
    pair_values,
    select,
    with_keys,
)

ALBERT = Spec("albert")


def subject(objective: str = "masked-lm", seed: int = 0, *, variant: str = "", family: str = "bert", **more) -> Subject:
    start = more.pop("start", None)
    recipe = Recipe(objective=Spec(objective, variant), architecture=Spec(family), seed=seed, start=start)
    return Subject(recipe=recipe, **more)


def table(*subjects: Subject, layers: int = 2) -> pd.DataFrame:
    rows = [(one, layer) for one in subjects for layer in range(layers)]
    return pd.DataFrame([{**one.keys(), "layer": layer, "value": hash((one, layer)) % 997} for one, layer in rows])


STUDY = [subject(objective, seed) for objective in ("causal-lm", "masked-lm") for seed in (0, 1)]
EVERY = [*STUDY, *(one.before_training() for one in STUDY)]


def test_keys_are_the_columns_of_a_subject() -> None:
    assert [column.name for column in KEYS] == list(subject().keys())
    assert {column.name for column in PAIR_KEYS} == set(pair_values(subject(), subject(seed=1)))


def test_trained_follows_from_the_update() -> None:
    keys = subject().before_training().keys()
    assert (keys["update"], keys["trained"]) == (0, False)
    assert (subject().keys()["update"], subject().keys()["trained"]) == (END, True)
    assert subject(update=500).trained


def test_names_tell_recipes_apart() -> None:
    kinds = [{"seed": 1}, {"variant": "token-dropout"}, {"family": "albert"}, {"start": subject("causal-lm")}]
    changed = [subject(**kind) for kind in kinds]
    assert len({one.name for one in [subject(), *changed]}) == len(kinds) + 1
    assert subject().name == "masked-lm/seed-0"


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("objective", ["causal-lm", "masked-lm", None])
def test_chosen_rows_are_those_of_a_plain_loop(objective: str | None, trained: bool) -> None:
    frame = table(*EVERY)
    rows = [i for i, row in frame.iterrows() if objective in (None, row["objective"]) and row["trained"] == trained]
    pd.testing.assert_frame_equal(select(frame, objective, trained=trained), frame.loc[rows])


OTHERS = {
    "checkpoint": subject(update=500),
    "architecture": subject(family="albert"),
    "start": subject(start=subject("causal-lm")),
    "variant": subject(variant="static"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_the_study_did_not_ask_for_stays_out(other: str) -> None:
    alone, both = table(*EVERY), table(*EVERY, OTHERS[other])
    pd.testing.assert_frame_equal(select(both, "masked-lm"), select(alone, "masked-lm"))
    pd.testing.assert_frame_equal(models(both), models(alone))


@pytest.mark.parametrize(("other", "choice"), [
    ("checkpoint", {"update": 500}), ("architecture", {"architecture": "albert"}),
    ("start", {"start": "causal-lm/seed-0"}), ("variant", {"variant": "static"}),
])  # fmt: skip
def test_what_is_asked_for_is_found(other: str, choice: dict) -> None:
    chosen = models(table(*EVERY, OTHERS[other]), "masked-lm", **choice)
    assert chosen.to_dict("records") == [OTHERS[other].keys()]


@pytest.mark.parametrize(("other", "telling"), [("start", "start"), ("second name", "model")])
def test_two_models_of_one_seed_are_refused(other: str, telling: str) -> None:
    second = OTHERS.get(other) or replace(subject(), given="mine")
    with pytest.raises(AmbiguousModels, match=f"masked-lm, seed 0, there are several: {telling} "):
        select(table(*EVERY, second), "masked-lm", start=None)
    with pytest.raises(UserError, match="Choose one by its"):
        models({"lens": table(*EVERY), "geometry": table(second)}, start=None)


def test_all_variants_are_several_models_and_no_ambiguity() -> None:
    frame = table(*EVERY, OTHERS["variant"])
    assert set(select(frame, "masked-lm", variant=None)["variant"]) == {"", "static"}


def test_of_pairs_each_side_is_chosen() -> None:
    pairs = itertools.permutations(STUDY, 2)
    frame = pd.DataFrame([{**pair_values(a, b), "value": i} for i, (a, b) in enumerate(pairs)])
    chosen = select(select(frame, "causal-lm", side="_a"), "masked-lm", side="_b")
    assert len(chosen) == 4
    assert set(chosen["objective_b"]) == {"masked-lm"}


def test_of_pairs_a_second_model_is_refused() -> None:
    first, second = subject(), replace(subject(), given="mine")
    frame = pd.DataFrame([{**pair_values(one, subject("causal-lm")), "value": 0.0} for one in (first, second)])
    with pytest.raises(AmbiguousModels, match="model_a"):
        select(frame, "masked-lm", side="_a")


def test_the_first_architecture_is_the_plans() -> None:
    tables = {"a": table(subject(family="albert")), "training_runs": table(subject(), subject(family="albert"))}
    assert first_architecture(tables) == "bert"
    assert set(models(tables)["architecture"]) == {"bert"}


def test_tables_of_earlier_versions_get_the_columns() -> None:
    old = pd.DataFrame({"objective": ["translation+token-dropout", "masked-lm"], "seed": [0, 0], "trained": [1, 0]})
    new = with_keys(old.astype({"trained": bool}))
    assert new["objective"].tolist() == ["translation", "masked-lm"]
    assert new["variant"].tolist() == ["token-dropout", ""]
    assert new["update"].tolist() == [END, 0]
    pd.testing.assert_frame_equal(with_keys(new), new)


def test_tables_of_pruning_that_named_method_and_scope_as_one_text_get_both() -> None:
    names = ["unpruned", "random", "straight-through-all", "hard-concrete-decoder-self", "random-decoder-cross"]
    old = pd.DataFrame({"objective": "translation", "method": names, "draw": 0, "point": 0, "value": range(5)})
    new = with_keys(old)
    assert new["method"].tolist() == ["unpruned", "random", "straight-through", "hard-concrete", "random"]
    assert new["scope"].tolist() == ["", "encoder-self", "all", "decoder-self", "decoder-cross"]
    assert list(new)[1:4] == ["method", "scope", "draw"]
    assert new["value"].tolist() == old["value"].tolist()
    pd.testing.assert_frame_equal(with_keys(new), new)
    others = pd.DataFrame({"objective": ["translation"], "method": ["random-all"], "value": [0.0]})
    assert with_keys(others)["method"].tolist() == ["random-all"]  # a method of something else


@pytest.mark.parametrize("side", ["", "_a"])
def test_an_earlier_table_without_rows_gets_the_columns(side: str) -> None:
    new = with_keys(pd.DataFrame({f"objective{side}": pd.Series([], dtype="string")}))
    assert not len(new)
    assert list(new) == [f"{name}{side}" for name in ("objective", "variant", "architecture", "start", "update")]
