"""The claims about training time, on INVENTED tables on which each holds, and on others where it does not."""

import numpy as np
import pandas as pd
import pytest

from infoflow.findings import FINDINGS, Finding, evaluate
from infoflow.foundation import NUM_REPLICATES
from infoflow.subjects.over_training.claims import findings_over_training

pytestmark = pytest.mark.slow

SEEDS = (0, 1, 2, 3)  # three cannot show what is counted seed by seed (T7)
STEPS = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
N = STEPS[-1]
LAYERS = range(5)


def keys(objective: str, seed: int, update: int = -1) -> dict:
    return {
        "model": f"{objective}/seed-{seed}", "objective": objective, "variant": "", "architecture": "bert", "start": "",
        "seed": seed, "update": update, "trained": update != 0,
    }  # fmt: skip


def clocks(update: int) -> dict:
    return {"tokens": 1e3 * update, "progress": update / N, "lr_share": update / N, "same_as": -1}


def estimate(value: float, *place: object, spread: float = 0.002) -> dict:
    rng = np.random.default_rng([sum(map(ord, str(part))) for part in place])
    value = value + spread * rng.standard_normal()
    draws = (value + spread * rng.standard_normal(NUM_REPLICATES)).tolist()
    return {"value": value, "low": value - 2 * spread, "high": value + 2 * spread, "baseline": 0.0, "count": 99,
            "replicates": draws}  # fmt: skip


def learned(*objectives: str) -> pd.DataFrame:
    """Scores far better than the baselines."""
    rows = []
    for objective in objectives:
        for seed in SEEDS:
            for metric, value, baseline in (("loss", 2.0, 6.0), ("bleu", 40.0, 1.0)):
                if metric == "loss" or objective == "translation":
                    row = {"split": "test", "metric": metric, "signature": ""}
                    rows.append(keys(objective, seed) | row | estimate(value, objective, seed) | {"baseline": baseline})
    return pd.DataFrame(rows)


def settling(states, blocks, null_states, null_blocks) -> pd.DataFrame:
    curves = {"state": (states, null_states), "block": (blocks, null_blocks)}
    return pd.DataFrame(
        [
            keys("causal-lm", seed) | {"stack": "decoder", "layer": layer, "kind": kind, "reference": "final",
            "similarity": "cka", "time": time + seed, "null_time": null + seed, "before": 1.0, "after": 2.0}
            for seed in SEEDS
            for kind, (times, nulls) in curves.items()
            for layer, (time, null) in enumerate(zip(times, nulls, strict=True))
        ]
    )  # fmt: skip


RISING, FLAT, FALLING = [10, 20, 40, 80, 160], [50, 60, 45, 55, 40], [160, 80, 40, 20, 10]


def convergence(objective: str, curve, null=lambda u, layer: 0.5, other=None, steps=STEPS) -> list[dict]:
    """`curve(update, layer)` is the share of the way to the end; similarity begins at .2."""
    rows = []
    for seed in SEEDS:
        for update in steps:
            for layer in LAYERS:
                for reference, of in (("final", curve), ("other-seed", other)):
                    if of is not None:
                        value = 0.2 + 0.8 * of(update, layer)
                        place = {"stack": "encoder", "layer": layer, "kind": "state", "reference": reference}
                        rows.append(
                            keys(objective, seed, update) | clocks(update) | place | {"similarity": "cka"}
                            | estimate(value, objective, seed, update, layer, spread=1e-4)
                            | {"null": 0.2 + 0.8 * null(update, layer), "normalised": 0.0}
                        )  # fmt: skip
    return rows


def early(update: int, layer: int) -> float:
    return min(np.log2(update + 1) / np.log2(0.15 * N), 1.0)


def late(update: int, layer: int) -> float:
    return update / N


