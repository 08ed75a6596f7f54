"""What all checkpoints of a model say together, on tables that are made up."""

from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest

from infoflow.foundation import UserError
from infoflow.over_training import change_points, course_tables, phases_over_seeds, prunable_by_update
from infoflow.results import KEYS

STEPS = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]


def keys(update: int, seed: int = 0, **more) -> dict:
    assert len(KEYS) == 8
    return {
        "model": f"causal-lm/seed-{seed}", "objective": "causal-lm", "variant": "", "architecture": "bert", "start": "",
        "seed": seed, "update": update, "trained": update > 0,
        "tokens": 100.0 * update, "progress": update / 256, "lr_share": update / 256, "same_as": -1,
        **more,
    }  # fmt: skip


def estimate(value: float, spread: float = 0.01) -> dict:
    replicates = (value + spread * np.linspace(-1, 1, 20)).tolist()
    return {"value": value, "low": value - spread, "high": value + spread, "baseline": 0.0, "count": 9,
            "replicates": replicates}  # fmt: skip


def patterns(scores: dict[tuple[int, int], list[float]], steps=STEPS) -> pd.DataFrame:
    """Induction scores of heads over the steps."""
    return pd.DataFrame(
        [
            {**keys(step), "stack": "decoder", "kind": "self", "layer": layer, "head": head, "pattern": "prefix",
             "score": "all", **estimate(score)}
            for (layer, head), curve in scores.items()
            for step, score in zip(steps, curve, strict=True)
        ]
    )  # fmt: skip


def test_births_deaths_and_flickers_of_a_head() -> None:
    held = np.array([0, 1, 0, 0, 1, 1, 0, 1, 1, 1])
    never = np.zeros(10)
    tables = course_tables({"head_patterns": patterns({(0, 0): (0.6 * held).tolist(), (0, 1): never.tolist()})})
    (event,) = tables["head_role_events"].to_dict("records")
    assert (event["event"], event["before"], event["after"], event["open"]) == ("birth", 4, 8, False)
    assert (event["flickers"], event["head"], event["role"], event["update"]) == (4, 0, "induction", -1)
    turnover = tables["role_turnover"]
    assert turnover["size"].tolist() == held.tolist()
    assert turnover["heads"].unique().tolist() == [2]
    last = turnover.iloc[-1]
    assert (last["jaccard_final"], last["jaccard_previous"]) == (1, 1)
    assert last["expected"] == pytest.approx(0.5)  # of two heads, one random one is the other in half of all draws


def test_a_set_that_changes_its_members_keeps_its_size() -> None:
    steps = STEPS[:4]
    curves = {(0, 0): [0, 0.9, 0.9, 0], (0, 1): [0, 0, 0.9, 0.9], (1, 0): [0.1, 0.1, 0.1, 0.1], (1, 1): [0.2] * 4}
    turnover = course_tables({"head_patterns": patterns(curves, steps)})["role_turnover"]
    assert turnover["size"].tolist() == [0, 1, 2, 1]
    assert turnover["jaccard_previous"].tolist()[1:] == [0, 0.5, 0.5]
    assert turnover["jaccard_final"].tolist() == [0, 0, 0.5, 1]
    assert turnover["rank_final"].iloc[-1] == pytest.approx(1)


def convergence(values: dict[int, list[float]], steps) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {**keys(step), "stack": "decoder", "layer": layer, "kind": "state", "reference": reference,
             "similarity": "cka", **estimate(value), "null": 0.5}
            for layer, curve in values.items()
            for reference in ("final", "previous")
            for step, value in zip(steps, curve, strict=True)
        ]
    )  # fmt: skip


def test_when_layers_settle() -> None:
    steps = [0, 1, 4, 16, 64, 256, 1024]
    curves = {0: [0.20, 0.20, 0.24, 0.44, 0.76, 0.92, 1], 1: [0.97, 0.97, 0.98, 0.98, 0.99, 1, 1]}
    tables = course_tables({"convergence": convergence(curves, steps).sample(frac=1, random_state=0)})
    times = tables["convergence_time"].sort_values("layer")
    assert set(times["reference"]) == {"final"}  # a reference that moves along is no end
    assert times["time"].iloc[0] == pytest.approx(256)
    assert (times["before"].iloc[0], times["after"].iloc[0]) == (64, 256)
    assert times["area"].iloc[0] == pytest.approx(0.49)
    assert np.isnan(times["time"].iloc[1])  # began nearer than .05
    rows = tables["convergence"]
    own = rows[(rows["layer"] == 0) & (rows["reference"] == "final")]
    assert own["update"].tolist() == steps
    assert own["normalised"].tolist() == pytest.approx([0, 0, 0.05, 0.30, 0.70, 0.90, 1])
    assert rows[rows["reference"] == "previous"]["normalised"].isna().all()


