"""Finding the right rows, and saying what is missing."""

import numpy as np
import pandas as pd
import pytest

from infoflow.findings import FINDINGS, Absent, Table, gather, seed_distance, task_distance
from infoflow.results import Spec

from .groups import models_of


def read(tables, name="layer_distance", first=1, where=None, **changes):
    curve = Table(name, Spec("causal-lm")).where(**(where or {})).by("layer", first=first)
    return curve.changed(**changes).estimates(models_of(tables))


def absence(tables, **fields):
    with pytest.raises(Absent) as caught:
        read(tables, **fields)
    return str(caught.value)


def test_curve_in_order_whatever_the_order_of_rows(published):
    published["layer_distance"] = published["layer_distance"].sample(frac=1, random_state=0)
    curve = read(published)
    assert curve.units == ((1,), (2,), (3,))
    assert curve.depth == 5
    np.testing.assert_allclose(curve.values_UK, [[0.075, 0.067, 0.065, 0.079, 0.0705]] * 3)
    assert curve.replicates_URK.shape == (3, 40, 5)


def test_replicates_belong_to_their_layer_and_seed(make_study):
    table = make_study(noise=0.1, between=0.1).tables()["layer_distance"]
    curve = read({"layer_distance": table})
    rows = table[(table["objective"] == "causal-lm") & table["trained"] & (table["seed"] == 2) & (table["layer"] == 4)]
    np.testing.assert_array_equal(curve.replicates_URK[1, :, 3], rows["replicates"].iloc[0])


def test_first_layer_leaves_the_layers_below_out(published):
    where = {"side": "input", "regime": "clean"}
    curve = read(published, "mutual_information", where=where, first=1)
    assert curve.depth == 6


def test_untrained_and_baseline(published):
    np.testing.assert_allclose(read(published, trained=False).values_UK, 0.02)
    baseline = read(published, number="baseline")
    np.testing.assert_allclose(baseline.values_UK, 0.8)
    assert baseline.num_replicates == 0


def test_published_setting_is_chosen_among_several(published):
    table = published["layer_distance"]
    published["layer_distance"] = pd.concat([table.assign(side="x", value=9.0), table, table.assign(side="y")])
    assert read(published).values_UK.max() < 0.1


def test_only_setting_is_taken_whatever_it_is(published):
    published["layer_distance"] = published["layer_distance"].assign(side="x", stack="decoder")
    assert read(published).values_UK.shape == (3, 5)


def test_encoder_is_chosen_of_two_stacks(published):
    table = published["layer_distance"]
    published["layer_distance"] = pd.concat([table.assign(stack="decoder", value=9.0), table])
    assert read(published).values_UK.max() < 0.1


def test_what_is_missing_is_named(published):
    table = published["layer_distance"]
    assert absence({}) == "the table layer_distance is absent"
    assert absence({"layer_distance": table.iloc[:0]}) == "the table layer_distance is absent"
    assert absence({"layer_distance": table.drop(columns="seed")}) == "the table layer_distance has no column seed"
    typo = absence({}, name="layer_distanse")
    assert typo.startswith("the table layer_distanse is absent: infoflow makes no such table. Did you mean layer_")
    only = {"layer_distance": table[table["objective"] == "masked-lm"]}
    assert absence(only) == "there is no causal LM among the models (masked-lm)"
    trained = {"layer_distance": table[table["trained"]]}
    assert absence(trained, trained=False) == "layer_distance has no matching rows of the untrained causal LM"
    holes = {"layer_distance": table[table["layer"] != 3]}
    assert absence(holes) == "the table layer_distance lacks a layer or holds one twice: it has 1, 2, 4, 5"
    twice = {"layer_distance": pd.concat([table, table])}
    assert absence(twice).endswith("; .where(COLUMN=VALUE) chooses one row for each")
    shallow = {"layer_distance": table[table["layer"] <= 2]}
    assert "too shallow: layer_distance has 2 layers" in absence(shallow)
    uneven = {"layer_distance": table[(table["layer"] < 5) | (table["seed"] != 2)]}
    assert absence(uneven) == "layer_distance holds different layers for different seeds"
    undefined = {"layer_distance": table.assign(value=np.nan)}
    assert absence(undefined) == "layer_distance holds no number (value) at some layers"


def test_distance_between_tasks_is_found_in_either_order(published):
    table = published["model_distance"]
    swapped = table.rename(
        columns=lambda name: name[:-1] + {"a": "b", "b": "a"}[name[-1]] if name[-2:-1] == "_" else name
    )
    mixed = pd.concat([table[table["seed_a"] != 2], swapped[swapped["seed_a"] == 2]])
    for first, second in (("translation", "masked-lm"), ("masked-lm", "translation")):
        curve = task_distance(Spec(first), Spec(second)).estimates(models_of({"model_distance": mixed}))
        assert curve.units == ((1,), (2,), (3,))
        np.testing.assert_allclose(curve.values_UK, [[0.423, 0.430, 0.438, 0.453, 0.470, 0.535]] * 3)


def test_distance_between_tasks_takes_encoders(published):
    table = published["model_distance"]
    decoder = table[table["objective_a"] == "translation"].assign(stack_a="decoder", value=9.0)
    curve = task_distance(Spec("masked-lm"), Spec("translation")).estimates(
        models_of({"model_distance": pd.concat([decoder, table])})
    )
    assert curve.values_UK.max() < 1


def test_distance_between_seeds(published):
    curve = seed_distance(Spec("translation")).estimates(models_of(published))
    assert curve.units == ((1, 2), (1, 3), (2, 3))
    np.testing.assert_allclose(curve.alone(2), [[0.302, 0.305, 0.310, 0.315, 0.313, 0.309]])


def test_only_seeds_that_every_table_has_are_used(published):
    table = published["identity_neighbours"]
    published["identity_neighbours"] = table[(table["seed"] != 2) | (table["objective"] != "masked-lm")]
    found = gather(FINDINGS["representations:V-17"].reads, models_of(published))
    assert {curve.units for curve in found.values()} == {((1,), (3,))}


def test_models_of_different_depth_are_not_compared(published):
    table = published["identity_neighbours"]
    published["identity_neighbours"] = table[(table["layer"] < 6) | (table["objective"] != "masked-lm")]
    with pytest.raises(Absent, match="differ in depth"):
        gather(FINDINGS["representations:V-13"].reads, models_of(published))