def roles(jaccard: float, size: int = 4) -> pd.DataFrame:
    return pd.DataFrame(
        [
            keys("causal-lm", seed, update) | clocks(update) | {"stack": "decoder", "kind": "self", "role": "copying",
            "size": size if update >= 8 else 0, "heads": 48, "jaccard_previous": jaccard + 0.01 * seed,
            "expected_previous": 0.05, "jaccard_final": 0.5, "expected": 0.05, "rank_previous": 0.9, "rank_final": 0.9}
            for seed in SEEDS
            for update in STEPS
        ]
    )  # fmt: skip


def ngrams(minima=(4, 16, 64), rise: float = 0.5) -> pd.DataFrame:
    """Divergences that fall to a minimum and rise again."""
    rows = []
    for seed in SEEDS:
        for order, minimum in enumerate(minima, 1):
            for update in STEPS:
                away = abs(np.log2(max(update, 0.5)) - np.log2(minimum)) / max(np.log2(N / minimum), 1.0)
                value = 1.0 + rise * away
                row = {"order": order, "context": "before", "measure": "kl_from_ngram", "corpus": "training"}
                rows.append(keys("causal-lm", seed, update) | clocks(update) | row
                            | estimate(value, seed, order, update) | {"baseline": 5.0})  # fmt: skip
    return pd.DataFrame(rows)


def warmed_up(updates: float, rates: float, seeds: float = 0.3, gap: float = 0.1) -> dict:
    """Doublings by which the minimum of KL(Q1||P) comes later with the longer warm-up, and in another seed."""
    rows = []
    for seed in SEEDS:
        for compared, grown in (("warm-up", (updates, rates)), ("seed", (-seeds, -seeds))):
            for measure, value in zip(("updates", "rates"), grown, strict=True):
                row = {"compared": compared, "other_seed": seed, "order": 1, "measure": measure, "gap": gap}
                rows.append(keys("causal-lm", seed) | row | estimate(value, seed, compared, measure, spread=0.02))
    return {"stages_by_warmup": pd.DataFrame(rows)}


def phases(**middles: tuple[float, str]) -> pd.DataFrame:
    names = {"induction": "induction, best head", "gain": "repeat_gain", "before": "positional -1, best self head",
             "first": "attention to the first token, mean of heads"}  # fmt: skip
    return pd.DataFrame(
        [
            keys("causal-lm", seed) | {"table": "t", "curve": names[name], "verdict": verdict, "t10": middle / 2 + seed,
            "t50": middle + seed, "t90": middle * 2 + seed}
            for seed in SEEDS
            for name, (middle, verdict) in middles.items()
        ]
    )  # fmt: skip


def gains(curve) -> pd.DataFrame:
    rows = [
        keys("causal-lm", seed, update) | clocks(update) | {"measure": "repeat_gain"}
        | estimate(curve(update), seed, update)
        for seed in SEEDS
        for update in STEPS
    ]  # fmt: skip
    return pd.DataFrame(rows)


def stages(bigrams, fivegrams, order, chrf=lambda u: min(u / 128, 1.0) * 50, order_baseline=0.5) -> pd.DataFrame:
    curves = {("chrf", -1): chrf, ("lm_score", 2): bigrams, ("lm_score", 5): fivegrams, ("frs_a", -1): order}
    rows = []
    for seed in SEEDS:
        for (measure, n), curve in curves.items():
            for update in STEPS:
                rows.append(
                    keys("translation", seed, update) | clocks(update) | {"measure": measure, "n": n, "rank_bin": ""}
                    | estimate(curve(update), seed, measure, n, update)
                    | {"baseline": order_baseline if measure == "frs_a" else -1.0}
                )  # fmt: skip
    return pd.DataFrame(rows)


def bump(at: float, height: float):
    return lambda update: height - 0.3 * abs(np.log2(max(update, 0.5)) - np.log2(at))


def prunable(importance, random) -> pd.DataFrame:
    steps = [64, 128, 256, 384, 512, 640, 768, 896, 1024]
    return pd.DataFrame(
        [
            keys("translation", seed, update) | clocks(update) | {"order": order, "kind": "all",
            **estimate(curve(update), seed, order, update)}
            for seed in SEEDS
            for order, curve in (("importance", importance), ("random", random))
            for update in steps
        ]
    )  # fmt: skip


