"""Synthetic run folders for the report's tests: INVENTED numbers around published curves, never results of infoflow.

The means are the curves of `spec/representations.md` §1 as published by Voita et al. (2019) and a small trial; seed
and sentence noise are drawn here. What matters is the tables' shape: the same names and columns as a real study.
"""

import base64
import json
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from infoflow.foundation import interval, provenance, replicate_weights, stream
from infoflow.results import KEYS, PAIR_KEYS, Column, RunFolder, TableSchema, estimate_columns

OBJECTIVES = ("causal-lm", "masked-lm", "translation")
SEEDS = (1, 2, 3)
LAYERS, HEADS = 6, 8
MAIN_STACK = {"causal-lm": "decoder", "masked-lm": "encoder", "translation": "encoder"}

INPUT = {
    "causal-lm": (5.30, 5.285, 5.22, 5.05, 4.81, 4.47, 3.97),
    "translation": (5.215, 5.21, 5.20, 5.10, 4.945, 4.765, 4.475),
    "masked-lm": (5.215, 5.21, 5.185, 5.045, 4.935, 4.99, 5.10),
}
OUTPUT = {"causal-lm": (1.815, 2.10, 2.185, 2.255, 2.305, 2.34, 2.35)}
MASKED_INPUT, MASKED_OUTPUT = (6.9, 6.9, 6.82, 5.4, 2.3, 1.4, 0.95), (0.73, 0.70, 0.97, 1.34, 2.05, 2.37, 2.385)
IDENTITY = {
    "translation": (0.998, 0.993, 0.992, 0.985, 0.972, 0.946, 0.916),
    "causal-lm": (0.998, 0.992, 0.984, 0.965, 0.930, 0.862, 0.768),
    "masked-lm": (0.998, 0.995, 0.993, 0.984, 0.973, 0.974, 0.976),
}
CHANGE = {
    "translation": (0.066, 0.0645, 0.0645, 0.053, 0.0495, 0.039),
    "causal-lm": (0.08, 0.075, 0.067, 0.065, 0.079, 0.0705),
    "masked-lm": (0.09, 0.0895, 0.077, 0.063, 0.0655, 0.110),
}
TASK_DISTANCE = {
    ("translation", "masked-lm"): (0.40, 0.423, 0.430, 0.438, 0.453, 0.470, 0.535),
    ("causal-lm", "translation"): (0.43, 0.452, 0.475, 0.498, 0.520, 0.558, 0.603),
    ("causal-lm", "masked-lm"): (0.38, 0.408, 0.438, 0.463, 0.488, 0.523, 0.603),
}
SEED_DISTANCE = {
    "translation": (0.30, 0.302, 0.305, 0.310, 0.315, 0.313, 0.309),
    "causal-lm": (0.32, 0.332, 0.335, 0.337, 0.345, 0.360, 0.370),
    "masked-lm": (0.25, 0.257, 0.275, 0.290, 0.303, 0.323, 0.370),
}

_KEY_UNITS = {"layer": "layer", "next_layer": "layer", "offset": "tokens"}


def make_study(
    path: Path,
    seeds: tuple[int, ...] = SEEDS,
    objectives: tuple[str, ...] = OBJECTIVES,
    corpus: str = "tatoeba-en-fr",
    tables: tuple[str, ...] | None = None,
) -> RunFolder:
    """A whole study: every table of the contract, three objectives, three seeds, untrained controls, findings.

    Only `tables` where given: for a test that is about a few, or that writes its own.
    """
    run = RunFolder(path)
    runs = [(o, s, trained) for o in objectives for s in seeds for trained in (True, False)]
    measured = {
        "mutual_information": ("nats", _information_rows),
        "identity_neighbours": ("fraction", _identity_rows),
        "layer_distance": ("1 − PWCCA", _change_rows),
        "task_scores": ("", _score_rows),
        **{name: (unit, partial(_rows_of_heads, name)) for name, unit in _OF_HEADS.items()},
    }
    for name, (unit, rows) in measured.items():
        if tables is None or name in tables:
            _write(run, name, unit, [row for r in runs for row in rows(*r)])
    if tables is None or "model_distance" in tables:
        _write(run, "model_distance", "1 − PWCCA", _distance_rows(objectives, seeds))
    if tables is None or "training_runs" in tables:
        _write_plain(run, "training_runs", [_training_row(o, s) for o in objectives for s in seeds])
    if tables is None or "findings" in tables:
        _write_plain(run, "findings", _finding_rows(len(seeds)))
    run.update(**_manifest("study", corpus, [_model_entry(o, s) for o in objectives for s in seeds]))
    return run


