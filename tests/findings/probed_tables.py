"""Tables of imaginary probes in which every claim about them holds: INVENTED numbers, never results."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from infoflow.results import END, UNTRAINED

from .conftest import Study

OBJECTIVES = ("causal-lm", "masked-lm", "translation")
REPLICATES = 40

# Over layers 0 to 4, of trained models, then of untrained ones.
SCORES = {
    ("upos", "linear", "accuracy"): ((0.80, 0.88, 0.92, 0.91, 0.90), (0.80, 0.70, 0.66, 0.64, 0.62)),
    ("upos", "mlp", "accuracy"): ((0.88, 0.87, 0.90, 0.92, 0.91), (0.80, 0.70, 0.66, 0.64, 0.62)),
    ("upos", "linear", "selectivity"): ((0.10, 0.30, 0.36, 0.35, 0.34), (0.10, 0.06, 0.05, 0.04, 0.03)),
    ("word", "linear", "accuracy"): ((0.95, 0.80, 0.70, 0.60, 0.50), (0.95, 0.92, 0.90, 0.88, 0.86)),
}
FEW = {"task": ((0.50, 0.60, 0.66, 0.65, 0.64), (0.30, 0.28, 0.26, 0.25, 0.24)),
       "control": ((0.30, 0.29, 0.28, 0.27, 0.26), (0.30, 0.29, 0.28, 0.27, 0.26))}  # fmt: skip
CONTROL = ((0.70, 0.60, 0.56, 0.55, 0.54), (0.69, 0.59, 0.55, 0.54, 0.53))
GRANDPARENT = {
    "causal-lm": ((0.50, 0.60, 0.70, 0.66, 0.60), (0.50, 0.48, 0.46, 0.44, 0.42)),
    "translation": ((0.50, 0.56, 0.62, 0.66, 0.70), (0.50, 0.48, 0.46, 0.44, 0.42)),
}
BITS = {
    "task": ((4000, 2600, 2000, 2100, 2200), (4000, 4200, 4210, 4190, 4205)),
    "control": ((9000, 9400, 9800, 9900, 9950), (9000, 9100, 9150, 9120, 9140)),
    "shuffled": ((12000, 12010, 12020, 12000, 12010), (12000, 12010, 12020, 12000, 12010)),
}
SURVIVING = {"task": (20, 16, 15, 15, 16), "control": (60, 58, 55, 57, 60), "shuffled": (60, 58, 55, 57, 60)}
UNIFORM = 13_000
LAYERS = {"upos": 1.6, "constituents": 2.1, "arc-label": 2.4, "coreference": 3.2, "ner-spans": 2.2}
MIXES = {"upos": 0.8, "arc-label": 0.7, "ner-spans": 0.3, "coreference": 0.2}
CUMULATIVE = ((0.70, 0.80, 0.86, 0.88, 0.86), (0.70, 0.705, 0.71, 0.715, 0.72))
UUAS = ((0.50, 0.62, 0.70, 0.68, 0.64), (0.50, 0.44, 0.43, 0.42, 0.41))
SPEARMAN = ((0.50, 0.66, 0.76, 0.74, 0.70), (0.50, 0.44, 0.43, 0.42, 0.41))
CHAIN = 0.48
AGREEMENT = {"human": ((0.40, 0.50, 0.60, 0.70, 0.60), (0.30,) * 5), "permuted": ((0.0,) * 5, (0.0,) * 5)}


def scores(seeds: tuple[int, ...]) -> pd.DataFrame:
    """Losses by which every model has learned its task."""
    return Study(seeds=seeds).tables()["task_scores"]


class Probed:
    """What a study that probed three objectives wrote; change a curve before calling `tables`."""

    def __init__(self, seeds: tuple[int, ...] = (1, 2, 3), noise: float = 0.002) -> None:
        self.seeds, self.noise = seeds, noise
        self.scores, self.few, self.bits = copy.deepcopy(SCORES), copy.deepcopy(FEW), copy.deepcopy(BITS)
        self.variational: dict[str, Any] = copy.deepcopy(BITS)
        self.grandparent, self.surviving = copy.deepcopy(GRANDPARENT), copy.deepcopy(SURVIVING)
        self.layers, self.mixes, self.cumulative = dict(LAYERS), dict(MIXES), CUMULATIVE
        self.uuas, self.spearman = UUAS, SPEARMAN
        self.agreement: dict[str, Any] = dict(AGREEMENT)

    def tables(self) -> dict[str, pd.DataFrame]:
        rows = {
            "probe_scores": self._scores,
            "probe_codelength": self._codes,
            "probe_depth": self._depths,
            "probe_mixing": self._mixing,
            "probe_trees": self._trees,
            "bert_score": self._agreements,
        }
        return {name: pd.DataFrame(list(of())) for name, of in rows.items()} | {"task_scores": scores(self.seeds)}

    def _models(self) -> Iterator[tuple[dict[str, Any], int]]:
        for objective in OBJECTIVES:
            for seed in self.seeds:
                for trained in (True, False):
                    keys = {"model": f"{objective}/seed-{seed}", "objective": objective, "variant": ""}
                    keys |= {"architecture": "bert", "start": "", "seed": seed}
                    keys |= {"update": END if trained else UNTRAINED, "trained": trained}
                    yield {**keys, "stack": "encoder"}, 0 if trained else 1

    def _row(self, keys: dict[str, Any], value: float, baseline: float = 0.1, **place: Any) -> dict[str, Any]:
        name = [keys["seed"], int(keys["trained"]), *"".join(map(str, place.values())).encode()]
        draw = np.random.default_rng(name)
        scale = self.noise * max(abs(value), 0.1)
        value = value + scale * draw.standard_normal()
        replicates = list(value + scale * draw.standard_normal(REPLICATES))
        return {**keys, **place, "value": value, "baseline": baseline, "count": 500, "replicates": replicates}

    def _scores(self) -> Iterator[dict[str, Any]]:
        for keys, twin in self._models():
            curves = {(task, probe, "task", metric, 1.0): each for (task, probe, metric), each in self.scores.items()}
            curves[("upos", "linear", "control", "accuracy", 1.0)] = CONTROL
            curves |= {("upos", "linear", labels, "accuracy", 0.01): each for labels, each in self.few.items()}
            if keys["objective"] in self.grandparent:
                curves[("grandparent", "linear", "task", "accuracy", 1.0)] = self.grandparent[keys["objective"]]
            for (task, probe, labels, metric, share), both in curves.items():
                for layer, value in enumerate(both[twin]):
                    place = {"task": task, "probe": probe, "labels": labels, "words": "all", "metric": metric}
                    yield self._row(keys, value, **place, share=share, layer=layer)

    def _codes(self) -> Iterator[dict[str, Any]]:
        for keys, twin in self._models():
            for code, curves in (("online", self.bits), ("variational", self.variational)):
                for labels, both in curves.items():
                    for layer, bits in enumerate(both[twin]):
                        place = {"task": "upos", "probe": "linear", "labels": labels, "code": code, "layer": layer}
                        place |= {"units": "bits"}
                        numbers = {"bits": bits, "compression": UNIFORM / bits, "model_bits": 0.4 * bits}
                        for metric, value in numbers.items():
                            yield self._row(keys, value, **place, metric=metric, probe_layer=-1)
                        if code == "variational":
                            kept = self.surviving[labels][layer]
                            yield self._row(keys, kept, **place, metric="surviving", probe_layer=0)

    def _depths(self) -> Iterator[dict[str, Any]]:
        for keys, twin in self._models():
            for statistic, numbers in (("expected_layer", self.layers), ("k_weights", self.mixes)):
                for index, (task, value) in enumerate(numbers.items()):
                    value = (2.5 - 0.1 * index if statistic == "expected_layer" else 0.05 * index) if twin else value
                    yield self._row(keys, value, task=task, statistic=statistic, warning="")

    def _mixing(self) -> Iterator[dict[str, Any]]:
        for keys, twin in self._models():
            for task in self.layers:
                for layer, value in enumerate(self.cumulative[twin]):
                    yield self._row(keys, value, task=task, statistic="score", layer=layer)

    def _trees(self) -> Iterator[dict[str, Any]]:
        for keys, twin in self._models():
            for metric, both in (("uuas", self.uuas), ("spearman", self.spearman)):
                for layer, value in enumerate(both[twin]):
                    place = {"structure": "distance", "probe": "structural", "metric": metric, "layer": layer}
                    yield self._row(keys, value, CHAIN, **place)

    def _agreements(self) -> Iterator[dict[str, Any]]:
        for keys, twin in self._models():
            for labels, both in self.agreement.items():
                for layer, value in enumerate(both[twin]):
                    yield self._row(keys, value, 0.0, score="f", labels=labels, layer=layer)
