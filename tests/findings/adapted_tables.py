"""Tables of imaginary tuned models in which every claim about them holds: INVENTED numbers, never results."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from infoflow.adaptation import (
    DOMAIN_LOSS,
    LABEL_BY_LAYER,
    LAYER_SWAPS,
    PROBES_AFTER_TUNING,
    TASK_ANSWERS,
    TASK_PRUNING,
    TASK_SCORES,
    TUNING_ALLOCATION,
    TUNING_CHANGE,
    TUNING_HEADS,
    TUNING_WEIGHTS,
)
from infoflow.results import END, UNTRAINED

from .test_objective_claims import scored

REPLICATES = 40
OBJECTIVES = (
    "masked-lm",
    "causal-lm",
    "masked-lm-nsp",
    "spanbert",
    "denoise-full",
    "denoise-mask",
    "replace-spans",
    "drop-tokens",
)
INSIDE = ("masked-lm", "causal-lm")
TASKS = {"opinions": "classification", "tags": "tagging", "questions": "span"}
METRICS = {"opinions": "accuracy", "tags": "macro_f1", "questions": "f1"}
GUESS = {"opinions": 0.35, "tags": 0.30, "questions": 0.10}
FROM_SCRATCH = {"opinions": 0.60, "tags": 0.62, "questions": 0.40}
SIZES = (50, 200, 1000)
MOST = SIZES[-1]
FEWER = {50: 0.22, 200: 0.12, 1000: 0.0}  # what fewer examples cost from scratch
GAIN = {50: 0.27, 200: 0.22, 1000: 0.15}  # what pretraining gains
LESS = {
    "masked-lm": 0.0,
    "causal-lm": 0.12,
    "masked-lm-nsp": 0.002,
    "spanbert": 0.0,
    "denoise-full": 0.03,
    "denoise-mask": 0.035,
    "replace-spans": 0.02,
    "drop-tokens": 0.025,
}
SPAN_GAIN = {"spanbert": 0.03}
STRATEGIES = {"as-is": 0.0, "continued": 0.02, "scratch": 0.04}
FROZEN = {"as-is": 0.04, "continued": 0.06, "scratch": 0.06}  # what a frozen body costs
LOSSES = {"as-is": 6.0, "continued": 4.5, "scratch": 5.0}
LAYERS, HEADS = 4, 8
CHANGE = {True: (0.02, 0.05, 0.10, 0.20, 0.30), False: (0.20, 0.30, 0.30, 0.30, 0.29)}
READABLE = {"before": (0.0, 0.05, 0.10, 0.14, 0.12), "after": (0.01, 0.07, 0.15, 0.24, 0.30)}
PROBED = {
    "upos": ((0.80, 0.88, 0.92, 0.91, 0.90), (0.80, 0.87, 0.90, 0.86, 0.80)),
    "position": ((0.90, 0.80, 0.70, 0.60, 0.50), (0.90, 0.80, 0.66, 0.50, 0.36)),
}
SWAPS = {"lower": (2.95, 2.85, 2.60), "upper": (2.60, 2.30, 2.10)}
EMBEDDINGS = {"pretraining-loss": 2.98, "score": 0.745}  # taken back alone
SWAPPED_SCORES = {"lower": (0.74, 0.70, 0.60), "upper": (0.73, 0.66, 0.55)}
SINGLE = {"score": (0.0, -0.02, -0.08, -0.05), "pretraining-loss": (0.01, -0.1, -0.2, -0.4)}  # what one block changes
COMPONENTS = ("query", "key", "value", "output", "mlp_in", "mlp_out")
LEAKED = {("opinions", "pretraining"): (200, 3, 5), ("tags", "train"): (200, 0, 0)}
HOSTILE = "<script>alert(1)</script>"
WITH_MODELS = {
    one.name: one
    for one in (TASK_SCORES, TASK_ANSWERS, TUNING_CHANGE, TUNING_WEIGHTS, TUNING_HEADS, LABEL_BY_LAYER,
                PROBES_AFTER_TUNING, LAYER_SWAPS, TUNING_ALLOCATION, TASK_PRUNING, DOMAIN_LOSS)
}  # fmt: skip


class Adapted:
    """What a study that tuned its models wrote; change a number before calling `tables`."""

    def __init__(
        self,
        seeds: tuple[int, ...] = (1, 2, 3),
        tuning_seeds: tuple[int, ...] = (0, 1),
        noise: float = 0.001,
        objectives: tuple[str, ...] = OBJECTIVES,
    ) -> None:
        self.seeds, self.tuning_seeds, self.noise, self.objectives = seeds, tuning_seeds, noise, objectives
        self.gain, self.fewer, self.less, self.span_gain = dict(GAIN), dict(FEWER), dict(LESS), dict(SPAN_GAIN)
        self.scratch, self.strategies, self.frozen = dict(FROM_SCRATCH), dict(STRATEGIES), dict(FROZEN)
        self.losses, self.change, self.swaps = dict(LOSSES), dict(CHANGE), copy.deepcopy(SWAPS)
        self.untrained_swaps = {"lower": (7.0, 7.0, 7.0), "upper": (7.0, 7.0, 7.0)}
        self.shuffled = 0.0  # what shuffled labels teach beyond a guess
        self.untrained_less: dict[str, float] = {}  # what models of an objective lack before training
        self.common, self.untrained_common = 1.0, 0.0  # share of what a head is worth that tasks have in common
        self.hostile = ""  # added to every text

    def tables(self, only: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
        """All of them, or these."""
        rows = {
            "tuned_scores": self._scores,
            "task_answers": self._answers,
            "tuning_change": self._change,
            "tuning_weights": self._weights,
            "tuning_heads": self._heads,
            "label_by_layer": self._labels,
            "probes_after_tuning": self._probes,
            "layer_swaps": self._swaps,
            "tuning_allocation": self._allocation,
            "task_pruning": self._pruning,
            "domain_loss": self._losses,
            "task_leakage": self._leakage,
            "task_scores": self._learned,
        }
        return {name: pd.DataFrame(list(of())) for name, of in rows.items() if not only or name in only}

    def _learned(self) -> Iterator[dict[str, Any]]:
        for keys in self._models(self.objectives):
            if keys["trained"]:
                yield from scored(keys["objective"], keys)

    def score(self, objective: str, task: str, trained: bool, size: int, strategy: str = "as-is", method: str = "full"):
        value = self.scratch[task] - self.fewer[size]
        if not trained:
            return value - self.untrained_less.get(objective, 0.0)
        value += self.gain[size] - self.less[objective] + self.strategies[strategy]
        value += self.span_gain.get(objective, 0.0) if TASKS[task] == "span" else 0.0
        return value - (self.frozen[strategy] if method == "frozen" else 0.0)

    def _models(self, objectives: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        for objective in objectives:
            for seed in self.seeds:
                for trained in (True, False):
                    keys = {"model": f"{objective}/seed-{seed}", "objective": objective, "variant": ""}
                    keys |= {"architecture": "bert", "start": "", "seed": seed}
                    yield {**keys, "update": END if trained else UNTRAINED, "trained": trained}

    def _row(self, keys: dict[str, Any], value: float, baseline: float = 0.0, scale: float = 1.0, **place: Any):
        name = [keys["seed"], int(keys["trained"]), *"".join(map(str, (keys["objective"], *place.values()))).encode()]
        draw = np.random.default_rng(name)
        value = value + scale * self.noise * draw.standard_normal()
        replicates = value + scale * self.noise * draw.standard_normal(REPLICATES)
        ends = {"low": value - 2 * scale * self.noise, "high": value + 2 * scale * self.noise}
        found = {"value": value, **ends, "baseline": baseline, "count": 300, "replicates": list(replicates)}
        return {**keys, **place, **found}

    def _how(self, task: str, strategy="as-is", method="full", examples=MOST, control="") -> dict[str, Any]:
        named = {"task": task + self.hostile, "shape": TASKS[task], "strategy": strategy, "method": method}
        return {**named, "examples": examples, "control": control}

    def _ways(self, keys: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
        """Ways that a model was tuned, with the task."""
        for task in TASKS:
            yield from ((self._how(task, examples=size), task) for size in SIZES)
            if not keys["trained"]:
                continue
            yield self._how(task, control="shuffled-labels"), task
            yield self._how(task, method="frozen"), task
            if keys["objective"] == "masked-lm":
                for strategy in ("continued", "scratch"):
                    yield self._how(task, strategy), task
                    yield self._how(task, strategy, "frozen"), task

    def _scores(self) -> Iterator[dict[str, Any]]:
        for keys in self._models(self.objectives):
            for how, task in self._ways(keys):
                for seed in self.tuning_seeds:
                    own = (keys["trained"], how["examples"], how["strategy"], how["method"])
                    value = self.score(keys["objective"], task, *own)
                    value = GUESS[task] + self.shuffled if how["control"] else value
                    facts = {"tuning_seed": seed, "learning_rate": 3e-4, "updates": 120}
                    yield self._row(
                        keys, value, GUESS[task], **how, **facts, part="test", metric=METRICS[task], main=True
                    )
                    yield self._row(keys, 0.9, 0.5, **how, **facts, part="dev", metric="f1", main=True)
                    yield self._row(keys, 0.5, 0.5, **how, **facts, part="test", metric="other", main=False)

    def _answers(self) -> Iterator[dict[str, Any]]:
        for keys in self._models(("masked-lm",)):
            if keys["trained"]:
                for method, right in (("full", (True, True, False, True)), ("frozen", (False, True, True, False))):
                    for example, is_right in enumerate(right):
                        how = self._how("opinions", method=method)
                        said = ("good" if is_right else "bad") + self.hostile
                        text = f"Text number {example} {self.hostile}"
                        told = {"text": text, "wanted": "good" + self.hostile, "said": said, "probability": 0.8}
                        yield {**keys, **how, "tuning_seed": 0, "example": example, **told, "right": is_right}

    def _inside(self, untrained: bool = True) -> Iterator[tuple[dict[str, Any], dict[str, Any], str]]:
        """Models that were looked into, the way they were tuned, and the task."""
        for keys in self._models(tuple(one for one in INSIDE if one in self.objectives)):
            stack = "decoder" if keys["objective"] == "causal-lm" else "encoder"
            if keys["trained"] or untrained:
                yield from ((keys, {**self._how(task), "stack": stack}, task) for task in TASKS)

    def _change(self) -> Iterator[dict[str, Any]]:
        for keys, how, task in self._inside():
            for place, measure in enumerate(("pwcca", "cka", "rsa")):
                for layer, value in enumerate(self.change[keys["trained"]]):
                    less = 0.02 * list(TASKS).index(task) * (layer > 0) + 0.004 * place
                    yield self._row(keys, max(value - less, 0.0), 0.01, **how, layer=layer, measure=measure)

    def _weights(self) -> Iterator[dict[str, Any]]:
        for keys, how, _ in self._inside(untrained=False):
            for seed in self.tuning_seeds:
                for layer in range(-1, LAYERS):
                    for index, component in enumerate(COMPONENTS if layer >= 0 else ("embeddings",)):
                        size = 0.01 + 0.02 * (layer + 1) + 0.002 * index + 0.001 * seed
                        facts = {"parameters": 4096, "relative": size, "cosine": 1 - size**2 / 2}
                        yield {**keys, **how, "tuning_seed": seed, "layer": layer, "component": component, **facts}

    def _heads(self) -> Iterator[dict[str, Any]]:
        for keys, how, task in self._inside():
            shared = np.random.default_rng([7, keys["seed"]]).random((LAYERS, HEADS))
            own = np.random.default_rng([8, keys["seed"], *task.encode()]).random((LAYERS, HEADS))
            common = self.common if keys["trained"] else self.untrained_common
            for layer in range(LAYERS):
                for head in range(HEADS):
                    value = 0.1 * (common * shared[layer, head] + (1 - common) * own[layer, head])
                    moved = 0.02 + 0.05 * layer + 0.01 * own[layer, head]
                    facts = {"js": moved, "js_low": 0.9 * moved, "js_high": 1.1 * moved}
                    facts |= {"confidence_before": shared[layer, head], "confidence_after": own[layer, head]}
                    facts |= {"role_before": "previous" if head == 0 else "", "role_after": "next" if head == 1 else ""}
                    facts |= {"cost_before": 0.2 * shared[layer, head]}
                    place = {"kind": "self", "layer": layer, "head": head}
                    yield self._row(keys, value, **how, **place) | facts

    def _labels(self) -> Iterator[dict[str, Any]]:
        for keys, how, _ in self._inside(untrained=False):
            for state in ("before", "after", "untrained"):
                for layer in range(LAYERS + 1):
                    above = READABLE.get(state, (0.04,) * (LAYERS + 1))[layer]
                    place = {"layer": layer, "state": state}
                    yield self._row(keys, 0.5 + above, 0.5, **how, **place, metric="accuracy")
                    yield self._row(keys, 0.1 + above, 0.05, **how, **place, metric="information")
                    read = 0.9 - (0.2 if state == "after" else 0.1) * layer
                    yield self._row(keys, read, 0.02, **how, **place, metric="information about the input")

    def _probes(self) -> Iterator[dict[str, Any]]:
        for keys, how, _ in self._inside(untrained=False):
            for probe, curves in PROBED.items():
                for state, curve in zip(("before", "after"), curves, strict=True):
                    for layer, value in enumerate(curve):
                        yield self._row(keys, value, 0.2, **how, probe=probe, layer=layer, state=state)

    def _swaps(self) -> Iterator[dict[str, Any]]:
        for keys, how, _ in self._inside():
            del how["stack"]
            losses = self.swaps if keys["trained"] else self.untrained_swaps
            ends = (3.0, 2.0) if keys["trained"] else (7.0, 7.0)
            for name, sides, end in (("pretraining-loss", losses, ends), ("score", SWAPPED_SCORES, (0.75, 0.40))):
                places = [("none", 0, end[0]), ("all", LAYERS, end[1])]
                places += [(side, num + 1, value) for side, own in sides.items() for num, value in enumerate(own)]
                places += [("lower", 0, EMBEDDINGS[name] if keys["trained"] or name == "score" else 7.0)]
                for rewound, blocks, value in places:
                    taken = {"rewound": rewound, "blocks": blocks, "layer": -1}
                    yield self._row(keys, value, end[1], **how, **taken, quantity=name)
                for layer, change in enumerate(SINGLE[name]):
                    taken = {"rewound": "one", "blocks": 1, "layer": layer}
                    yield self._row(keys, end[0] + change, end[1], **how, **taken, quantity=name)

    def _allocation(self) -> Iterator[dict[str, Any]]:
        for keys, how, _ in self._inside(untrained=False):
            for seed in self.tuning_seeds:
                for layer in range(-2, LAYERS):
                    names = COMPONENTS if layer >= 0 else ("embeddings" if layer == -1 else "task-head",)
                    for component in names:
                        value = -0.02 * (layer + 1) if layer >= 0 else -0.05 if layer == -1 else -0.3
                        facts = {"parameters": 4096, "value": value, "total": -1.55}
                        place = {"layer": layer, "component": component}
                        yield {**keys, **how, "tuning_seed": seed, **place, **facts}

    def _pruning(self) -> Iterator[dict[str, Any]]:
        for keys, how, _ in self._inside(untrained=False):
            del how["stack"]
            for order, curve in (("importance", (0.75, 0.75, 0.72, 0.60)), ("random", (0.75, 0.66, 0.55, 0.45))):
                for step, value in enumerate(curve):
                    place = {"order": order, "removed": 8 * step, "heads": LAYERS * HEADS}
                    yield self._row(keys, value, 0.75, **how, **place)

    def _losses(self) -> Iterator[dict[str, Any]]:
        for keys in self._models(("masked-lm",)):
            if keys["trained"]:
                for strategy, loss in self.losses.items():
                    yield self._row(keys, loss, 8.0, strategy=strategy, text="domain")
                    yield self._row(keys, 5.0, 8.0, strategy=strategy, text="general")

    def _leakage(self) -> Iterator[dict[str, Any]]:
        for (task, within), (texts, same, near) in LEAKED.items():
            yield {"task": task + self.hostile, "within": within, "texts": texts, "same": same, "near": near}
