"""The map of objectives, against loops over the same tables; INVENTED numbers."""

from itertools import combinations, permutations

import numpy as np
import pandas as pd
import pytest

from infoflow.subjects.alignment.claims import MAP_TABLES, objective_map

PLACES = {
    "causal-lm": (0.0, 0.0),
    "prefix-lm-decoder": (0.1, 0.0),
    "masked-lm": (1.0, 0.0),
    "spanbert": (1.0, 0.15),
    "bart": (0.0, 1.0),
    "denoise-full": (0.2, 1.0),
    "translation": (0.25, 1.1),
}
FAMILIES = {
    "causal-lm": "predict next",
    "prefix-lm-decoder": "predict next",
    "masked-lm": "fill in",
    "spanbert": "fill in",
    "bart": "reconstruct",
    "denoise-full": "reconstruct",
    "translation": "translate",
}
KEYS = {"variant": "", "architecture": "bert", "start": ""}


def ends(first: tuple[str, int], second: tuple[str, int], trained: bool) -> dict:
    row = {"trained": trained}
    for side, (objective, seed) in zip("ab", (first, second), strict=True):
        keys = {"objective": objective, "seed": seed, **KEYS, "update": -1 if trained else 0}
        row |= {f"{name}_{side}": value for name, value in keys.items()}
        row[f"model_{side}"] = f"{objective}/seed-{seed}"
        row[f"stack_{side}"] = "encoder"
    return row


def apart(first: str, second: str, seed: int, trained: bool = True) -> float:
    if not trained:
        return 0.0
    a, b = np.array(PLACES[first]), np.array(PLACES[second])
    return float(np.linalg.norm(a - b)) * (1 + 0.05 * seed)


def model_distance(seeds=(0, 1), skip: tuple = ()) -> pd.DataFrame:
    rows = []
    for trained in (True, False):
        for first, second in combinations(PLACES, 2):
            for seed in seeds if (first, second) not in skip else ():
                keys = ends((first, seed), (second, seed), trained)
                for layer in range(4):
                    value = apart(first, second, seed, trained) + 0.1 * (layer - 2) * trained
                    replicates = [value - 0.01, value, value + 0.01]
                    rows.append({**keys, "layer": layer, "side": "mean", "value": value, "replicates": replicates})
        for objective in PLACES:
            for one, other in combinations(seeds, 2):
                keys = ends((objective, one), (objective, other), trained)
                rows += [{**keys, "layer": layer, "side": "mean", "value": 0.3, "replicates": []} for layer in range(4)]
    return pd.DataFrame(rows)


def heads_tables(seeds=(0,)) -> dict[str, pd.DataFrame]:
    """Two scores of four heads; the tables have other columns than the ones that are read, too."""
    tables = {"head_positional": [], "head_surface": []}
    for trained in (True, False):
        for number, objective in enumerate(PLACES):
            for seed in seeds:
                rng = np.random.default_rng([number, seed, trained])
                for layer in range(2):
                    for head in range(2):
                        keys = {"model": f"{objective}/seed-{seed}", "objective": objective, "seed": seed, **KEYS}
                        keys |= {"update": -1 if trained else 0, "trained": trained, "stack": "encoder"}
                        keys |= {"kind": "self", "layer": layer, "head": head, "count": 9, "baseline": 0.1}
                        score = rng.random(2)
                        low_high = {"low": 0.0, "high": 1.0}
                        tables["head_positional"].append({**keys, **low_high, "offset": -1, "value": score[0]})
                        tables["head_surface"].append({**keys, **low_high, "statistic": "sep", "value": score[1]})
                        decoy = {"stack": "decoder", "kind": "cross", "value": 0.5}
                        tables["head_surface"].append({**keys, **low_high, "statistic": "sep", **decoy})
    return {name: pd.DataFrame(rows) for name, rows in tables.items()}


@pytest.fixture(scope="module")
def found():
    return objective_map({"model_distance": model_distance(), **heads_tables()})


def of(tables: dict, name: str, aspect: str = "spaces", trained: bool = True) -> pd.DataFrame:
    frame = tables[name]
    return frame[(frame["aspect"] == aspect) & (frame["trained"] == trained)]


def test_distances_are_means_over_layers_above_the_embeddings_and_over_seeds(found) -> None:
    table = of(found, "objective_distances").set_index(["first", "second"])
    for first, second in combinations(sorted(PLACES), 2):
        expected = [np.mean([apart(first, second, seed) + 0.1 * (layer - 2) for layer in (1, 2, 3)]) for seed in (0, 1)]
        row = table.loc[(first, second)]
        assert row["value"] == pytest.approx(np.mean(expected))
        assert row["low"] <= row["value"] <= row["high"]
        assert row["seeds"] == 2
    assert table.loc[("bart", "bart"), "value"] == pytest.approx(0.3)
    assert len(table) == 21 + 7