def test_without_step_0_nothing_is_normalised() -> None:
    tables = course_tables({"convergence": convergence({0: [0.2, 0.5, 1]}, [1, 16, 256])})
    assert tables["convergence"]["normalised"].isna().all()
    assert "convergence_time" not in tables


def test_the_best_head_of_each_checkpoint_makes_the_curve_of_a_phase() -> None:
    steps = [0, 1, 2, 3, 5, 8, 12, 18, 28, 43, 66, 102, 157, 242, 373, 575, 886, 1366, 2105, 3244, 5000]
    logistic = [0.0] + [1 / (1 + np.exp(-(np.log2(step) - 8) / 0.5)) for step in steps[1:]]
    flat = [0.05] * len(steps)
    rows = patterns({(0, 0): flat, (1, 0): logistic}, steps)
    found = course_tables({"head_patterns": rows}, warmup=250.0)["phases"]
    (phase,) = found.to_dict("records")
    assert phase["curve"] == "induction, best head"
    assert phase["verdict"] == "abrupt"
    assert phase["t50"] == pytest.approx(257, rel=0.05)
    assert (phase["t50_before"], phase["t50_after"]) == (242, 373)
    assert phase["at_warm_up"]
    assert phase["t50_tokens"] == pytest.approx(100 * phase["t50"])
    assert "phases" not in course_tables({"head_patterns": patterns({(0, 0): logistic[:6]}, steps[:6])})


def test_the_curves_of_phases_are_told_with_their_lines() -> None:
    """Two straight lines in log2 t with a corner at 64, of the best of two heads: two pieces, with every step."""
    steps = [0, *(2**power for power in range(13))]
    corner = [0.0] + [0.1 if power <= 6 else 0.1 + 0.1 * (power - 6) for power in range(13)]
    found = course_tables({"head_patterns": patterns({(0, 0): [-1.0] * 14, (1, 0): corner}, steps)})["phase_curves"]
    assert found["update"].tolist() == steps
    assert found["value"].tolist() == pytest.approx(corner)
    assert set(found["curve"]) == {"induction, best head"}
    spread = np.std(0.01 * np.linspace(-1, 1, 20))
    assert found["error"].tolist() == pytest.approx([spread] * 14)
    segment = found["segment"].to_numpy()
    assert segment[0] == -1
    assert np.isnan(found["line"].iloc[0])
    assert set(segment[1:]) == {0, 1}
    assert (np.diff(segment[1:]) >= 0).all()
    assert found["line"].iloc[1:].tolist() == pytest.approx(corner[1:], abs=1e-9)
    assert found["tokens"].tolist() == [100.0 * step for step in steps]


def test_curves_of_one_name_are_told_apart_by_their_stack() -> None:
    steps = STEPS
    own = [
        {
            **keys(step),
            "stack": stack,
            "regime": "clean",
            "side": "input",
            "layer": 1,
            **estimate(float(np.log1p(step))),
        }
        for stack in ("encoder", "decoder")
        for step in steps
    ]
    both = course_tables({"mutual_information": pd.DataFrame(own)})
    one = course_tables({"mutual_information": pd.DataFrame(own[: len(steps)])})
    name = "information with input, state 1 (clean)"
    assert both["phases"]["curve"].tolist() == [f"{name}, encoder", f"{name}, decoder"]
    assert one["phases"]["curve"].tolist() == one["phase_curves"]["curve"].unique().tolist() == [name]


