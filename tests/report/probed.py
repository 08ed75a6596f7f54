"""Invented tables of probes: the columns of real ones, curves that differ by task, model and control."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from synthetic_run import LAYERS, MAIN_STACK, OBJECTIVES, _estimate, _model, _write, make_study

from infoflow.results import RunFolder

TASKS = {
    "word": (0.02, (0.90, 0.84, 0.80, 0.74, 0.66, 0.58, 0.50)),
    "upos": (0.20, (0.80, 0.87, 0.91, 0.92, 0.915, 0.90, 0.88)),
    "deprel": (0.15, (0.50, 0.62, 0.70, 0.74, 0.76, 0.74, 0.70)),
    "arc": (0.50, (0.55, 0.66, 0.74, 0.80, 0.82, 0.81, 0.78)),
}
"""Of the masked LM: the majority class, and the accuracy at each layer."""
LESS = {"masked-lm": 0.0, "translation": 0.02, "causal-lm": 0.04}
CONTROL = (0.78, 0.70, 0.66, 0.60, 0.54, 0.50, 0.46)
UNTRAINED = (0.0, -0.08, -0.12, -0.16, -0.20, -0.24, -0.28)
"""What an untrained model has less than the embeddings, by layer."""
TYPES = {"all": 0.0, "seen": 0.03, "unseen": -0.30}
WITH_CONTROL = ("upos", "deprel")
BITS = 40_000.0
TREES = (
    ("distance", "uuas", (0.50, 0.56, 0.64, 0.70, 0.73, 0.72, 0.68), 0.45, 0.49),
    ("distance", "spearman", (0.55, 0.62, 0.70, 0.76, 0.78, 0.77, 0.72), 0.50, 0.54),
    ("depth", "root", (0.40, 0.55, 0.68, 0.76, 0.80, 0.79, 0.74), 0.15, 0.0),
    ("depth", "spearman", (0.58, 0.66, 0.74, 0.79, 0.82, 0.81, 0.77), 0.30, 0.0),
)
"""Structure, metric, the masked LM's curve, the random map, the chain."""
WARNING = "the top layer gains 0.005 over layer 0, less than 0.02"
_SIZES = {"training": 2_000, "capacity": 130_000}
_SEEDS = {"seed_sd": 0.002, "seeds": 3}


def accuracy(task: str, objective: str, trained: bool, layer: int) -> float:
    floor, curve = TASKS[task]
    value = curve[layer] - LESS[objective] if trained else curve[0] + UNTRAINED[layer]
    return max(value, floor)


def _keys(objective: str, seed: int, trained: bool, task: str, layer: int) -> dict:
    unit = "pair" if task == "arc" else "token"
    place = {"stack": MAIN_STACK[objective], "layer": layer}
    return {**_model(objective, seed, trained), "task": task, "unit": unit, "probe": "linear", **place}


def score_rows(
    tasks: Sequence[str] = tuple(TASKS),
    objectives: Sequence[str] = OBJECTIVES,
    seeds: Sequence[int] = (1, 2, 3),
    trained: Sequence[bool] = (True, False),
    shares: Sequence[float] = (0.01, 0.1, 1.0),
) -> list[dict]:
    """The columns of `probe_scores`; with fewer examples, less, of untrained models twice as much less."""
    rows = []
    for task in tasks:
        floor = TASKS[task][0]
        for objective in objectives:
            for seed in seeds:
                for is_trained in trained:
                    for layer in range(LAYERS + 1):
                        keys = _keys(objective, seed, is_trained, task, layer)
                        value = accuracy(task, objective, is_trained, layer)
                        name = (task, objective, seed, int(is_trained), layer)
                        for share in shares:
                            less = (2 - is_trained) * 0.04 * (-np.log10(share))
                            for labels, words, metric, mean, base in _scores(task, value - less, floor, layer):
                                facts = {"labels": labels, "words": words, "metric": metric, "share": share}
                                sizes = {"training": int(12_000 * share), "capacity": 129 * 17, "corrupted": 1.0}
                                own = (*name, labels, words, metric, str(share))
                                estimate = _estimate(mean, own, 0.004, 0.004, base, 4_000)
                                rows.append({**keys, **facts, **sizes, **estimate, "seed_sd": 0.002, "seeds": 3})
    return rows


def _scores(task: str, value: float, floor: float, layer: int):
    yield "task", "all", "accuracy", value, floor
    if task not in WITH_CONTROL:
        return
    for words, shift in TYPES.items():
        control = max(CONTROL[layer] + shift, 0.2)
        yield "control", words, "accuracy", control, 0.2
        yield "task", words, "selectivity", value - control, 0.0