_OF_HEADS = {"head_confidence": "probability", "head_entropy": "nats", "head_positional": "share"}


def _rows_of_heads(table: str, objective: str, seed: int, trained: bool) -> list[dict]:
    return [row for name, row in _head_rows(objective, seed, trained) if name == table]


def with_tables(run: RunFolder, *names: str) -> RunFolder:
    """The run with these of its tables alone: pictures of the others take long to draw."""
    for path in (run.path / "tables").glob("*.parquet"):
        if path.stem not in names:
            path.unlink()
    return run


def make_analysis(path: Path, name: str = "bert-tiny", tables: tuple[str, ...] | None = None) -> RunFolder:
    """`analyze` of one encoder: one model, no control model, no findings; only `tables` where given."""
    run = RunFolder(path)
    rows = {
        "mutual_information": ("nats", _information_rows("masked-lm", 0, True)[:7]),
        "identity_neighbours": ("fraction", _identity_rows("masked-lm", 0, True)),
        "layer_distance": ("1 − PWCCA", _change_rows("masked-lm", 0, True)),
    }
    for table, row in _head_rows("masked-lm", 0, True):
        rows.setdefault(table, ({"head_entropy": "nats"}.get(table, "share"), []))[1].append(row)
    for table, (unit, entries) in rows.items():
        if tables is None or table in tables:
            _write(run, table, unit, [{**entry, "model": name} for entry in entries])
    model = {"name": name, "objective": "masked-lm", "seed": 0, "parameters": 4_385_920, "seconds": 12.0}
    run.update(**_manifest("analyze", "wiki.txt", [model]))
    return run


def add_head_tables(run: RunFolder, seeds: tuple[int, ...] = (0,), objective: str = "masked-lm", **keys: str) -> None:
    """What else is known of the heads that `run` has: roles, relevance, importance, removal, sentences."""
    heads = [{**row, **keys} for seed in seeds for row in _head_keys(objective, seed)]
    for name, rows in _more_head_rows(heads).items():
        _write(run, name, "share", rows)
    _write_plain(run, "head_examples", [row for head in heads for row in _example_rows(head)])
    _write(
        run, "head_pruning_curve", "nats", [{**row, **keys} for seed in seeds for row in _removed_rows(objective, seed)]
    )


def _head_keys(objective: str, seed: int) -> list[dict]:
    kinds = [(MAIN_STACK[objective], "self")]
    if objective == "translation":
        kinds += [("decoder", "self"), ("decoder", "cross")]
    places = [(*place, layer, head) for place in kinds for layer in range(LAYERS) for head in range(HEADS)]
    names = ("stack", "kind", "layer", "head")
    return [{**_model(objective, seed, True), **dict(zip(names, place, strict=True))} for place in places]


def _more_head_rows(heads: list[dict]) -> dict[str, list[dict]]:
    """Importance rises with layer and head, what removal costs follows it, relevance falls."""
    tables: dict[str, list[dict]] = {}
    for number, head in enumerate(heads):
        key, amount = (head["seed"], head["stack"], head["kind"], head["layer"], head["head"]), 0.001 * (number + 1)

        def add(table: str, value: float, baseline: float, head=head, key=key, **extra) -> None:
            estimate = _estimate(value, ("conf", table, *key, *extra.values()), 0, 0.0005, baseline, 4_000)
            tables.setdefault(table, []).append({**head, **extra, **estimate})

        for relation, lead in (("nsubj", 0.2 if number == 5 else -0.1), ("obj", 0.05)):
            add(
                "head_relations",
                0.4 + lead,
                0.4,
                relation=relation,
                direction="dependent→head",
                convention="voita",
                offset=-1,
            )
        add("head_rare_token", 0.3, 0.2, rarest=1)
        add("head_surface", 0.25, 0.1, statistic="special")
        add("head_surface", 0.25, 0.1, statistic="previous")
        add("head_patterns", 0.7 if number == 7 else 0.1, 0.05, pattern="induction", score="share")
        add("head_relevance", 1 / (number + 5), 1 / HEADS, method="voita", normalise="signed")
        add("head_importance", amount, 0.02, convention="paper")
        add("head_ablation", 2 * amount - 0.004, 0.04, removed="head", mode="zero", metric="loss")
        tables["head_ablation"][-1] |= {"p": 0.01, "p_corrected": 0.0004 if number > 9 else 0.6}
    return tables


