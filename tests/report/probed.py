"""Invented tables of probes: the columns of real ones, curves that differ by task, model and control."""

from collections.abc import Sequence
from pathlib import Path

from synthetic_run import LAYERS, MAIN_STACK, OBJECTIVES, _estimate, _model, _write, make_study, without_tables

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
) -> list[dict]:
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
                        for labels, words, metric, mean, base in _scores(task, value, floor, layer):
                            rows.append(
                                {
                                    **keys,
                                    "labels": labels,
                                    "words": words,
                                    "metric": metric,
                                    "training": 12_000,
                                    "capacity": 129 * 17,
                                    **_estimate(mean, (*name, labels, words, metric), 0.004, 0.004, base, 4_000),
                                    "seed_sd": 0.002,
                                    "seeds": 3,
                                }
                            )
    return rows


def _scores(task: str, value: float, floor: float, layer: int):
    yield "task", "all", "accuracy", value, floor
    if task not in WITH_CONTROL:
        return
    for words, shift in TYPES.items():
        control = max(CONTROL[layer] + shift, 0.2)
        yield "control", words, "accuracy", control, 0.2
        yield "task", words, "selectivity", value - control, 0.0


def code_rows(codes: Sequence[str] = ("online", "variational"), **how) -> list[dict]:
    rows = []
    for row in score_rows(**how):
        if (row["labels"], row["words"], row["metric"]) != ("task", "all", "accuracy"):
            continue
        kinds = ["task", "control", "shuffled"] if row["task"] in WITH_CONTROL else ["task"]
        keys = {name: row[name] for name in row if name not in ("labels", "words", "metric", "value", "low", "high")}
        for code in codes:
            for labels in kinds:
                accurate = {"task": row["value"], "control": CONTROL[row["layer"]], "shuffled": 0.0}[labels]
                compression = 0.97 + 6 * accurate**3 if labels == "task" else 0.97 + 2 * accurate**3
                for metric, mean in (
                    ("compression", compression),
                    ("bits", BITS / compression),
                    ("surviving", 40 + 300 * (labels != "task")),
                ):
                    if metric == "surviving" and code == "online":
                        continue
                    name = (code, labels, metric, row["task"], row["model"], int(row["trained"]), row["layer"])
                    noise = 0.004 * mean
                    estimate = _estimate(mean, name, noise, noise, 1.0, 12_000)
                    rows.append({**keys, "labels": labels, "code": code, "metric": metric, **estimate})
    return rows


def write_run(path: Path, *, seeds: Sequence[int] = (1, 2, 3), tables: Sequence[str] = (), **how) -> RunFolder:
    """A study that has probes and nothing else; only `tables` where given."""
    run = without_tables(make_study(path, seeds=tuple(seeds)))
    for name, rows in {"probe_scores": score_rows, "probe_codelength": code_rows}.items():
        if not tables or name in tables:
            _write(run, name, "share", rows(seeds=seeds, **how))
    return run
