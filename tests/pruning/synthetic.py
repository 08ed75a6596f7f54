"""Tables of imaginary sweeps of pruning, in which every claim holds by a margin: INVENTED numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

REPLICATES = 40
KINDS = {
    "translation": ("encoder-self", "decoder-self", "decoder-cross"),
    "masked-lm": ("encoder-self",),
    "causal-lm": ("decoder-self",),
}
PENALTIES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
LEFT = (16, 13, 9, 6, 3, 1)  # of 16 heads
SHARES = {  # of each kind's heads, where gates choose among all
    "encoder-self": (1.0, 0.75, 0.5, 0.25, 0.125, 0.0625),
    "decoder-self": (1.0, 0.85, 0.65, 0.45, 0.3, 0.125),
    "decoder-cross": (1.0, 0.95, 0.85, 0.65, 0.5, 0.25),
}
COST = {  # BLEU lost with the whole pool removed, and how late in the sweep it is lost
    "hard-concrete": (4.0, 9.0),
    "subset": (5.0, 7.0),
    "scratch": (6.0, 5.0),
    "importance": (20.0, 2.2),
    "confidence": (22.0, 1.8),
    "random": (24.0, 1.2),
}
RECOVERED = {  # what is better than before when models are trained on, all heads first
    "recovered-all": 0.5,
    "recovered": 0.4,
    "recovered-random": -0.6,
}
FULL = {"bleu": 30.0, "loss": 2.0}
LOSS_OF_BLEU = 0.1  # nats per token that go with a BLEU
ROLES = {
    "positional −1": ((0, 0), (0, 1), (1, 2)),
    "positional +1": ((0, 2),),
    "nsubj dependent→head": ((2, 1),),
    "obj dependent→head": ((2, 2), (3, 0)),
    "rarest token": ((0, 3),),
}


@dataclass
class Sweeps:
    """What a study that pruned its models wrote; change a field before calling `tables`."""

    objectives: tuple[str, ...] = ("translation",)
    seeds: tuple[int, ...] = (1, 2, 3)
    metrics: tuple[str, ...] = ("bleu", "loss")
    scopes: tuple[str, ...] = ("encoder-self", "all")  # the first: of a decoder alone, its own heads
    methods: tuple[str, ...] = tuple(COST)
    draws: int = 3  # random orders
    penalties: tuple[float, ...] = PENALTIES
    left: tuple[int, ...] = LEFT
    layers: int = 4
    heads: int = 4
    noise: float = 0.05
    between: float = 0.02  # how much seeds differ, in BLEU
    cost: dict[str, tuple[float, float]] = field(default_factory=lambda: dict(COST))
    shares: dict[str, tuple[float, ...]] = field(default_factory=lambda: dict(SHARES))
    turned: bool = False  # the decoder keeps upper layers in self-attention and lower ones in cross-attention
    undecided: tuple[int, ...] = (16, 6, 3, 1, 0, 0)
    roles: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=lambda: dict(ROLES))
    keeps_roles: bool = True  # the last heads to go are those with roles
    recovers: bool = False  # encoders are trained on, and the unpruned models have rows
    recovered: dict[str, float] = field(default_factory=lambda: dict(RECOVERED))

    def tables(self, *names: str) -> dict[str, pd.DataFrame]:
        """The tables `pruning`, `pruned_heads` and `pruned_roles`, or those named."""
        made = {
            "pruning": lambda: [*self._points(), *(self._recovered() if self.recovers else [])],
            "pruned_heads": lambda: list(self._heads()),
            "pruned_roles": lambda: list(self._roles()),
        }
        return {name: pd.DataFrame(rows()) for name, rows in made.items() if not names or name in names}

    @property
    def size(self) -> int:
        """Heads of a kind of attention."""
        return self.layers * self.heads

    def _models(self) -> Iterator[dict[str, Any]]:
        for objective in self.objectives:
            for seed in self.seeds:
                keys = {"model": f"{objective}/seed-{seed}", "objective": objective, "seed": seed, "trained": True}
                yield keys

    def _sweeps(self) -> Iterator[tuple[dict[str, Any], list[dict[str, int]]]]:
        """Each model, method and draw, with the heads left of each kind at each point."""
        for model in self._models():
            kinds = KINDS[model["objective"]]
            for scope in self.scopes:
                if scope == "all" and len(kinds) == 1:
                    continue
                own = scope if scope in ("all", *kinds) else kinds[0]
                for method in self.methods:
                    for draw in range(self.draws if method == "random" else 1):
                        keys = {**model, "method": method, "scope": own, "draw": draw}
                        yield keys, self._left(kinds, scope, method)

    def _left(self, kinds: tuple[str, ...], scope: str, method: str) -> list[dict[str, int]]:
        """Heads left of each kind; greedy methods take the same share of every kind."""
        size = self.size
        lefts = [round(left * size / 16) for left in self.left]
        if scope != "all":
            first, *others = kinds
            return [{first: left} | dict.fromkeys(others, size) for left in lefts]
        if method in ("hard-concrete", "scratch"):
            return [{kind: round(self.shares[kind][i] * size) for kind in kinds} for i in range(len(self.left))]
        return [dict.fromkeys(kinds, left) for left in lefts]

    def _points(self) -> Iterator[dict[str, Any]]:
        for keys, left in self._sweeps():
            method, learned = keys["method"], keys["method"] == "hard-concrete"
            total = len(left[0]) * self.size
            pool = total if keys["scope"] == "all" else self.size
            for point, kinds in enumerate(left):
                if method == "scratch" and point == 0:
                    continue
                kept = sum(kinds.values())
                row = {
                    **keys,
                    "point": point,
                    "setting": self.penalties[point] if learned or method == "scratch" else float(kept),
                    "kept": kept,
                    "total": total,
                    **{f"kept_{kind.replace('-', '_')}": kinds.get(kind, 0) for kind in KINDS["translation"]},
                    "undecided": self.undecided[point] if learned else 0,
                }
                for metric in self.metrics if keys["objective"] == "translation" else ("loss",):
                    yield row | {"metric": metric} | self._score(keys, method, metric, (total - kept) / pool)

    def _recovered(self) -> Iterator[dict[str, Any]]:
        """What was trained on, and the models before: their quality is that before, and what was gained."""
        size, others = self.size, dict.fromkeys(("kept_decoder_self", "kept_decoder_cross"), self.size)
        for model in self._models():
            for method in ("unpruned", *RECOVERED):
                whole = method in ("unpruned", "recovered-all")
                for point, left in enumerate([16] if whole else self.left):
                    if not whole and point == 0:
                        continue
                    left = round(left * size / 16)
                    keys = {**model, "method": method, "scope": "" if whole else self.scopes[0], "draw": 0}
                    kept = {"kept": left + 2 * size, "total": 3 * size, "kept_encoder_self": left, **others}
                    row = {**keys, "point": point - (method == "unpruned"), "setting": float(left), **kept}
                    for metric in self.metrics:
                        score = self._gained(keys, metric, self.recovered.get(method, 0.0))
                        yield row | {"undecided": 0, "metric": metric} | score

    def _gained(self, keys: dict[str, Any], metric: str, gain: float) -> dict[str, Any]:
        score = self._score(keys, keys["method"], metric, float(keys["method"] != "unpruned"))
        scale = 1.0 if metric == "bleu" else -LOSS_OF_BLEU
        moved = {name: score[name] + scale * gain for name in ("value", "low", "high")}
        return score | moved | {"replicates": [one + scale * gain for one in score["replicates"]]}

    def _score(self, keys: dict[str, Any], method: str, metric: str, removed: float) -> dict[str, Any]:
        most, late = self.cost.get(method, (0.0, 1.0))
        seed = [keys["seed"], sum(map(ord, keys["model"]))]
        rng = np.random.default_rng(
            [*seed, keys["draw"], sum(map(ord, keys["method"] + keys["scope"])), int(1000 * removed)]
        )
        cost = most * removed**late + 0.2 * keys["draw"] * removed
        cost += self.between * rng.standard_normal() if removed else 0.0
        shared = np.random.default_rng(seed).standard_normal(REPLICATES)  # the sentences' part: paired
        noise = 0.8 * shared + self.noise * rng.standard_normal(REPLICATES) * (1 if removed else 0)
        scale = -1.0 if metric == "bleu" else LOSS_OF_BLEU
        value = FULL[metric] + scale * cost
        drawn = value + scale * noise
        return {
            "value": value,
            "low": float(np.quantile(drawn, 0.025)),
            "high": float(np.quantile(drawn, 0.975)),
            "baseline": FULL[metric],
            "count": 1000,
            "replicates": drawn.tolist(),
            "signature": "nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:2" if metric == "bleu" else "",
        }

    def _alive(self, keys: dict[str, Any], kind: str, number: int) -> set[tuple[int, int]]:
        """The (layer, head) that stay: those of random orders drawn, others by what the claims say."""
        places = [(layer, head) for layer in range(self.layers) for head in range(self.heads)]
        if keys["method"] == "random":
            order = np.random.default_rng([keys["seed"], keys["draw"], len(kind)]).permutation(len(places))
            return {places[index] for index in order[:number]}
        rising = kind == "decoder-cross"
        if self.turned and kind != "encoder-self":
            rising = not rising
        holders = {heads[-1] for heads in self.roles.values()} if self.keeps_roles else set()
        useful = holders if kind == "encoder-self" else set()
        ranked = sorted(places, key=lambda place: (place not in useful, -place[0] if rising else place[0], place[1]))
        if kind == "encoder-self" and not self.keeps_roles:
            ranked = ranked[::-1]
        return set(ranked[:number])

    def _heads(self) -> Iterator[dict[str, Any]]:
        for keys, left in self._sweeps():
            if keys["method"] == "scratch":
                continue
            first = KINDS[keys["objective"]][0]
            for point, kinds in enumerate(left):
                for kind, number in kinds.items():
                    alive = self._alive(keys, kind, number)
                    gated = keys["method"] in ("hard-concrete", "subset") and (keys["scope"] == "all" or kind == first)
                    for layer in range(self.layers):
                        for head in range(self.heads):
                            lives = (layer, head) in alive
                            place = dict(zip(("stack", "kind"), kind.split("-"), strict=True))
                            log_alpha = (3.0 if lives else -3.0) if gated else np.nan
                            yield {**keys, "point": point, **place, "layer": layer, "head": head, "alive": lives,
                                   "gate": float(lives), "log_alpha": log_alpha}  # fmt: skip

    def _roles(self) -> Iterator[dict[str, Any]]:
        """Roles of heads of the first kind, measured again with gates: heads keep the ones they had."""
        for keys, left in self._sweeps():
            if keys["method"] != "hard-concrete" or keys["scope"] == "all":
                continue
            kind = KINDS[keys["objective"]][0]
            place = dict(zip(("stack", "kind"), kind.split("-"), strict=True))
            for point, kinds in [(-1, {kind: self.size}), *enumerate(left)]:
                alive = self._alive(keys, kind, kinds[kind])
                for role, holders in self.roles.items():
                    for layer in range(self.layers):
                        for head in range(self.heads):
                            holds = (layer, head) in holders
                            score = {"score": 0.95 if holds else 0.1, "baseline": 0.2, "low": 0.09, "high": 0.96}
                            yield {**keys, "point": point, **place, "layer": layer, "head": head, "role": role,
                                   **score, "present": holds, "alive": (layer, head) in alive}  # fmt: skip


def task_scores(sweeps: Sweeps) -> pd.DataFrame:
    """Scores with which every model has learned its task."""
    rows = [
        {"model": f"{objective}/seed-{seed}", "objective": objective, "seed": seed, "trained": True, "split": "test"}
        | {"metric": metric, "value": FULL[metric], "low": FULL[metric], "high": FULL[metric], "baseline": baseline}
        | {"count": 1000, "replicates": [FULL[metric]] * 5, "signature": ""}
        for objective in sweeps.objectives
        for seed in sweeps.seeds
        for metric, baseline in (("loss", 6.0), ("bleu", 1.5))
    ]
    return pd.DataFrame(rows)


def write_run(path: Path, sweeps: Sweeps, judged: bool = True) -> Any:
    """A run folder that holds these tables and, if `judged`, the verdicts on them."""
    from infoflow.findings import FINDINGS, FINDINGS_TABLE, evaluate
    from infoflow.foundation import provenance
    from infoflow.pruning import PRUNED_HEADS, PRUNING
    from infoflow.results import Column, RunFolder, TableSchema

    run = RunFolder(path)
    tables = sweeps.tables() | {"task_scores": task_scores(sweeps)}
    known = {column.name: column for schema in (PRUNING, PRUNED_HEADS) for column in schema.columns}
    dtypes = {"b": "bool", "i": "int64", "f": "float64"}
    for name, frame in tables.items():
        columns = tuple(
            known.get(column)
            or Column(name=column, dtype=dtypes.get(frame[column].dtype.kind, "string"), unit="", description=column)
            for column in frame.columns
        )
        run.tables.write(frame, TableSchema(name=name, version=1, description=f"Synthetic {name}.", columns=columns))
    names = {f"heads:V{number}" for number in range(1, 6)} if judged else set()
    claims = [finding for name, finding in FINDINGS.items() if name in names]
    if claims:
        run.tables.write(evaluate(run.tables, claims), FINDINGS_TABLE)
    models = [
        {"name": f"{objective}/seed-{seed}", "objective": objective, "seed": seed, "parameters": 10, "seconds": 1.0}
        for objective in sweeps.objectives
        for seed in sweeps.seeds
    ]
    run.update(kind="study", title="Pruned", models=models, provenance=provenance(), corpus={"name": "imaginary"})
    return run