EXAMPLES = {11: ["a", "<script>alert(1)</script>", "c"], 12: ["d", "e", "f", "שלום", "h"]}


def _example_rows(head: dict) -> list[dict]:
    """Two sentences; on the first every head looks one token back, on the second at the token of its own number."""
    rows = []
    for rank, (sentence, words) in enumerate(EXAMPLES.items()):
        tokens = ["[CLS]", *words, "[SEP]"]
        size = len(tokens)
        targets = [max(i - 1, 0) if rank == 0 else head["head"] % size for i in range(size)]
        weights = np.where(np.arange(size) == np.array(targets)[:, None], 255, 0).astype(np.uint8)
        listed = json.dumps([[token, int(token.startswith("["))] for token in tokens])
        rows.append(
            {
                **head,
                "rank": rank,
                "confidence": 0.9 - 0.2 * rank,
                "sentence": sentence,
                "text": " ".join(words),
                "queries": listed,
                "keys": listed,
                "weights": base64.b64encode(weights.tobytes()).decode(),
                "value_norms": [float(number + 1) for number in range(size)],
            }
        )
    return rows


def _removed_rows(objective: str, seed: int) -> list[dict]:
    """The loss rises as the share to the power 4 by importance, as its square in random order."""
    rows = []
    for order, power, draws in (("importance", 4, 1), ("random", 2, 3)):
        for draw in range(draws):
            for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
                value = 3 + 3 * share**power + 0.05 * draw * share
                estimate = _estimate(value, ("conf", order, seed, draw, str(share)), 0, 0.001, 3 + 3 * share**2, 4_000)
                keys = {"order": order, "draw": draw, "kind": "all", "removed": share, "heads": int(48 * share)}
                rows.append({**_model(objective, seed, True), **keys, "mode": "zero", "metric": "loss", **estimate})
    return rows


def _model(objective: str, seed: int, trained: bool) -> dict:
    return {"model": f"{objective}/seed-{seed}", "objective": objective, "seed": seed, "trained": trained}


def _estimate(mean: float, key: tuple, seed_noise: float, noise: float, baseline: float, count: int = 100_000) -> dict:
    """A value with seed noise, and bootstrap replicates whose sentence noise is shared by all models (paired)."""
    value = mean + stream("seed-noise", *key).normal(0, seed_noise)
    own = stream("replicates", *key).normal(0, 0.4, 200)
    replicates = value + noise * (_shared_noise() + own)
    low, high = interval(replicates)
    estimate = {"value": value, "low": low, "high": high, "baseline": baseline, "count": count}
    kept = 8 if key[0] in ("conf", "ent", "pos") else 200  # heads are many, and the report needs their intervals only
    return {**estimate, "replicates": replicates[:kept].tolist()}


@cache
def _shared_noise() -> np.ndarray:
    return (replicate_weights() @ stream("block-noise").normal(0, 1, 64)) / 8


def _information_rows(objective: str, seed: int, trained: bool) -> list[dict]:
    curves = [("clean", "input", INPUT[objective] if trained else (4.35,) * 7, 0.31, 5.29)]
    if objective == "causal-lm":
        curves.append(("clean", "output", OUTPUT[objective] if trained else (1.42,) * 7, 0.29, 5.31))
    if objective == "masked-lm":
        curves.append(("training", "input", MASKED_INPUT if trained else (6.6,) * 7, 0.88, 6.91))
        curves.append(("training", "output", MASKED_OUTPUT if trained else (0.55,) * 7, 0.41, 5.29))
    rows = []
    for regime, side, values, baseline, entropy in curves:
        for layer, mean in enumerate(values):
            key = (objective, seed, int(trained), regime, side, layer)
            rows.append(
                {
                    **_model(objective, seed, trained),
                    "stack": MAIN_STACK[objective],
                    "regime": regime,
                    "side": side,
                    "layer": layer,
                    **_estimate(mean, key, 0.03, 0.012, baseline),
                    "plug_in": mean + 0.2,
                    "at_half": mean + 0.004 + 0.03 * (side == "output"),
                    "converged": side == "input",
                    "tokens_by_size": [40_000 / 2**halvings for halvings in (4, 3, 2, 1, 0)],
                    "value_by_size": [mean + 0.03 * layer * halvings**2 / 16 for halvings in (4, 3, 2, 1, 0)],
                    "plug_in_by_size": [mean + 0.05 * layer * halvings for halvings in (4, 3, 2, 1, 0)],
                    "entropy": entropy,
                    "clusters": 500,
                    "types": 1000,
                    "inertia": 1.0e6 / (layer + 1),
                    "empty_clusters": 0,
                    "clustering_spread": 0.01,
                }
            )
    return rows