def pruning(seed: int, gains: dict[int, float], dear_from: dict[int, float]) -> tuple[list[dict], list[dict]]:
    """Curves that cost nothing up to a share of the heads and everything beyond."""
    curves, scores = [], []
    for update, gain in gains.items():
        scores.append({**keys(update, seed), "split": "test", "metric": "loss", "baseline": 6.0})
        for order in ("importance", "random"):
            for draw in range(1 if order == "importance" else 2):
                for removed in (0.0, 0.2, 0.4, 0.6, 0.8):
                    limit = dear_from[update] if order == "importance" else 0.0
                    cost = 10.0 if removed > limit else 0.0
                    row = {"order": order, "draw": draw, "kind": "all", "removed": removed, "metric": "loss"}
                    curves.append({**keys(update, seed), **row, **estimate(6.0 - gain + cost, 0.0)})
    return curves, scores


def test_prunable_shares_begin_where_all_seeds_have_learned() -> None:
    gains = {0: 0.0, 8: 0.2, 32: 0.5, 64: 1.0, 128: 1.5, 256: 2.0}
    late = {**gains, 8: 0.01}
    dear = {0: 0.8, 8: 0.2, 32: 0.2, 64: 0.4, 128: 0.6, 256: 0.6}
    parts = [pruning(0, gains, dear), pruning(1, late, dear)]
    frames = [pd.DataFrame([row for part in parts for row in part[index]]) for index in (0, 1)]
    found = prunable_by_update(dict(zip(("head_pruning_curve", "task_scores"), frames, strict=True)))
    assert sorted(found["update"].unique()) == [32, 64, 128, 256]  # at 8 one seed has not learned
    ordered = found[(found["order"] == "importance") & (found["seed"] == 1)].sort_values("update")
    # Between .2 and .4 the cost rises from nothing to 10 nats, of which a tenth of the gain is allowed.
    assert ordered["value"].tolist() == pytest.approx([0.2 + 0.2 * 0.05 / 10, 0.402, 0.603, 0.604])
    assert found[found["order"] == "random"]["value"].max() < 0.01
    assert len(found) == 2 * 2 * 4


def test_masks_tell_how_far_the_less_important_half_changes() -> None:
    gains = {64: 1.0, 128: 1.0, 256: 1.0}
    curves, scores = pruning(0, gains, dict.fromkeys(gains, 0.4))
    importances = {64: [0.1, 0.2, 0.3, 0.4], 128: [0.1, 0.3, 0.2, 0.4], 256: [0.4, 0.3, 0.2, 0.1]}
    heads = [
        {
            **keys(update),
            "stack": "decoder",
            "kind": "self",
            "layer": 0,
            "head": head,
            "convention": "paper",
            "value": v,
        }
        for update, values in importances.items()
        for head, v in enumerate(values)
    ]
    tables = {"head_pruning_curve": curves, "task_scores": scores, "head_importance": heads}
    found = prunable_by_update({name: pd.DataFrame(rows) for name, rows in tables.items()})
    own = found[found["order"] == "importance"].sort_values("update")
    assert own["mask_previous"].tolist()[1:] == [0.5, 0.5]
    assert own["mask_final"].tolist() == [1, 0.5, 0]
    assert found[found["order"] == "random"]["mask_final"].isna().all()


def test_an_objective_that_learned_nothing_has_no_rows() -> None:
    curves, scores = pruning(0, {64: 0.0, 256: 0.01}, {64: 0.2, 256: 0.2})
    assert prunable_by_update({"head_pruning_curve": pd.DataFrame(curves), "task_scores": pd.DataFrame(scores)}).empty


# -- phases of several seeds ------------------------------------------------------------------------------------------


def seed_phases(*seeds: tuple[float, str], curve: str = "loss", **more) -> pd.DataFrame:
    times = {"t10": 0.5, "t50": 1.0, "t90": 2.0}
    return pd.DataFrame(
        [
            {**keys(-1, seed), "table": "task_scores", "curve": curve, "verdict": verdict, "width": 2.0 + seed,
             "share": 0.1, "at_warm_up": seed == 0, "t50_tokens": 100 * middle,
             **{name: factor * middle for name, factor in times.items()}, **more}
            for seed, (middle, verdict) in enumerate(seeds)
        ]
    )  # fmt: skip