def pair_rows(
    seeds: Sequence[int] = (1, 2, 3),
    objectives: Sequence[str] = ("causal-lm", "masked-lm"),
    trained: Sequence[bool] = (True, False),
) -> list[dict]:
    """The columns of `minimal_pairs`: agreement is found out layer by layer, islands never."""
    rows = []
    for objective in objectives:
        for seed in seeds:
            for is_trained in trained:
                for layer in range(LAYERS + 1):
                    known = 0.5 + is_trained * (0.06 * layer - LESS[objective])
                    for phenomenon, mean in {"all": (known + 0.5) / 2, "agreement": known, "<b>islands": 0.5}.items():
                        place = {"stack": MAIN_STACK[objective], "layer": layer, "phenomenon": phenomenon, "ties": 0}
                        for metric, value, base in (("preferred", mean, 0.5), ("margin", 8 * mean - 4, 0.0)):
                            name = (objective, seed, int(is_trained), layer, phenomenon, metric)
                            numbers = _estimate(value, name, 0.01, 0.01, base, 300)
                            rows.append({**_model(objective, seed, is_trained), **place, "metric": metric, **numbers})
    return rows


def code_rows(codes: Sequence[str] = ("online", "variational"), **how) -> list[dict]:
    rows = []
    for row in score_rows(shares=(1.0,), **how):
        if (row["labels"], row["words"], row["metric"]) != ("task", "all", "accuracy"):
            continue
        kinds = ["task", "control", "shuffled"] if row["task"] in WITH_CONTROL else ["task"]
        keys = {name: row[name] for name in row if name not in ("labels", "words", "metric", "value", "low", "high")}
        for code in codes:
            for labels in kinds:
                accurate = {"task": row["value"], "control": CONTROL[row["layer"]], "shuffled": 0.2}[labels]
                learned = {"task": 6, "control": 2, "shuffled": 0}[labels] * accurate**3
                compression = 0.97 + learned
                found = {
                    "compression": (compression, 1.0),
                    "bits": (BITS / compression, BITS),
                    "model_bits": (0.3 * BITS / compression, BITS),
                    "accuracy": (accurate, TASKS[row["task"]][0]),
                }
                if code == "variational":
                    found["surviving"] = (10.0 + 30 * (labels != "task") + row["layer"], 64.0)
                for metric, (mean, base) in found.items():
                    name = (code, labels, metric, row["task"], row["model"], int(row["trained"]), row["layer"])
                    estimate = _estimate(mean, name, 0.004 * mean, 0.004 * mean, base, 12_000)
                    place = 1 if metric == "surviving" else -1
                    facts = {"labels": labels, "code": code, "metric": metric, "probe_layer": place, "units": "bits"}
                    rows.append({**keys, **facts, "probe": "mlp-64-64", **estimate})
    return rows


def tree_rows(
    objectives: Sequence[str] = OBJECTIVES, seeds: Sequence[int] = (1, 2, 3), trained: Sequence[bool] = (True, False)
) -> list[dict]:
    rows = []
    for objective in objectives:
        for seed in seeds:
            for is_trained in trained:
                model = {**_model(objective, seed, is_trained), "stack": MAIN_STACK[objective]}
                for structure, metric, curve, random, chain in TREES:
                    found = {("chain", -1): chain} if structure == "distance" else {}
                    for layer, value in enumerate(curve):
                        less = LESS[objective] if is_trained else value - curve[0] + 0.01 * layer
                        found |= {("structural", layer): value - less, ("random", layer): random}
                    for (probe, layer), mean in found.items():
                        name = ("tree", structure, metric, probe, model["model"], int(is_trained), layer)
                        noise = 0.0 if probe == "chain" else 0.004
                        base = chain if structure == "distance" else random
                        keys = {"structure": structure, "probe": probe, "layer": layer, "metric": metric}
                        sizes = {"rank": 64 * (probe != "chain"), "training": 1_200, "no_tree": 3}
                        rows.append({**model, **keys, **sizes, **_estimate(mean, name, noise, 0.004, base, 3_000)})
    return rows