def _identity_rows(objective: str, seed: int, trained: bool) -> list[dict]:
    values = IDENTITY[objective] if trained else (0.965,) * 7
    return [
        {
            **_model(objective, seed, trained),
            "stack": MAIN_STACK[objective],
            "layer": layer,
            **_estimate(mean, ("identity", objective, seed, int(trained), layer), 0.004, 0.002, 0.021, 20_000),
            "neighbours": 50,
            "metric": "cosine",
            "few": "require",
        }
        for layer, mean in enumerate(values)
    ]


def _change_rows(objective: str, seed: int, trained: bool) -> list[dict]:
    values = CHANGE[objective] if trained else (0.021, 0.020, 0.020, 0.019, 0.020, 0.019)
    return [
        {
            **_model(objective, seed, trained),
            "stack": MAIN_STACK[objective],
            "layer": layer,
            "next_layer": layer + 1,
            **_estimate(mean, ("change", objective, seed, int(trained), layer), 0.002, 0.0008, 0.78, 20_000),
            "width": 128,
            "side": "mean",
        }
        for layer, mean in enumerate(values)
    ]


def _distance_rows(objectives: tuple[str, ...], seeds: tuple[int, ...]) -> list[dict]:
    pairs = [(a, s, b, s, TASK_DISTANCE[a, b]) for a, b in TASK_DISTANCE for s in seeds]
    pairs += [(o, s, o, t, SEED_DISTANCE[o]) for o in objectives for s in seeds for t in seeds if s < t]
    rows = []
    for a, seed_a, b, seed_b, values in pairs:
        if a not in objectives or b not in objectives:
            continue
        for trained in (True, False):
            for layer, mean in enumerate(values if trained else (0.02 if a != b else 0.24,) * 7):
                key = ("distance", a, seed_a, b, seed_b, int(trained), layer)
                rows.append(
                    {
                        "model_a": f"{a}/seed-{seed_a}",
                        "objective_a": a,
                        "seed_a": seed_a,
                        "model_b": f"{b}/seed-{seed_b}",
                        "objective_b": b,
                        "seed_b": seed_b,
                        "trained": trained,
                        "stack_a": MAIN_STACK[a],
                        "stack_b": MAIN_STACK[b],
                        "layer": layer,
                        **_estimate(mean, key, 0.008, 0.003, 0.81, 20_000),
                        "width_a": 128,
                        "width_b": 128,
                        "side": "mean",
                    }
                )
    return rows


@cache
def _head_rows(objective: str, seed: int, trained: bool) -> list[tuple[str, dict]]:
    kinds = [(MAIN_STACK[objective], "self")]
    if objective == "translation":
        kinds += [("decoder", "self"), ("decoder", "cross")]
    rows = []
    for stack, kind in kinds:
        for layer in range(LAYERS):
            for head in range(HEADS):
                rows += _one_head(objective, seed, trained, stack, kind, layer, head)
    return rows