def divergence(left: float) -> pd.DataFrame:
    """Falls at once to a share of its start, then straight to 0."""
    curve = {0: 5.0, 1: 5.0 * left}
    return pd.DataFrame(
        [
            keys("translation", seed, update) | clocks(update) | {"position": -1}
            | estimate(curve.get(update, 5.0 * left * (1 - update / N)), seed, update)
            for seed in SEEDS
            for update in STEPS
        ]
    )  # fmt: skip


def source_shares(dip: float, baseline: float = 0.5) -> pd.DataFrame:
    return pd.DataFrame(
        [
            keys("translation", seed, update) | clocks(update)
            | {"rule": rule, "explained": "top", "position": -1, "measure": "share"}
            | estimate(0.6 - dip * (8 <= update <= 64), seed, update, rule) | {"baseline": baseline}
            for seed in SEEDS
            for rule in ("alti", "lrp")
            for update in STEPS
        ]
    )  # fmt: skip


def frequency(times, start=9.0, gain=1.0) -> pd.DataFrame:
    """Losses of deciles, the most frequent first: those of uniform predictions, then of unigrams from update 4 on, then
    better by the gain, half of it at the decile's time."""
    rows = []
    for seed in SEEDS:
        for decile, time in enumerate(times):
            unigram = 3.0 + decile / 2
            for update in STEPS:
                risen = 1 / (1 + (time / update) ** 4) if update else 0.0
                value = (start if update < 4 else unigram) - gain * risen
                place = {"decile": decile, "corpus": "training", "types": 40, "log_frequency": -4.0 - decile}
                rows.append(
                    keys("causal-lm", seed, update) | clocks(update) | place
                    | estimate(value, seed, decile, update) | {"baseline": unigram}
                )  # fmt: skip
    return pd.DataFrame(rows)


def embeddings(times) -> pd.DataFrame:
    """Displacements that fall to a tenth of their start at the decile's time."""
    return pd.DataFrame(
        [
            keys("causal-lm", seed, update) | clocks(update) | {"decile": decile, "types": 40,
            "value": 1.5 * max(0.0, 1 - 0.9 * min(update / (time + seed), 1)) * (update < N)}
            for seed in SEEDS
            for decile, time in enumerate([500, *times], -1)
            for update in STEPS
        ]
    )  # fmt: skip


def ranks(curve, spread=0.05) -> pd.DataFrame:
    """Of states 0 to 2; only the last one's moves as told."""
    return pd.DataFrame(
        [
            keys("causal-lm", seed, update) | clocks(update) | {"stack": "decoder", "layer": layer}
            | estimate(curve(update) if layer == 2 else 10.0 + update, seed, layer, update, spread=spread)
            | {"baseline": 63.0}
            for seed in SEEDS
            for layer in range(3)
            for update in STEPS
        ]
    )  # fmt: skip


def twice_bent(update: int) -> float:
    return float(np.interp(np.log2(max(update, 0.5)), [-1, 3, 8, 10], [30, 10, 40, 25]))


THREE = ("causal-lm", "masked-lm", "translation")


def other_seed(first: float, last: float):
    return [
        row
        for objective in THREE
        for row in convergence(
            objective,
            late,
            other=lambda u, layer: first + (last - first) * layer / 4 if u else 0.0,
            steps=sorted({*STEPS, *range(128, N, 64)}),  # of fewer than eleven checkpoints no share is above .9
        )
    ]


def apart(curve) -> pd.DataFrame:
    """Divergence between seeds at each update."""
    rows = [
        keys("causal-lm", seed, update) | clocks(update) | {"position": -1}
        | estimate(curve(update), seed, update, spread=0.01) | {"baseline": 3.0}
        for seed in SEEDS
        for update in STEPS
    ]  # fmt: skip
    return pd.DataFrame(rows)


