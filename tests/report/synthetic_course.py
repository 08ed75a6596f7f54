"""Synthetic tables over training: INVENTED curves in the tables' shape, never results of infoflow.

Logistic and power curves over log2 of the update, so that what a figure must show is known.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from synthetic_run import _column

from infoflow.foundation import provenance, stream
from infoflow.results import KEYS, RunFolder, TableSchema
from infoflow.training import CLOCKS, checkpoint_steps

EVIL_NAME = "<script>alert(1)</script>"
UPDATES, WARMUP = 5000, 400
OBJECTIVES = ("causal-lm", "masked-lm", "translation")
STACKS = {"causal-lm": "decoder", "masked-lm": "encoder", "translation": "encoder"}
LAYERS, HEADS = 6, 8
STEPS = checkpoint_steps("log:16+linear:8", UPDATES, WARMUP)
ROLES = ("positional -1", "positional +1", "induction", "first token", "nsubj dependent→head")
VERDICTS = ("not testable here", "undetermined", "fails", "holds")
"""In the order in which the claims of `findings_over_training` go through them."""


def make_course(
    path: Path,
    objectives: tuple[str, ...] = OBJECTIVES,
    seeds: tuple[int, ...] = (1, 2),
    steps: list[int] = STEPS,
    tables: set[str] | None = None,
    kind: str = "study",
) -> RunFolder:
    """A run with every table over training, or those named."""
    run = RunFolder(path)
    models = [(objective, seed) for objective in objectives for seed in seeds]
    for name, rows in _TABLES.items():
        if tables is None or name in tables:
            write(run, name, [row for model in models for row in rows(*model, steps)])
    if tables is None or "findings_over_training" in tables:
        write(run, "findings_over_training", list(finding_rows(steps)))
    entries = [{**keys(objective, seed, -1), "parameters": 2_100_000, "updates": UPDATES} for objective, seed in models]
    run.update(kind=kind, title="Over training", models=entries, provenance=provenance(), command="infoflow study x")
    return run


def write(run: RunFolder, name: str, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    frame = pd.DataFrame(rows)
    known = {column.name: column for column in (*KEYS, *CLOCKS)}
    columns = tuple(known.get(name) or _column(name, frame[name]) for name in frame.columns)
    run.tables.write(frame, TableSchema(name=name, version=1, description=f"Synthetic {name}.", columns=columns))


def keys(objective: str, seed: int, update: int) -> dict[str, Any]:
    return {
        "model": f"{objective}/seed-{seed}",
        "objective": objective,
        "variant": "",
        "architecture": "bert",
        "start": "",
        "seed": seed,
        "update": update,
        "trained": update != 0,
    }


def lr_share(update: int) -> float:
    """Linear warm-up and decay."""
    rates = [min(t / WARMUP, (UPDATES - t) / (UPDATES - WARMUP)) for t in range(1, UPDATES + 1)]
    return float(sum(rates[:update]) / sum(rates))


_SHARES = {step: lr_share(step) for step in STEPS}


def at(objective: str, seed: int, update: int) -> dict[str, Any]:
    """Keys and clocks; a masked LM looks at every seventh token alone."""
    tokens = update * (200.0 if objective == "masked-lm" else 1400.0)
    share = _SHARES.get(update, min(update / UPDATES, 1.0))
    clocks = {"tokens": tokens, "progress": update / UPDATES, "lr_share": share, "same_as": -1}
    return {**keys(objective, seed, update), **clocks}


def rise(update: int, middle: float, width: float = 2.0) -> float:
    """From 0 to 1, a half of it at `middle`, over about `width` doublings."""
    return 0.0 if update == 0 else float(1 / (1 + np.exp(-(np.log2(update) - np.log2(middle)) * 4.394 / width)))


def estimate(value: float, noise: float = 0.02, baseline: float = 0.1) -> dict[str, Any]:
    return {"value": value, "low": value - noise, "high": value + noise, "baseline": baseline, "count": 10_000}


def _draw(*key: object) -> float:
    return float(stream("course", *key).normal())


def information(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    regimes = [("clean", "input"), ("clean", "output")]
    regimes += [("training", "input"), ("training", "output")] if objective == "masked-lm" else []
    for update in steps:
        for regime, side in regimes:
            for layer in range(LAYERS + 1):
                depth = layer / LAYERS
                gone = rise(update, 300) * (1.3 * depth if objective == "causal-lm" else 1.6 * depth * (1 - depth) * 2)
                value = 4.4 + 0.9 * rise(update, 40, 4) - gone
                if side == "output":
                    value = 1.3 + 1.1 * rise(update, 500 - 50 * layer, 3) * (0.3 + depth)
                row = {**at(objective, seed, update), "stack": STACKS[objective], "regime": regime, "side": side}
                noise = 0.02 * _draw("information", objective, seed, update, regime, side, layer)
                yield {**row, "layer": layer, **estimate(value + noise), "clusters": 500, "types": 1000}


def change(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    for update in steps:
        for layer in range(LAYERS):
            value = 0.02 + 0.06 * rise(update, 200 + 50 * layer)
            row = {**at(objective, seed, update), "stack": STACKS[objective], "layer": layer, "next_layer": layer + 1}
            yield {**row, **estimate(value, 0.002, 0.78), "width": 128, "side": "mean"}


def geometry(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    for update in steps:
        for layer in range(LAYERS + 1):
            row = {**at(objective, seed, update), "stack": STACKS[objective], "layer": layer}
            for measure, value in (
                ("average_similarity", 0.05 + 0.5 * rise(update, 100) * layer / LAYERS),
                ("intrinsic_dimension", 20.0 - 8 * rise(update, 60) + 4 * rise(update, 1500)),
            ):
                yield {**row, "measure": measure, "space": "raw", "words": "mean", **estimate(value, 0.01)}


def loss_by_position(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    if objective != "causal-lm":
        return
    for update in steps:
        for position in range(1, 65):
            value = 9 - 5 * rise(update, 150, 6) - (1 - position**-0.5) * rise(update, 700)
            row = {**at(objective, seed, update), "stack": "decoder", "position": position}
            yield {**row, **estimate(value, 0.05)}


def in_context(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    if objective != "causal-lm":
        return
    for update in steps:
        for measure, value in (("gain", 0.1 + 0.3 * rise(update, 700)), ("repeat_gain", 3 * rise(update, 800))):
            row = {**at(objective, seed, update), "measure": measure, "i": 6, "j": 63, "length": 64}
            yield {**row, **estimate(value + 0.01 * _draw("gain", seed, update, measure), 0.03)}


def ngrams(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    if objective == "translation":
        return
    for update in steps:
        for order, fall, back in ((1, 30, 200), (2, 120, 900), (3, 400, 4000)):
            kl = 3.0 - 2.2 * rise(update, fall) + 0.8 * rise(update, back)
            for measure, value in (("kl_to_ngram", kl + 0.4), ("kl_from_ngram", kl), ("loss_on_samples", kl + 4)):
                row = {**at(objective, seed, update), "order": order, "context": "before", "measure": measure}
                row["corpus"] = "train"
                yield {**row, **estimate(value, 0.03)}


def convergence(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    for kind in ("state", "block"):
        for layer in range(LAYERS + (kind == "state")):
            middle = (150 + 120 * layer) if kind == "state" else 600 - 10 * layer
            first = 0.3 - 0.02 * layer
            for similarity in ("cka", "displacement"):
                for update in steps:
                    share = 1.0 if update == steps[-1] else rise(update, middle, 4)
                    value = first + (1 - first) * share if similarity == "cka" else 1.4 * (1 - share)
                    row = {**at(objective, seed, update), "stack": STACKS[objective], "layer": layer, "kind": kind}
                    row |= {"reference": "final", "similarity": similarity, **estimate(value)}
                    normalised = share if similarity == "cka" else float("nan")
                    yield {**row, "normalised": normalised, "null": _SHARES.get(update, 1.0) ** 0.5}


def convergence_time(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    for kind in ("state", "block"):
        for layer in range(LAYERS + (kind == "state")):
            time = float((300 + 240 * layer) if kind == "state" else 1200 - 20 * layer)
            before = max(step for step in steps if step < time)
            row = {**keys(objective, seed, -1), "stack": STACKS[objective], "layer": layer, "kind": kind}
            row |= {"reference": "final", "similarity": "cka", "time": time, "before": float(before)}
            yield {**row, "after": float(min(step for step in steps if step >= time)), "area": 0.4}


def _heads(objective: str) -> list[tuple[int, int]]:
    return [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


def confidence(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    for update in steps:
        for layer, head in _heads(objective):
            value = 0.1 + 0.1 * head * rise(update, 100 * (layer + 1))
            row = {**at(objective, seed, update), "stack": STACKS[objective], "kind": "self", "layer": layer}
            yield {**row, "head": head, **estimate(value, 0.01)}


def positional(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    for update in steps:
        for layer, head in _heads(objective):
            for offset in (-1, 1):
                value = 0.1 + 0.85 * rise(update, 80) * (head == layer)
                row = {**at(objective, seed, update), "stack": STACKS[objective], "kind": "self", "layer": layer}
                yield {**row, "head": head, "offset": offset, **estimate(value, 0.01)}


def role_events(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    """Head h of layer h takes role h at step 8 + h; role 0 leaves head 0 again; role 3 is there from the start."""
    for number, role in enumerate(ROLES):
        common = {
            **keys(objective, seed, -1),
            "stack": STACKS[objective],
            "kind": "self",
            "layer": number,
            "role": role,
        }
        row = {**common, "head": number, "before": steps[7 + number], "after": steps[8 + number], "open": False}
        yield {**row, "event": "birth", "flickers": number}
        if number == 0:
            yield {**row, "event": "death", "before": steps[18], "after": steps[19], "flickers": 0}
        if number == 3:
            yield {**row, "head": 7, "event": "initial", "before": 0, "after": 0, "flickers": 0}


def turnover(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    for number, role in enumerate(ROLES):
        for place, update in enumerate(steps):
            size = int(place >= 8 + number) + int(number == 3) - int(number == 0 and place >= 19)
            size *= 1 + (number < 3)
            values = {"size": size, "jaccard_previous": 1 - 0.1 * number, "jaccard_final": 0.5, "expected": 0.07}
            row = {**at(objective, seed, update), "stack": STACKS[objective], "kind": "self", "role": role}
            yield {**row, "expected_previous": 0.06, **values}


def phases(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    nan = float("nan")
    curves = [
        ("in_context_learning", f"gain {EVIL_NAME}", "abrupt", 500.0, 700.0, 1000.0),
        ("mutual_information", "input, layer 6", "gradual", 60.0, 300.0, 2000.0),
        ("geometry", "average_similarity, layer 3", "unfinished", 100.0, 900.0, 5000.0),
        ("layer_distance", "layer 0", "no change", nan, nan, nan),
        ("head_surface", "attention to the first token", "goes and returns", nan, nan, nan),
    ]
    for table, curve, verdict, *times in curves:
        row = {**keys(objective, seed, -1), "table": table, "curve": curve, "first": 0.1, "last": 0.4}
        row |= {"t50_tokens": times[1] * 1400, "at_warm_up": verdict == "gradual"}
        for name, time in zip(("t10", "t50", "t90"), times, strict=True):
            row |= {name: time, f"{name}_before": time * 0.8, f"{name}_after": time * 1.2}
        for name, time in {"out": 90.0, "turn": 400.0, "back": 1300.0}.items():
            turned = time if verdict == "goes and returns" else nan
            row |= {name: turned, f"{name}_before": turned * 0.8, f"{name}_after": turned * 1.2}
        row |= {"extremum": 0.7 if verdict == "goes and returns" else nan}
        yield {**row, "width": 1.0, "share": 0.1, "verdict": verdict, "delta_bic": 9.0}


def phase_curves(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    """Of the curves of `phases`: they rise by their middle, in two pieces; one rises and falls again."""
    curves = {row["curve"]: row for row in phases(objective, seed, steps)}
    for curve, row in curves.items():
        for update in steps:
            middle = row["t50"]
            value = 0.1 + (0.3 * rise(update, middle) if middle == middle else 0.0)
            if row["verdict"] == "goes and returns":
                value = 0.1 + 0.6 * rise(update, row["out"]) - 0.3 * rise(update, row["back"])
            told = {"table": row["table"], "curve": curve, "value": value, "error": 0.01, "line": value}
            yield {**at(objective, seed, update), **told, "segment": -1 if update == 0 else int(update >= middle)}


def weight_change(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    for update in steps:
        for layer in range(LAYERS):
            for part, head in (("block", -1), ("head", 0)):
                row = {
                    **at(objective, seed, update),
                    "part": part,
                    "stack": STACKS[objective],
                    "kind": "",
                    "layer": layer,
                }
                value = 1.1 * rise(update, 300 + 100 * layer)
                yield {**row, "head": head, "measure": "from_initial", "value": value + (part == "head")}


def stages(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    if objective != "translation":
        return
    for update in steps:
        base = {**at(objective, seed, update), "rank_bin": ""}
        for n in (2, 3, 4, 5):
            value = -9 + 4 * rise(update, 40 * n) - 0.5 * rise(update, 900)
            yield {**base, "measure": "lm_score", "n": n, **estimate(value)}
        for measure, middle in (("chrf", 900), ("frs_a", 2000), ("tau_share", 2200)):
            yield {**base, "measure": measure, "n": 0, **estimate(rise(update, middle))}


def sources(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    if objective != "translation":
        return
    for update in steps:
        for rule in ("alti", "epsilon"):
            share = 0.7 - 0.2 * rise(update, 60) + 0.25 * rise(update, 900)
            for measure, value in (("share", share), ("entropy", 1.5), ("prefix_entropy", 1.0)):
                row = {**at(objective, seed, update), "rule": rule, "position": -1, "measure": measure}
                yield {**row, **estimate(value)}


def checks(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    if (objective, seed) != ("causal-lm", 1):
        return
    for update, check, level, value, limit, other, message in (
        (steps[9], "K3", "error", 8.0, 3.0, -1, f"lies far from both neighbours (r = 8.0): another run? {EVIL_NAME}"),
        (steps[12], "K4", "warning", 0.05, 0.02, steps[11], "nearer to the start than its neighbour: swapped?"),
        (steps[1], "K1", "note", 1.0, 1.0, 0, "holds the weights of step 0"),
    ):
        row = {**at(objective, seed, update), "check": check, "level": level, "value": value, "limit": limit}
        yield {**row, "other_step": other, "message": message}


def scores(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    for update in steps:
        row = {**at(objective, seed, update), "split": "test", "metric": "loss", "signature": ""}
        yield {**row, **estimate(8.5 - 4 * rise(update, 120, 8), 0.05, 6.0)}


def allocation(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    """Layer l takes (l + 1) / 10 nats off, half of it by update 200 · 2^l; the embeddings half a nat at once."""
    windows = [0, *range(100, UPDATES + 1, 100)]
    for number, (begin, end) in enumerate(itertools.pairwise(windows)):
        place = {"set": "train", "term": "lm", "window": number, "begin": begin, "end": end, "kind": ""}
        for layer in range(LAYERS):
            moved = (layer + 1) / 10 * (rise(end, 200 * 2**layer) - rise(begin, 200 * 2**layer))
            for component, share in (("query", 0.25), ("mlp_in", 0.75)):
                own = {"component": component, "stack": STACKS[objective], "layer": layer, "value": -share * moved}
                yield keys(objective, seed, -1) | place | own
        own = {"component": "embeddings", "stack": "", "layer": -1, "value": -0.5 * (number == 0)}
        yield keys(objective, seed, -1) | place | own


def prunable(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    for place, update in enumerate(steps[-9:]):
        for order, value in (("importance", 0.4 + 0.04 * place), ("random", 0.2)):
            row = {**at(objective, seed, update), "order": order, "kind": "all", "value": value}
            yield {**row, "mask_previous": 0.1, "mask_final": 0.2}


def learning(objective: str, seed: int, steps: list[int]) -> Iterator[dict[str, Any]]:
    for step in np.unique(np.geomspace(1, steps[-1], 60).round().astype(int)).tolist():
        value = 9 - 5 * rise(step, 120, 8) + 0.02 * _draw("loss", objective, seed, step)
        yield {**keys(objective, seed, -1), "step": step, "source_tokens": step * 1400, "value": value}


def finding_rows(steps: list[int]) -> Iterator[dict[str, Any]]:
    """Claim 0 holds from step 12 on, claim 1 from step 4 to step 14 only, claim 2 never."""
    for number, (start, stop) in enumerate(((12, 99), (4, 15), (99, 99))):
        for place, update in enumerate(steps):
            verdict = VERDICTS[0] if update == 0 else VERDICTS[1] if place < 4 else VERDICTS[2]
            verdict = VERDICTS[3] if start <= place < stop else verdict
            row = {
                "id": f"representations:V-{number + 1}",
                "claim": f"Claim {number} {EVIL_NAME if number == 0 else ''}",
            }
            row |= {"architecture": "bert", "update": update, "verdict": verdict, "effect": 0.02 * place}
            row |= {"low": 0.02 * place - 0.05, "high": 0.02 * place + 0.05, "covers": "sentences", "threshold": 0.2}
            yield {**row, "unit": "nats", "reason": f"effect against the threshold at {update}", "seeds": 2}


_TABLES = {
    "mutual_information_over_training": information,
    "layer_distance_over_training": change,
    "geometry_over_training": geometry,
    "loss_by_position_over_training": loss_by_position,
    "in_context_learning_over_training": in_context,
    "ngram_agreement_over_training": ngrams,
    "convergence": convergence,
    "convergence_time": convergence_time,
    "head_confidence_over_training": confidence,
    "head_positional_over_training": positional,
    "head_role_events": role_events,
    "role_turnover": turnover,
    "allocation_steps": allocation,
    "phases": phases,
    "phase_curves": phase_curves,
    "weight_change_over_training": weight_change,
    "translation_stages_over_training": stages,
    "source_contribution_over_training": sources,
    "checkpoint_checks": checks,
    "learning_curves": learning,
    "task_scores_over_training": scores,
    "prunable_by_update": prunable,
}