def _one_head(objective: str, seed: int, trained: bool, stack: str, kind: str, layer: int, head: int) -> list:
    draw = stream("head", objective, seed, int(trained), stack, kind, layer, head)
    focus = draw.beta(1.2, 1.6) if trained else 0.02
    positional = trained and kind == "self" and draw.random() < 0.22 - 0.03 * layer
    confidence = 0.16 + 0.8 * (0.85 + 0.1 * draw.random() if positional else 0.85 * focus)
    favourite = -1 if stack == "decoder" or draw.random() < 0.6 else 1
    base = {**_model(objective, seed, trained), "stack": stack, "kind": kind, "layer": layer, "head": head}
    key = (objective, seed, int(trained), stack, kind, layer, head)
    rows = [
        ("head_confidence", {**base, **_estimate(confidence, ("conf", *key), 0, 0.003, 0.152, 48_000)}),
        ("head_entropy", {**base, **_estimate(2.1 * (1 - confidence), ("ent", *key), 0, 0.01, 2.03, 48_000)}),
    ]
    offsets = () if kind == "cross" else (-2, -1, 1, 2) if stack == "encoder" else (-2, -1)
    for offset in offsets:
        share = 0.94 if positional and offset == favourite else 0.1 + 0.25 * focus * draw.random()
        estimate = _estimate(share, ("pos", *key, offset), 0, 0.003, 0.145, 41_000)
        rows.append(("head_positional", {**base, "offset": offset, **estimate}))
    return rows


def _score_rows(objective: str, seed: int, trained: bool) -> list[dict]:
    scores = {
        "causal-lm": [("loss", 3.42, 5.21, ""), ("perplexity", 30.6, 183.0, ""), ("accuracy", 0.36, 0.05, "")],
        "masked-lm": [("loss", 2.35, 5.21, ""), ("accuracy", 0.55, 0.05, "")],
        "translation": [
            ("loss", 2.11, 5.48, ""),
            ("bleu", 31.2, 1.4, "nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:2.5.1"),
        ],
    }[objective]
    untrained = {"loss": 8.3, "perplexity": 4020.0, "accuracy": 0.0003, "bleu": 0.1}
    rows = []
    for metric, mean, baseline, signature in scores:
        centre = mean if trained else untrained[metric]
        estimate = _estimate(
            centre, ("score", objective, seed, int(trained), metric), 0.02 * centre, 0.01 * centre, baseline
        )
        rows.append(
            {**_model(objective, seed, trained), "split": "test", "metric": metric, **estimate, "signature": signature}
        )
    return rows


def _training_row(objective: str, seed: int) -> dict:
    return {
        "model": f"{objective}/seed-{seed}",
        "objective": objective,
        "seed": seed,
        "updates": 2100,
        "source_tokens": 3_021_000,
        "target_tokens": 3_400_000 if objective == "translation" else 0,
        "supervised_tokens": 451_000 if objective == "masked-lm" else 3_021_000,
        "seconds": 482.0,
        "cpu_seconds": 940.0,
        "parameters": 2_104_320,
        "final_train_loss": 2.4,
    }


def _model_entry(objective: str, seed: int) -> dict:
    entry = _training_row(objective, seed)
    keys = ("objective", "seed", "parameters", "updates", "source_tokens", "seconds")
    return {"name": entry["model"], **{key: entry[key] for key in keys}}


def _finding(id: str, claim: str, verdict: str, effect: tuple, published: str, tables: str, seeds: int, **more) -> dict:
    nan = float("nan")
    value, low, high, threshold, unit, control = effect if effect else (nan, nan, nan, nan, "nats", nan)
    return {
        "id": id,
        "claim": claim,
        "verdict": verdict,
        "effect": value,
        "low": low,
        "high": high,
        "threshold": threshold,
        "unit": unit,
        "control": control,
        "control_name": "untrained model",
        "published": published,
        "source": "Voita, Sennrich and Titov 2019, The Bottom-up Evolution of Representations",
        "reason": more.get("reason", ""),
        "tables": tables,
        "covers": "seeds and sentences" if seeds > 1 else "sentences",
        "seeds": seeds,
        "effects": [value + 0.02 * k for k in (-1, 0, 1)][:seeds] if effect else [],
        "note": more.get("note", ""),
    }