def hump(update: int) -> float:
    """0 at step 0, 1 at 32, .4 at the end."""
    return min(update / 32, 1.0) - 0.6 * max(update - 32, 0) / (N - 32)


def dips(depth, bigrams: int = 16, clean=lambda u: 0.0) -> dict[str, pd.DataFrame]:
    """Information of five states with the input, lowest in the middle one by `depth(update)`; bigrams' minimum."""
    rows = []
    for seed in SEEDS:
        for update in STEPS:
            for regime, of in (("training", depth), ("clean", clean)):
                for layer in LAYERS:
                    place = {"stack": "encoder", "regime": regime, "side": "input", "layer": layer}
                    value = 4.0 - of(update) * (layer == 2) - 0.2 * (layer == 4)
                    rows.append(keys("masked-lm", seed, update) | clocks(update) | place
                                | estimate(value, regime, seed, update, layer))  # fmt: skip
    counts = ngrams((4, bigrams, 64)).assign(objective="masked-lm")
    return {
        "mutual_information_over_training": pd.DataFrame(rows),
        "ngram_agreement_over_training": counts.assign(model=counts["model"].str.replace("causal", "masked")),
    }


def probes(objective: str, task: str, score, control=lambda u, layer: 0.3) -> list[dict]:
    """Accuracies `score(update, layer)` of the task and of its control."""
    common = {"task": task, "probe": "linear", "words": "all", "metric": "accuracy", "share": 1.0, "stack": "encoder"}
    return [
        keys(objective, seed, update) | clocks(update) | common | {"layer": layer, "labels": labels}
        | estimate(of(update, layer), task, labels, seed, update, layer)
        for seed in SEEDS
        for update in STEPS
        for layer in LAYERS
        for labels, of in (("task", score), ("control", control))
    ]  # fmt: skip


def risen(middle: float, top: float = 0.5):
    """From .3 to .3 + `top`, half of it at `middle`, in all layers; a little more in layer 2."""
    return lambda u, layer: 0.3 + top / (1 + (middle / max(u, 1e-9)) ** 2) * (1 + 0.02 * (layer == 2))


def probed(*middles: float, **how) -> dict[str, pd.DataFrame]:
    tasks = ("upos", "deprel", "coreference")
    rows = [probes("causal-lm", task, risen(middle), **how) for task, middle in zip(tasks, middles, strict=True)]
    return {"probe_scores_over_training": pd.DataFrame([row for own in rows for row in own])}


def moved(first: int, last: int, **how) -> dict[str, pd.DataFrame]:
    """The best layer is `first` until 128, then `last`; the last layer loses from then on."""

    def score(update: int, layer: int) -> float:
        best = first if update <= 128 else last
        return 0.3 + min(update / 32, 1.0) * (0.4 + 0.03 * (layer == best) - 0.1 * (layer == 4 and update > 128))

    return {"probe_scores_over_training": pd.DataFrame(probes("masked-lm", "upos", score, **how))}


def moved_control(update: int, layer: int) -> float:
    """A control task that does what the task does."""
    return 0.1 + min(update / 32, 1.0) * (0.4 + 0.03 * (layer == (3 if update <= 128 else 1))
                                          - 0.1 * (layer == 4 and update > 128))  # fmt: skip


def syntax(heads: float, verdict: str, grammar: float, drop: int = 64, places: float = 4) -> dict[str, pd.DataFrame]:
    """Middles of relations' heads, of grammar, of heads of places; the loss falls most between drop / 2 and drop."""
    times = [
        keys("masked-lm", seed)
        | {"table": table, "curve": f"{table} {number}", "verdict": verdict, "t10": at / 2, "t50": at + seed / 10}
        for seed in SEEDS
        for table, at in (("head_relations", heads), ("head_positional", places))
        for number in range(3)
    ]
    loss, pairs = [], []
    for seed in SEEDS:
        for update in STEPS:
            own = keys("masked-lm", seed, update) | clocks(update)
            value = 6.0 - 2.0 * (update >= drop) - 0.001 * np.log2(update + 1)
            loss.append(own | {"split": "test", "metric": "loss", "signature": ""} | estimate(value, seed, spread=1e-6))
            place = {"stack": "encoder", "layer": 4, "phenomenon": "all", "metric": "preferred"}
            pairs.append(own | place | estimate(risen(grammar)(update, 0), seed, update))
    return {
        "phases": pd.DataFrame(times),
        "task_scores_over_training": pd.DataFrame(loss),
        "minimal_pairs_over_training": pd.DataFrame(pairs),
    }