def mixing_rows(**how) -> list[dict]:
    """Softmaxed weights around a layer, and cumulative scores that rise to the task's accuracies and then fall."""
    rows = []
    for keys, curve in _edge_curves(**how):
        weights = np.exp(3 * np.array(curve))
        weights /= weights.sum()
        scores = cumulative(curve)
        for layer, (weight, score) in enumerate(zip(weights, scores, strict=True)):
            found = {"weight": (weight, 1 / len(scores)), "score": (score, TASKS[keys["task"]][0])}
            if layer:
                found["delta"] = (score - scores[layer - 1], 0.0)
            for statistic, (mean, base) in found.items():
                name = (statistic, keys["task"], keys["model"], int(keys["trained"]), layer)
                estimate = _estimate(float(mean), name, 0.001, 0.001, base, 2_000)
                rows.append({**keys, "layer": layer, "statistic": statistic, **_SIZES, **estimate, **_SEEDS})
    return rows


def depth_rows(**how) -> list[dict]:
    rows = []
    for keys, curve in _edge_curves(**how):
        scores = cumulative(curve)
        deltas = np.diff(scores)
        layers = np.arange(1, len(scores))
        gain = float(scores[-1] - scores[0])
        ill = gain < 0.02
        weights = np.exp(3 * np.array(curve))
        weights /= weights.sum()
        found = {
            "expected_layer": float(deltas @ layers / gain),
            "expected_layer_running_maximum": 2.0,
            "center_of_gravity": float(weights @ np.arange(len(weights))),
            "k_weights": float(np.log2(len(weights)) + (weights * np.log2(weights)).sum()),
            "k_differences": 0.8,
            "headroom": float(scores.max() - scores[0]),
            "negative_mass": 0.1,
        }
        for statistic, mean in found.items():
            name = (statistic, keys["task"], keys["model"], int(keys["trained"]))
            estimate = _estimate(mean, name, 0.02, 0.02, 0.0, 2_000)
            warning = WARNING if ill else ""
            rows.append({**keys, "statistic": statistic, **_SIZES, **estimate, **_SEEDS, "warning": warning})
    return rows


def cumulative(curve: Sequence[float]) -> np.ndarray:
    """Never much below the best layer so far."""
    best = np.maximum.accumulate(np.array(curve))
    return best - 0.005 * (best > np.array(curve))


def _edge_curves(
    objectives: Sequence[str] = OBJECTIVES, seeds: Sequence[int] = (1, 2, 3), trained: Sequence[bool] = (True, False)
):
    for task in TASKS:
        for objective in objectives:
            for seed in seeds:
                for is_trained in trained:
                    keys = _keys(objective, seed, is_trained, task, 0)
                    del keys["layer"], keys["probe"]
                    yield keys, [accuracy(task, objective, is_trained, layer) for layer in range(LAYERS + 1)]


def example_rows(
    objectives: Sequence[str] = OBJECTIVES, seeds: Sequence[int] = (1, 2, 3), trained: Sequence[bool] = (True, False)
) -> list[dict]:
    """Of the task upos: example n is right from state n on, of the untrained model nowhere; the last but one only below
    the top, the last in no state, and one holds markup."""
    rows = []
    for objective in objectives:
        for seed in seeds:
            for is_trained in trained:
                for number in range(LAYERS + 3):
                    words = ["the", "old", "dog" if number else "<script>alert(1)</script>", "sleeps"]
                    for layer in range(LAYERS + 1):
                        right = layer < LAYERS if number == LAYERS + 1 else layer >= number
                        spans = {"first_start": 2, "first_end": 3, "second_start": -1, "second_end": -1}
                        told = {"said": "NOUN" if right and is_trained else "VERB", "seeds": 3, "gold": "NOUN"}
                        keys = {**_keys(objective, seed, is_trained, "upos", layer), "example": number}
                        rows.append(
                            {**keys, "text": " ".join(words), **spans, **told, "right": float(right and is_trained)}
                        )
    return rows


WRITERS = {
    "probe_scores": score_rows,
    "probe_examples": example_rows,
    "probe_codelength": code_rows,
    "probe_mixing": mixing_rows,
    "probe_depth": depth_rows,
    "probe_trees": tree_rows,
    "minimal_pairs": pair_rows,
}


def write_run(path: Path, *, seeds: Sequence[int] = (1, 2, 3), tables: Sequence[str] = (), **how) -> RunFolder:
    """A study that has probes and nothing else; only `tables` where given."""
    run = make_study(path, tuple(seeds), tables=("training_runs",))
    for name, rows in WRITERS.items():
        if not tables or name in tables:
            _write(run, name, "share", rows(seeds=seeds, **how))
    return run
