"""INVENTED studies of causal LMs at several scales, whose information about the input falls by known amounts."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

REPLICATES = 40
UPDATES = 1000


def keys(seed: int, trained: bool = True, update: int = -1) -> dict:
    return {
        "model": f"causal-lm/seed-{seed}", "objective": "causal-lm", "variant": "", "architecture": "bert", "start": "",
        "seed": seed, "update": update if trained else 0, "trained": trained,
    }  # fmt: skip


def number(value: float, *place: object, spread: float = 0.01) -> dict:
    rng = np.random.default_rng([sum(map(ord, str(part))) for part in place])
    value = value + spread * rng.standard_normal()
    draws = (value + spread * rng.standard_normal(REPLICATES)).tolist()
    ends = {"low": value - 2 * spread, "high": value + 2 * spread}
    return {"value": value, **ends, "baseline": 0.3, "count": 1000, "replicates": draws}


def information(fall: float, seeds: Sequence[int], update: int = -1) -> list[dict]:
    more = {"stack": "decoder", "regime": "clean", "side": "input", "clustering_spread": 0.0005}
    rows = []
    for seed in seeds:
        for trained in (True, False):
            for layer, value in enumerate(np.linspace(5.0, 5.0 - fall if trained else 5.2, 4)):
                estimate = number(value, seed, layer, trained, round(1000 * fall), update)
                rows.append(keys(seed, trained, update) | more | {"layer": layer} | estimate)
    return rows


def scores(seeds: Sequence[int]) -> list[dict]:
    row = {"split": "test", "metric": "loss", "signature": ""}
    return [keys(seed) | row | number(2.0, seed) | {"baseline": 6.0} for seed in seeds]


def study_tables(
    fall: float, tokens: float, seeds: Sequence[int] = (0, 1, 2), course: Mapping[int, float] | None = None
) -> dict[str, pd.DataFrame]:
    """Tables of a study, in which a causal LM forgets so many nats; `course`: update → the same at a checkpoint."""
    training = {"updates": UPDATES, "source_tokens": tokens, "parameters": 1000, "cpu_seconds": 9.0}
    tables = {
        "mutual_information": information(fall, seeds),
        "task_scores": scores(seeds),
        "training_runs": [keys(seed) | training for seed in seeds],
    }
    if course:
        every = {0: 0.0, **course}
        rows = [
            row
            for update, nats in every.items()
            for row in information(nats, seeds, update)
            if row["trained"] == bool(update)
        ]
        clocks = {"tokens": 1.0, "progress": 0.5, "lr_share": 0.5, "same_as": -1}
        tables["mutual_information_over_training"] = [row | clocks for row in rows]
        own = [row | {"update": update} | clocks for update in every for row in scores(seeds)]
        tables["task_scores_over_training"] = [row | {"trained": bool(row["update"])} for row in own]
    return {name: pd.DataFrame(rows) for name, rows in tables.items()}


def manifest(width: int = 64, corpus: str = "invented", layers: int = 3, **training: object) -> dict:
    plan = {"model": {"width": width, "layers": layers}, "corpus": {"name": corpus}, "training": training}
    return {"kind": "study", "plan": plan}


def scale_run(name: str, fall: float, tokens: float, **how):
    """A run as `findings_over_scale` takes it, without a folder."""
    from infoflow.subjects.over_scale.claims import ScaleRun

    of_tables = {each: how.pop(each) for each in ("seeds", "course") if each in how}
    return ScaleRun(name=name, tables=study_tables(fall, tokens, **of_tables), manifest=manifest(**how))


def write_study(path: Path, fall: float, tokens: float, **how) -> Path:
    """The same as a run folder."""
    from infoflow.results import Column, RunFolder, TableSchema

    of_tables = {each: how.pop(each) for each in ("seeds", "course") if each in how}
    run = RunFolder(path)
    run.update(**manifest(**how), models=[])
    for name, frame in study_tables(fall, tokens, **of_tables).items():
        columns = tuple(Column(name=c, dtype=_kind(frame[c]), unit="", description="") for c in frame)
        run.tables.write(frame, TableSchema(name=name, version=1, description="", columns=columns))
    return path


def _kind(column: pd.Series):
    if isinstance(column.iloc[0], list):
        return "list<float64>"
    return {"b": "bool", "i": "int64", "f": "float64"}.get(column.dtype.kind, "string")