CASES = {
    "time:T1": {
        "holds": {"convergence_time": settling(RISING, RISING, RISING, FLAT)},
        "fails": {"convergence_time": settling(RISING, FALLING, RISING, FLAT)},
        "undetermined": {"convergence_time": settling(RISING, RISING, RISING, RISING)},  # the null shows it too
    },
    "time:T2": {
        "holds": {"convergence": pd.DataFrame(convergence("causal-lm", early, late, late))},
        "fails": {"convergence": pd.DataFrame(convergence("causal-lm", late, late, late))},
        "undetermined": {"convergence": pd.DataFrame(convergence("causal-lm", early, late, early))},
    },
    "time:T3": {
        "holds": {"loss_by_frequency_over_training": frequency(np.geomspace(16, 256, 10))},
        "fails": {"loss_by_frequency_over_training": frequency(np.geomspace(256, 16, 10))},
        "undetermined": {"loss_by_frequency_over_training": frequency(np.geomspace(16, 256, 5)[[0, 3, 1, 2, 4]])},
        "not testable here": {"loss_by_frequency_over_training": frequency(np.geomspace(16, 256, 10), gain=0.01)},
    },
    "time:T4": {
        "holds": {"ngram_agreement_over_training": ngrams()},
        "fails": {"ngram_agreement_over_training": ngrams((64, 16, 4))},
    },
    "time:T5": {
        "holds": probed(16, 64, 200),
        "fails": probed(200, 64, 16),
        "undetermined": probed(64, 64.2, 65),
        "not testable here": {
            "probe_scores_over_training": probed(16, 64, 200)["probe_scores_over_training"].assign(value=0.3)
        },
    },
    "time:T6": {
        "holds": syntax(45, "abrupt", 200),
        "fails": syntax(45, "abrupt", 8),
        "undetermined": syntax(45, "abrupt", 200, places=50),  # heads of fixed places do the same
        "not testable here": {**syntax(45, "abrupt", 200), "minimal_pairs_over_training": pd.DataFrame()},
    },
    "time:T7": {
        "holds": {"phases": phases(induction=(100, "abrupt"), gain=(120, "abrupt"), before=(10, "abrupt"))},
        "fails": {"phases": phases(induction=(100, "abrupt"), gain=(500, "abrupt"), before=(10, "abrupt"))},
        "undetermined": {"phases": phases(induction=(100, "abrupt"), gain=(120, "abrupt"), before=(110, "abrupt"))},
    },
    "time:T8": {
        "holds": {
            "phases": phases(induction=(64, "abrupt")),
            "in_context_learning_over_training": gains(lambda u: float(u >= 64)),
        },
        "fails": {
            "phases": phases(induction=(64, "abrupt")),
            "in_context_learning_over_training": gains(lambda u: float(u >= 1024)),
        },
    },
    "time:T9": {
        "holds": {"phases": phases(induction=(50, "abrupt"), first=(600, "gradual"), before=(300, "abrupt"))},
        "fails": {"phases": phases(induction=(50, "abrupt"), first=(60, "gradual"), before=(300, "abrupt"))},
        "undetermined": {"phases": phases(induction=(50, "abrupt"), first=(600, "gradual"), before=(20, "abrupt"))},
    },
    "time:T10": {"holds": {"role_turnover": roles(0.5)}, "fails": {"role_turnover": roles(0.06)}},
    "time:T11": {
        "holds": {"translation_stages_over_training": stages(bump(8, 0.5), bump(32, 0.1), lambda u: 0.5)},
        "fails": {"translation_stages_over_training": stages(bump(8, -0.5), bump(32, -0.1), lambda u: 0.5)},
    },
    "time:T12": {
        "holds": {"translation_stages_over_training": stages(bump(8, 0.5), bump(32, 0.1), lambda u: 1 - u / N)},
        "fails": {
            "translation_stages_over_training": stages(bump(8, 0.5), bump(32, 0.1), lambda u: 1 - min(u / 64, 1))
        },
    },
    "time:T13": {
        "holds": {"source_contribution_over_training": source_shares(0.1)},
        "fails": {"source_contribution_over_training": source_shares(-0.1)},
    },
    "time:T14": {
        "holds": {"prediction_divergence_over_training": divergence(0.05)},
        "fails": {"prediction_divergence_over_training": divergence(0.9)},
    },
    "time:T16": {
        "holds": {"effective_rank_over_training": ranks(twice_bent)},
        "fails": {"effective_rank_over_training": ranks(lambda u: 30 - 2 * np.log2(u + 1))},
        "undetermined": {"effective_rank_over_training": ranks(lambda u: 20.0 + 1.2 * np.log(twice_bent(u)), 2.0)},
    },
    "time:T17": {
        "holds": {"seed_divergence_over_training": apart(hump)},
        "fails": {"seed_divergence_over_training": apart(lambda u: u / N)},
        "undetermined": {"seed_divergence_over_training": apart(lambda u: 0.105 * hump(u))},
        "not testable here": {"seed_divergence_over_training": apart(hump).query("update > 0")},
    },
    "time:T18": {
        "holds": {"convergence": pd.DataFrame(other_seed(0.9, 0.3))},
        "fails": {"convergence": pd.DataFrame(other_seed(0.3, 0.9))},
    },
    "time:T19": {
        "holds": warmed_up(1.0, 0.0),
        "fails": warmed_up(0.1, -1.8),  # the stages keep their updates
        "undetermined": warmed_up(1.0, 0.0, seeds=0.9),  # seeds alone move them as far
        "undetermined: coarse": warmed_up(1.0, 0.0, gap=0.5),  # the checkpoints beside the minimum would turn it
        "not testable here": warmed_up(1.0, 0.0, gap=0.8),
    },
    "time:T20": {
        "holds": dips(lambda u: 1.0 * (u >= 128)),
        "fails": dips(lambda u: 1.0 * (u >= 8), bigrams=128),
        "undetermined": dips(lambda u: 0.244 * (u >= 128)),  # the rise to the last state is about the threshold
        "not testable here": {
            name: frame[~frame["layer"].isin([1, 2, 3])] if "layer" in frame else frame
            for name, frame in dips(lambda u: 1.0).items()
        },
    },
    "time:T21": {
        "holds": {"embedding_change_over_training": embeddings(np.geomspace(64, 900, 10))},
        "fails": {"embedding_change_over_training": embeddings(np.geomspace(900, 64, 10))},
        "undetermined": {"embedding_change_over_training": embeddings(np.geomspace(64, 900, 5)[[0, 3, 1, 2, 4]])},
    },
    "time:T22": {
        "holds": moved(3, 1),
        "fails": moved(1, 3),
        "undetermined": moved(3, 1, control=lambda u, layer: moved_control(u, layer)),
        "not testable here": {
            "probe_scores_over_training": moved(3, 1)["probe_scores_over_training"].query("update > 0")
        },
    },
    "heads:M7": {
        "holds": {"prunable_by_update": prunable(lambda u: min(0.2 + u / N, 0.6), lambda u: 0.1)},
        "fails": {"prunable_by_update": prunable(lambda u: 0.6 * (u == N), lambda u: 0.1)},
        "undetermined": {"prunable_by_update": prunable(*[lambda u: min(0.2 + u / N, 0.6)] * 2)},
    },
}


