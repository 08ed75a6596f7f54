"""Learning curves of imaginary fresh models with heads of trained ones: INVENTED numbers, never results."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import provenance
from infoflow.heads import TRANSPLANT_CURVES
from infoflow.results import Column, RunFolder, TableSchema, estimate

STEPS = (0, 1, 10, 100, 1000)
PLAIN = (6.0, 5.9, 4.5, 3.0, 2.0)  # of the fresh model's own heads
GAIN = {"specialised": (0.0, 0.02, 0.2, 0.15, 0.08), "random": (0.0, 0.01, 0.05, 0.03, 0.01), "shuffled": (0.0,) * 5}
REPLICATES = 200


@dataclass
class Transplants:
    """What a study that put heads into fresh models wrote; change a field before calling `tables`."""

    objectives: tuple[str, ...] = ("translation",)
    seeds: tuple[int, ...] = (1, 2, 3)
    frozen: tuple[bool, ...] = (False, True)
    draws: int = 2
    gain: dict[str, tuple[float, ...]] = field(default_factory=lambda: dict(GAIN))  # loss below the fresh model's own
    cost_of_freezing: float = 0.02
    between: float = 0.004  # how much seeds differ, in nats
    noise: float = 0.003  # of sentences, in a difference
    by_chance: float | None = None  # roles that all heads of a model hold by chance; None: no table of heads
    bleu: dict[str, float] = field(
        default_factory=lambda: {"none": 20.0, "specialised": 22.0, "random": 20.5, "shuffled": 20.1}
    )

    def tables(self) -> dict[str, pd.DataFrame]:
        """`transplant_curves`, and `task_scores` by which every model has learned its task."""
        rows = [row for keys in self._models() for row in self._curves(keys)]
        heads = {"transplanted_heads": self._heads()} if self.by_chance is not None else {}
        return {"transplant_curves": pd.DataFrame(rows), "task_scores": self._scores(), **heads}

    def _heads(self) -> pd.DataFrame:
        """Of two specialised heads of each model one with a role, and a random one."""
        found = [("specialised", "positional"), ("specialised", ""), ("random", "positional")]
        return pd.DataFrame(
            [
                {**keys, "arm": arm, "roles": roles, "by_chance": self.by_chance}
                for keys in self._models()
                for arm, roles in found
            ]
        )

    def _models(self) -> list[dict[str, Any]]:
        return [
            {"model": f"{name}/seed-{seed}", "objective": name, "variant": "", "architecture": "bert", "start": ""}
            | {"seed": seed, "update": -1, "trained": True}
            for name in self.objectives
            for seed in self.seeds
        ]

    def _curves(self, keys: dict[str, Any]):
        for frozen in self.frozen:
            for arm in ("none", *self.gain):
                for draw in range(self.draws if arm == "random" else 1):
                    own = {**keys, "arm": arm, "frozen": frozen, "draw": draw, "heads": 4}
                    for at, step in enumerate(STEPS):
                        place = {**own, "step": step, "source_tokens": 900 * step}
                        yield {**place, "metric": "loss", "signature": ""} | self._loss(place, at)
                    score = self.bleu[arm] + 0.1 * keys["seed"]
                    drawn = score + 0.4 * np.random.default_rng(keys["seed"]).standard_normal(REPLICATES)
                    more = {
                        "step": STEPS[-1],
                        "source_tokens": 900_000,
                        "metric": "bleu",
                        "signature": "nrefs:1|case:lc",
                    }
                    yield {**own, **more} | estimate(score, drawn, 25.0, 500)

    def _loss(self, place: dict[str, Any], at: int) -> dict[str, Any]:
        arm, seed = place["arm"], place["seed"]
        gain = self.gain[arm][at] if arm != "none" else 0.0
        rng = np.random.default_rng([seed, at, place["draw"], place["frozen"], sum(map(ord, arm))])
        value = PLAIN[at] - gain + self.cost_of_freezing * place["frozen"] * (at > 1) + self.between * rng.normal()
        shared = np.random.default_rng(seed).standard_normal(REPLICATES)  # the sentences' part: paired
        drawn = value + 0.05 * shared + self.noise * rng.standard_normal(REPLICATES)
        return estimate(value, drawn, 1.5, 500)

    def _scores(self) -> pd.DataFrame:
        rows = [
            keys | {"split": "test", "metric": metric, "value": value, "low": value - 0.1, "high": value + 0.1}
            | {"baseline": baseline, "count": 1000, "replicates": [value] * 5, "signature": ""}
            for keys in self._models()
            for metric, value, baseline in (("loss", 1.5, 6.0), ("bleu", 25.0, 1.5))
        ]  # fmt: skip
        return pd.DataFrame(rows)


def write_run(path: Path, given: Transplants) -> RunFolder:
    """A run folder that holds these tables and the verdict on them."""
    from infoflow.findings import FINDINGS, FINDINGS_TABLE, evaluate

    run, dtypes = RunFolder(path), {"b": "bool", "i": "int64", "f": "float64"}
    known = {column.name: column for column in TRANSPLANT_CURVES.columns}
    for name, frame in given.tables().items():
        columns = tuple(
            known.get(column)
            or Column(name=column, dtype=dtypes.get(frame[column].dtype.kind, "string"), unit="", description=column)
            for column in frame.columns
        )
        run.tables.write(frame, TableSchema(name=name, version=1, description=f"Synthetic {name}.", columns=columns))
    run.tables.write(evaluate(run.tables, [FINDINGS["heads:H1"]]), FINDINGS_TABLE)
    models = [
        {"name": keys["model"], "objective": keys["objective"], "seed": keys["seed"], "parameters": 10, "seconds": 1.0}
        for keys in given._models()
    ]
    run.update(kind="study", title="Transplanted", models=models, provenance=provenance(), corpus={"name": "imaginary"})
    return run
