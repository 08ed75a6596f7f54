"""A study with every table that the report draws, and the same with a further model in its tables: INVENTED numbers."""

from pathlib import Path

import numpy as np
import pandas as pd
import probed
import test_alignment
import test_frequency
import test_lenses
import test_neighbours
import test_similarity
import test_space
from dynamics import synthetic as dynamics
from pruning import synthetic as pruning
from synthetic_run import _write, _write_plain, add_head_tables, make_study

from infoflow.results import KEYS, RunFolder

OTHERS = {
    "checkpoint": {"update": 500},
    "architecture": {"architecture": "albert", "model": "masked-lm-on-albert/seed-1"},
    "start": {"start": "causal-lm/seed-1", "model": "masked-lm/from-causal-lm-seed-1/seed-1"},
    "variant": {"variant": "static", "model": "masked-lm+static/seed-1"},
    "name": {"model": "mine"},
}
"""How a further model of the same objective and seed may differ; the last one, in nothing that tells it apart."""


class InMemory(RunFolder):
    """A run whose tables are at hand."""

    def __init__(self, manifest: dict, tables: dict[str, pd.DataFrame]) -> None:
        super().__init__("in-memory")
        self._entries, self._tables = manifest, tables

    def read(self) -> dict:
        return self._entries

    @property
    def tables(self) -> dict[str, pd.DataFrame]:  # type: ignore[override]
        return self._tables


def make(folder: Path) -> InMemory:
    """The study, from what all other tests invent."""
    run = make_study(folder / "study", seeds=(1, 2))
    add_head_tables(run, (1, 2))
    test_frequency.write_tables(run, seeds=(1, 2))
    _write(run, "geometry", "", test_space.geometry_rows(seeds=(1, 2)))
    _write(run, "distance_distribution", "", test_space.distance_rows())
    _write(run, "lens", "nats", test_lenses.rows())
    _write_plain(run, "alignment", test_alignment.rows((1, 2), {}).to_dict("records"))
    curve = [{"source_tokens": 1000 * n, "step": 10 * n, "value": 8.0 / n} for n in range(1, 6)]
    models = run.tables["training_runs"][["model", "objective", "seed"]].to_dict("records")
    tables = {"learning_curves": pd.DataFrame([model | point for model in models for point in curve])}
    pairs = [
        row
        for trained in (True, False)
        for a, b in (("causal-lm", "masked-lm"), ("masked-lm", "translation"))
        for row in test_similarity.grid((a, 1), (b, 1), trained)
    ]
    tables["space_similarity"] = pd.DataFrame(pairs)
    tables |= {name: pd.DataFrame(rows(seeds=(1, 2))) for name, rows in probed.WRITERS.items()}
    test_neighbours.make_run(folder / "neighbours", seeds=(1,))
    pruning.write_run(folder / "pruned", pruning.Sweeps(), judged=False)
    dynamics.write_run(folder / "recorded", dynamics.Recordings())
    for other in ("pruned", "recorded", "neighbours"):
        theirs = RunFolder(folder / other).tables
        tables = {name: theirs[name] for name in theirs if name not in run.tables} | tables
    whole = RunFolder(run.path)
    return InMemory(whole.read(), {name: whole.tables[name] for name in whole.tables} | tables)


def keyed(frame: pd.DataFrame) -> bool:
    """Whether the table is about models."""
    return "objective" in frame or "objective_a" in frame


def with_another(frame: pd.DataFrame, changes: dict) -> pd.DataFrame:
    """The table and, of a model that is in it, the rows again: another model's, with wild numbers."""
    from infoflow.results import with_keys

    frame = with_keys(frame)
    side = next(side for side in ("", "_a", "_b") if f"objective{side}" in frame)
    trained = frame["trained"] if "trained" in frame else pd.Series(True, index=frame.index)
    first = frame[trained].iloc[0]
    same = trained & (frame[f"objective{side}"] == first[f"objective{side}"])
    rows = frame[same & (frame[f"seed{side}"] == first[f"seed{side}"])]
    names = {column.name for column in KEYS}
    amounts = [name for name, kind in rows.dtypes.items() if kind.kind == "f" and name.removesuffix(side) not in names]
    wild = {name: 1000 * rows[name] + 7 for name in amounts if name not in ("removed", "perplexity", "bin_low")}
    if "replicates" in rows:
        wild["replicates"] = [None if each is None else 1000 * np.asarray(each) + 7 for each in rows["replicates"]]
    wild |= {f"{name}{side}": value for name, value in changes.items()}
    if "model" in changes:  # named after its own objective, so that one model has one objective's stacks
        wild[f"model{side}"] = changes["model"].replace("masked-lm", str(first[f"objective{side}"]), 1)
    return pd.concat([frame, rows.assign(**wild)], ignore_index=True)