@pytest.mark.parametrize(("claim", "verdict"), [(claim, verdict) for claim, own in CASES.items() for verdict in own])
def test_a_claim_is_decided_as_the_tables_were_made(claim: str, verdict: str) -> None:
    row = judged(claim, CASES[claim][verdict])
    assert row["verdict"] == verdict.partition(":")[0], row["reason"] + "\n" + row["note"]
    assert row["update"] == -1


def judged(claim: str, tables: dict[str, pd.DataFrame], rows: int = 1) -> pd.Series:
    found = evaluate({"task_scores": learned(*THREE), **tables}, [FINDINGS[claim]])
    assert len(found) == rows  # tables over training make no group of models for each update
    return found.iloc[0]


def test_every_testable_claim_about_time_has_a_case() -> None:
    assert {one.id for one in FINDINGS.values() if one.id.startswith("time:") and isinstance(one, Finding)} == {
        claim for claim in CASES if claim.startswith("time:")
    }


# -- claims at every checkpoint ---------------------------------------------------------------------------------------


def information(falls: dict[int, float]) -> pd.DataFrame:
    """Input information that falls by so much from the first to the last layer, at each update."""
    rows = []
    for seed in SEEDS:
        for update, fall in falls.items():
            for layer in range(7):
                row = {"stack": "decoder", "regime": "clean", "side": "input", "layer": layer, "converged": True}
                value = 5.0 - fall * layer / 6
                more = {"clusters": 100, "types": 100, "clustering_spread": 0.0, "entropy": 5.0}
                rows.append(
                    keys("causal-lm", seed, update) | clocks(update) | row | more
                    | estimate(value, seed, update, layer, spread=1e-3)
                )  # fmt: skip
    return pd.DataFrame(rows)