def test_distances_of_heads_are_energy_distances(found) -> None:
    tables = heads_tables()
    clouds = {}
    for objective in PLACES:
        parts = [tables[name] for name in ("head_positional", "head_surface")]
        own = [t[(t["objective"] == objective) & t["trained"] & (t["stack"] == "encoder")] for t in parts]
        clouds[objective] = np.stack([part["value"].to_numpy() for part in own], axis=1)
    table = of(found, "objective_distances", "heads").set_index(["first", "second"])

    def mean(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.mean([np.sqrt(((a - b) ** 2).sum()) for a in x for b in y]))

    for first, second in combinations(sorted(PLACES), 2):
        x, y = clouds[first], clouds[second]
        expected = np.sqrt(2 * mean(x, y) - mean(x, x) - mean(y, y))
        assert table.loc[(first, second), "value"] == pytest.approx(expected)
    assert table["low"].isna().all()  # one seed, and no bootstrap


def test_the_picture_shows_the_distances(found) -> None:
    table = of(found, "objective_map")
    mean = table[table["seed"] == -1].set_index("objective")
    for first, second in combinations(PLACES, 2):
        drawn = np.linalg.norm(mean.loc[first, ["x", "y"]].astype(float) - mean.loc[second, ["x", "y"]].astype(float))
        assert drawn == pytest.approx(apart(first, second, 0.5), abs=0.02)
    assert mean["stress"].max() < 0.03 < mean["shuffled_stress"].min()
    assert dict(mean["family"]) == FAMILIES
    seeds = table[table["seed"] >= 0]
    assert set(seeds["seed"]) == {0, 1}
    own = seeds[seeds["seed"] == 0].set_index("objective").loc[mean.index]
    apart_from_mean = np.abs(own[["x", "y"]].to_numpy() - mean[["x", "y"]].to_numpy()).max()
    assert apart_from_mean < 0.05  # turned onto the mean
    one = objective_map({"model_distance": model_distance(seeds=(0,))})["objective_map"]
    assert set(one["seed"]) == {-1}


def test_nearest_neighbours_and_the_share_of_relatives_by_hand(found) -> None:
    mean = of(found, "objective_map").query("seed == -1").set_index("objective")
    assert mean.loc["causal-lm", "nearest"] == "prefix-lm-decoder"
    assert mean.loc["denoise-full", "nearest"] == "translation"
    assert (mean["equally_near"] == 1).all()
    (row,) = of(found, "objective_families").to_dict("records")
    assert row["count"] == 6  # translation has no relative
    hits = [FAMILIES[mean.loc[name, "nearest"]] == FAMILIES[name] for name in mean.index if name != "translation"]
    assert row["value"] == pytest.approx(np.mean(hits)) == pytest.approx(5 / 6)
    assert row["low"] < row["value"] < row["high"] <= 1


def test_chance_and_p_agree_with_all_permutations(found) -> None:
    (row,) = of(found, "objective_families").to_dict("records")
    mean = of(found, "objective_map").query("seed == -1").set_index("objective")
    names = list(mean.index)
    shares = []
    for order in permutations(range(len(names))):
        dealt = {name: FAMILIES[names[place]] for name, place in zip(names, order, strict=True)}
        hits = [dealt[name] == dealt[mean.loc[name, "nearest"]] for name in names if dealt[name] != "translate"]
        shares.append(np.mean(hits))
    assert row["baseline"] == pytest.approx(np.mean(shares))
    assert row["p"] == pytest.approx(np.mean(np.array(shares) >= row["value"] - 1e-9), abs=0.01)


def test_untrained_models_that_are_all_alike_have_no_family(found) -> None:
    (row,) = of(found, "objective_families", trained=False).to_dict("records")
    assert row["value"] == pytest.approx(row["baseline"])  # all are equally near
    assert row["p"] > 0.5
    assert (of(found, "objective_map", trained=False)["equally_near"] == len(PLACES) - 1).all()


def test_an_objective_that_was_not_compared_with_all_is_left_out() -> None:
    skip = (("masked-lm", "bart"), ("masked-lm", "translation"))
    table = of(objective_map({"model_distance": model_distance(skip=skip)}), "objective_map")
    assert set(table["objective"]) == set(PLACES) - {"masked-lm"}
    far = tuple(pair for pair in combinations(PLACES, 2) if "causal-lm" not in pair)
    assert objective_map({"model_distance": model_distance(skip=far)}) == {}


def test_a_damaged_table_costs_only_its_own_map() -> None:
    damaged = model_distance().drop(columns="layer")
    found = objective_map({"model_distance": damaged, **heads_tables()})
    assert set(found["objective_map"]["aspect"]) == {"heads"}


def test_tables_conform_and_nothing_needs_no_tables(found) -> None:
    for schema in MAP_TABLES:
        assert list(found[schema.name]) == schema.column_names
    assert objective_map({}) == {}