def _finding_rows(seeds: int) -> list[dict]:
    info, dist = "mutual_information", "model_distance"
    return [
        _finding("representations:V-1", "A causal language model forgets its input token from layer to layer.",
                 "holds", (1.33, 1.25, 1.41, 0.33, "nats", 0.01), "1.33 nats", info, seeds),
        _finding("representations:V-2", "Translation forgets less of its input than causal language modelling.",
                 "holds", (0.58, 0.49, 0.68, 0.15, "nats", 0.0), "0.59 nats (0.74 against 1.33)", info, seeds),
        _finding("representations:V-3", "Masked language modelling loses the token's identity, then recovers it.",
                 "holds", (0.165, 0.08, 0.25, 0.04, "nats", 0.0), "0.165 nats", info, seeds),
        _finding("representations:V-4", "Models first compress the input, then predict the output.",
                 "undetermined", (0.14, 0.09, 0.19, 0.13, "nats", 0.02), "0.535 nats", info, seeds,
                 reason="the interval includes the threshold"),
        _finding("representations:V-6", "The objective shapes representations more than the initialisation does.",
                 "holds", (0.052, 0.031, 0.074, 0.02, "1 − PWCCA", -0.2), "0.076 at layer 1", dist, seeds),
        _finding("representations:V-7", "Translation and masked LM are the closest pair of objectives.",
                 "fails", (-0.021, -0.034, -0.009, 0.0, "1 − PWCCA", 0.0), "0.008 at layer 2", dist, seeds),
        _finding("representations:V-9", "Each objective has its own profile of change.",
                 "holds", (1.24, 1.15, 1.34, 1.1, "ratio", 1.0), "1.23", "layer_distance", seeds),
        _finding("representations:V-13", "Masked LM keeps token identity best, causal LM worst.",
                 "not testable here", (), "gaps of 0.06 and 0.148", "identity_neighbours", seeds,
                 reason="the translation model has not learned its task: BLEU 2.1 is not above copying the source"),
        _finding("heads:V8", "Positional heads look one token left or right, confidently.",
                 "holds", (0.91, 0.89, 0.93, 0.8, "probability", 0.15), "above 0.8",
                 "head_confidence, head_positional", seeds, note="first condition: holds\nuntrained model: 0.15"),
    ]  # fmt: skip


def _manifest(kind: str, corpus: str, models: list[dict]) -> dict:
    plan = {
        "preset": "laptop",
        "model": {"width": 128, "layers": LAYERS, "heads": HEADS, "dropout": 0.1},
        "training": {"updates": 2100, "learning_rate": 1.5e-3, "warmup": 0.08, "tokens_per_batch": 1400},
        "analysis": {"sentences": 4000, "clusters": 2000, "precision": "float32"},
    }
    return {
        "title": "Three objectives, one architecture" if kind == "study" else "What bert-tiny knows",
        "kind": kind,
        "plan": plan,
        "corpus": {"name": corpus, "digest": "65db964c0afd5b0d", "sentences": 92_397, "words": 665_258},
        "provenance": provenance(),
        "seconds": 4635.9,
        "timings": {"corpus": 14.2, "training": 4318.0, "analysis": 301.5, "findings": 2.2},
        "models": models,
        "warnings": ["3 of 4,000 sentences were longer than 128 tokens and were cut."],
        "command": f"infoflow {kind} --out runs/demo",
    }


def _write(run: RunFolder, name: str, unit: str, rows: list[dict]) -> None:
    estimates = {column.name: column for column in estimate_columns(unit, "the value", "the control")}
    _write_plain(run, name, rows, estimates)


def _write_plain(run: RunFolder, name: str, rows: list[dict], known: dict[str, Column] | None = None) -> None:
    frame = pd.DataFrame(rows)
    columns = tuple((known or {}).get(key) or _column(key, frame[key]) for key in frame.columns)
    run.tables.write(frame, TableSchema(name=name, version=1, description=f"Synthetic {name}.", columns=columns))


def write_again(run: RunFolder, frame: pd.DataFrame, schema: TableSchema) -> None:
    """A table that was read, changed: with the columns of its models' keys, which reading may have filled in."""
    known = {column.name: column for column in (*schema.columns, *KEYS, *PAIR_KEYS)}
    columns = tuple(known.get(name) or _column(name, frame[name]) for name in frame.columns)
    run.tables.write(frame, TableSchema(name=schema.name, version=1, description=schema.description, columns=columns))


def _column(name: str, values: pd.Series) -> Column:
    first = values.iloc[0]
    if isinstance(first, list):
        dtype = "list<float64>"
    elif isinstance(first, bool | np.bool_):
        dtype = "bool"
    elif isinstance(first, int | np.integer):
        dtype = "int64"
    else:
        dtype = "float64" if isinstance(first, float) else "string"
    return Column(name=name, dtype=dtype, unit=_KEY_UNITS.get(name, ""), description=f"the {name}")