def over_time(falls: dict[int, float]) -> dict[str, pd.DataFrame]:
    scores = learned("causal-lm")
    at_checkpoints = [scores.assign(update=update, trained=update > 0, **clocks(update)) for update in falls]
    return findings_over_training(
        {
            "mutual_information_over_training": information(falls),
            "task_scores_over_training": pd.concat(at_checkpoints),
            "task_scores": scores,
        }
    )


def test_since_when_a_claim_holds_and_whether_it_still_grows() -> None:
    falls = {0: 0.0, 16: 0.1, 64: 0.9, 128: 0.1, 256: 1.0, 512: 1.4, 1024: 1.9}
    found = over_time(falls)
    rows = found["findings_over_training"].set_index(["id", "update"]).loc["representations:V-1"]
    assert rows["verdict"].tolist() == ["fails", "holds", "fails", "holds", "holds", "holds"]
    since = found["findings_since"].set_index("id").loc["representations:V-1"]
    assert (since["since"], since["before"], since["verdict"]) == (256, 128, "holds")
    assert since["moves"] == "grows"
    assert since["change"] == pytest.approx(0.9 / 6, abs=0.01)  # the weakest of six equal steps decides


def test_a_claim_that_stops_holding_has_no_beginning() -> None:
    since = over_time({0: 0.0, 16: 0.9, 64: 0.9, 256: 0.9, 1024: 0.1})["findings_since"].set_index("id")
    assert since.loc["representations:V-1", "since"] == -1
    settled = over_time({0: 0.0, 16: 0.9, 64: 0.9, 256: 0.901, 1024: 0.9})["findings_since"].set_index("id")
    assert settled.loc["representations:V-1", ["since", "before", "moves"]].tolist() == [16, -1, "settled"]


def test_without_tables_over_training_there_are_no_findings_over_training() -> None:
    assert findings_over_training({"task_scores": learned("causal-lm")}) == {}


# -- times that are only bounds ---------------------------------------------------------------------------------------


def changed(frame: pd.DataFrame, curve: str, verdict: str) -> pd.DataFrame:
    return frame.assign(verdict=frame["verdict"].where(frame["curve"] != curve, verdict))