def test_phases_over_seeds_against_sorting_by_hand() -> None:
    frame = pd.concat(
        [seed_phases((64, "abrupt"), (8, "abrupt"), (16, "abrupt")), seed_phases((4, "gradual"), curve="x")]
    )
    one, other = phases_over_seeds(frame).to_dict("records")
    assert (one["curve"], one["seeds"], one["changed"], one["abrupt"], one["verdict"]) == ("loss", 3, 3, 3, "abrupt")
    assert [one[f"t50{part}"] for part in ("", "_least", "_most")] == [16, 8, 64]
    assert [one[f"t10{part}"] for part in ("", "_least", "_most")] == [8, 4, 32]
    assert [one[f"width{part}"] for part in ("", "_least", "_most")] == [3, 2, 4]
    assert one["t50_tokens"] == 1600
    assert one["t50_mean"] == pytest.approx((64 * 8 * 16) ** (1 / 3))
    half = 4.302653 * np.log([64, 8, 16]).std(ddof=1) / np.sqrt(3)  # Student's with two degrees of freedom
    assert [one["t50_low"], one["t50_high"]] == pytest.approx([one["t50_mean"] * np.exp(end) for end in (-half, half)])
    assert (one["update"], one["at_warm_up"]) == (-1, 1)
    assert (other["seeds"], other["verdict"], other["t50"]) == (1, "unknown", 4)
    assert np.isnan(other["t50_low"])


def test_seeds_without_a_time_are_counted_and_give_none() -> None:
    (row,) = phases_over_seeds(
        seed_phases((64, "abrupt"), (np.nan, "no change"), (16, "unfinished"), (32, "gradual"))
    ).to_dict("records")
    assert (row["seeds"], row["changed"], row["abrupt"], row["verdict"]) == (4, 2, 1, "mixed")
    assert (row["t50"], row["t50_least"], row["t50_most"]) == (48, 32, 64)


def test_models_that_share_a_seed_are_not_taken_for_seeds() -> None:
    frame = pd.concat([seed_phases((64, "abrupt")), seed_phases((8, "abrupt"), model="another")])
    assert phases_over_seeds(frame).empty
    assert len(phases_over_seeds(frame.assign(variant=["", "static"]))) == 2


# -- several phases in one curve --------------------------------------------------------------------------------------


def slowest(x, y, sigma, segments: int) -> tuple[float, tuple[int, ...]]:
    """The best pieces by trying all, each fitted by numpy."""

    def cost(start: int, end: int) -> float:
        at, of = x[start:end], y[start:end]
        return float((((of - np.polyval(np.polyfit(at, of, 1), at)) / sigma[start:end]) ** 2).sum())

    every = [
        (sum(cost(a, b) for a, b in pairwise((0, *cuts, len(x)))), cuts)
        for cuts in combinations(range(2, len(x) - 1), segments - 1)
        if all(b - a >= 2 for a, b in pairwise((0, *cuts, len(x))))
    ]
    return min(every)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("segments", [1, 2, 3, 4])
def test_change_points_against_trying_all(seed: int, segments: int) -> None:
    rng = np.random.default_rng(seed)
    steps = np.array([*STEPS[1:], 300, 500, 777])
    y = np.cumsum(rng.normal(size=len(steps)))
    x, sigma = np.log2(steps), rng.uniform(0.5, 1.5, len(steps))
    cost, cuts = slowest(x, y, sigma, segments)
    found = change_points(steps, y, sigma, most=segments, penalty=-1e9)  # as many as it may
    assert found.steps == tuple(float(steps[cut]) for cut in cuts)
    assert found.cost == pytest.approx(cost, rel=1e-6, abs=1e-9)


def test_change_points_of_the_reference_curve() -> None:
    """A logistic of m = 8 and tau = .5 on the steps of log:20: two, that open at 157 and 575."""
    steps = np.array([1, 2, 3, 5, 8, 12, 18, 28, 43, 66, 102, 157, 242, 373, 575, 886, 1366, 2105, 3244, 5000])
    y = 1 / (1 + np.exp(-(np.log2(steps) - 8) / 0.5))
    assert change_points(steps, y, 0.02, most=3).steps == (157, 575)
    assert change_points(steps, 0 * y, 0.02).steps == ()
    assert change_points(steps, np.log2(steps), 0.02).steps == ()


def test_change_points_need_points() -> None:
    with pytest.raises(UserError, match="8 steps or more"):
        change_points([0, 1, 2, 4], [0, 1, 2, 3], 0.1)
    with pytest.raises(UserError, match=r"most must lie in 1\.\.4"):
        change_points(STEPS, np.arange(10.0), 0.1, most=5)