FIRST, INDUCTION, REPEAT = "attention to the first token, mean of heads", "induction, best head", "repeat_gain"
BOUNDS = [
    # A later time that is not over, and an earlier one that had begun, can only be further apart than was read.
    ("time:T9", "holds", FIRST, "unfinished", "holds"),
    ("time:T9", "holds", INDUCTION, "started before", "holds"),
    ("time:T9", "holds", FIRST, "started before", "undetermined"),
    ("time:T9", "holds", INDUCTION, "unfinished", "undetermined"),
    ("time:T9", "fails", FIRST, "unfinished", "undetermined"),
    ("time:T9", "fails", INDUCTION, "started before", "undetermined"),
    ("time:T9", "fails", INDUCTION, "unfinished", "fails"),
    ("time:T8", "holds", INDUCTION, "unfinished", "undetermined"),
    ("time:T8", "holds", INDUCTION, "started before", "undetermined"),
    ("time:T8", "fails", INDUCTION, "unfinished", "undetermined"),
    ("time:T8", "holds", REPEAT, "unfinished", "undetermined"),
    ("time:T8", "fails", REPEAT, "unfinished", "fails"),
    # Of what is not over nobody can say that it came at once, nor that it did not.
    ("time:T7", "holds", REPEAT, "unfinished", "undetermined"),
    ("time:T7", "holds", INDUCTION, "unresolved", "undetermined"),
    ("time:T7", "holds", INDUCTION, "gradual", "fails"),
]


@pytest.mark.parametrize(("claim", "case", "curve", "verdict", "wanted"), BOUNDS)
def test_nothing_is_decided_on_the_side_of_a_bound(claim, case, curve, verdict, wanted) -> None:
    tables = dict(CASES[claim][case])
    if claim == "time:T8":
        tables["phases"] = phases(induction=(64, "abrupt"), gain=(64, "abrupt"))
    row = judged(claim, {**tables, "phases": changed(tables["phases"], curve, verdict)})
    assert row["verdict"] == wanted, row["reason"]
    assert ("only a bound" in row["reason"]) >= (wanted == "undetermined")


MINIMA = [
    ((1, 16, 64), "holds"),
    ((64, 16, 1), "fails"),
    ((1, 1, 1), "undetermined"),
    ((4, 16, 1024), "holds"),
    ((16, 1024, 1024), "undetermined"),
]


@pytest.mark.parametrize(("minima", "wanted"), MINIMA)
def test_a_minimum_at_the_first_or_last_checkpoint_is_a_bound(minima, wanted) -> None:
    """Whether what falls to the end rises after it is not known."""
    assert judged("time:T4", {"ngram_agreement_over_training": ngrams(minima)})["verdict"] == wanted


def test_deciles_whose_time_is_a_bound_may_come_in_another_order() -> None:
    """The rarest may come later still, or the most frequent earlier; the other way round their order is not known."""

    def reach(earlier: int | None = None, later: int | None = None) -> tuple[float, float]:
        curve = np.zeros((1, 30))
        curve[0, :10] = np.arange(10)
        for place, decile in ((10, earlier), (20, later)):
            if decile is not None:
                curve[0, place + decile] = 1
        (condition,) = FINDINGS["time:T3"].test({"times": curve})
        return condition.reach

    assert reach() == reach(later=9) == reach(earlier=0) == (0, 0)
    for low, high in (reach(later=0), reach(earlier=9)):
        assert low == 0
        assert high == pytest.approx(6 * 90 / 990)  # one of ten that goes from one end to the other


def test_probes_that_are_not_over_leave_their_order_open() -> None:
    assert judged("time:T5", probed(16, 64, 1500))["verdict"] == "holds"  # the last one comes later still
    row = judged("time:T5", probed(1500, 64, 16))
    assert row["verdict"] == "fails"
    assert judged("time:T5", probed(16, 1500, 64))["verdict"] == "fails"
