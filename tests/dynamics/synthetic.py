"""Tables of imaginary recordings, in which every claim about training holds by a margin: INVENTED numbers."""

import itertools
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

SEEDS, LAYERS, HEADS, WINDOWS, CHORDS = (0, 1, 2), 6, 4, 24, 1000
STACKS = {"causal-lm": ("decoder",), "masked-lm": ("encoder",), "translation": ("encoder", "decoder")}
BLOCK = ("query", "key", "value", "output", "norm", "mlp_in", "mlp_out")
SIZES = {"norm": 0.1, "mlp_in": 4.0, "mlp_out": 4.0, "embeddings": 30.0, "head": 3.0}
STEPS = 125_000


@dataclass
class Recordings:
    """What a study of three objectives and three seeds recorded; change a field before calling `tables`."""

    noise: float = 0.002
    feed_forward: float = 10.0  # of each W against 1 of value and output
    upper: float = 0.6  # how much more the top layer's feed-forward does, in translation
    middle: float = 0.5  # how much more the middle layers' attention does, in the causal LM
    layer_sign: dict[tuple[str, int], float] = field(default_factory=lambda: {("causal-lm", 5): -0.2})
    hurts: dict[str, dict[str, float]] = field(
        default_factory=lambda: {
            "causal-lm": dict.fromkeys(BLOCK, 0.0002),
            "masked-lm": dict.fromkeys(BLOCK, 0.0002) | {"key": 0.02, "query": 0.03},
            "translation": dict.fromkeys(BLOCK, 0.0008),
        }
    )
    last: dict[str, int] = field(default_factory=lambda: {"causal-lm": 9, "translation": 21, "masked-lm": 480})
    helping: float = 0.53
    top_share: float = 0.4
    alternated: float = 0.3
    residuals: dict[str, float] = field(
        default_factory=lambda: {"trapezoid": 1e-5, "simpson": 1e-6, "first-order": 5e-4, "midpoint": 8e-6}
    )
    half_correlation: float = 0.99
    head_spread: float = 0.6
    synchronous: bool = True
    corpus: int = 0  # trainings on another corpus differ as those of other seeds do

    def profile(self, objective: str, stack: str) -> np.ndarray:
        """Contribution of each layer and component, (layer, component)."""
        rng = np.random.default_rng([ord(c) for c in self._kind(objective, stack)])
        values = np.exp(rng.normal(scale=0.05, size=(LAYERS, len(BLOCK))))
        values[:, :2] *= 0.1
        values[:, 4] *= 0.05
        values[:, 5:] *= self.feed_forward
        if objective == "translation":
            values[-1, 5:] *= 1 + self.upper
        if objective == "causal-lm":
            values[1:-1, :4] *= 1 + self.middle
        for (name, layer), sign in self.layer_sign.items():
            if name == objective:
                values[layer] = sign * np.abs(values[layer]) / 10
        return values

    def _kind(self, objective: str, stack: str) -> str:
        """Translation's encoder is like the masked LM's, its decoder like the causal LM's."""
        return stack

    def tables(self, *names: str) -> dict[str, pd.DataFrame]:
        """All tables, or those named."""
        from infoflow.dynamics import compare_trainings

        groups = self._groups()
        made = {
            "allocation_groups": lambda: groups,
            "allocation_steps": lambda: self._steps(groups),
            "allocation_windows": self._windows,
            "allocation_heads": self._heads,
            "allocation_hurting": self._hurting,
            "allocation_reliability": self._reliability,
            "allocation_histogram": self._histogram,
            "allocation_similarity": lambda: compare_trainings(groups),
            "task_scores": _scores,
        }
        return {name: make() for name, make in made.items() if not names or name in names}

    def _groups(self) -> pd.DataFrame:
        rows = []
        for run, keys in _runs():
            rng = np.random.default_rng([1, *run, *([self.corpus] if self.corpus else [])])
            objective, blocks = keys["objective"], []
            for stack in STACKS[objective]:
                profile = self.profile(objective, stack)
                blocks += [
                    (component, stack, layer, "self" if component in BLOCK[:5] else "", profile[layer, index])
                    for layer in range(LAYERS)
                    for index, component in enumerate(BLOCK)
                ]
            scale = abs(sum(block[-1] for block in blocks))
            blocks += [("embeddings", stack, -1, "", 4 * scale), ("head", stack, -1, "", 0.5 * scale)]
            sizes = np.array([100 * SIZES.get(block[0], 1.0) for block in blocks])
            values = -np.array([block[-1] for block in blocks]) / scale
            values *= 1 + self.noise * rng.normal(size=len(values))
            draws = values[:, None] * (1 + self.noise * rng.normal(size=(len(values), 40)))
            for (component, stack, layer, kind, _), size, value, draw in zip(blocks, sizes, values, draws, strict=True):
                rows.append(
                    {
                        **keys,
                        "component": component,
                        "stack": stack,
                        "layer": layer,
                        "kind": kind,
                        "parameters": int(size),
                    }
                    | {"per_parameter": value / size, "share": value / values.sum()}
                    | _estimate(value, draw, values.sum() * size / sizes.sum())
                )
        return pd.DataFrame(rows)

    def _steps(self, groups: pd.DataFrame) -> pd.DataFrame:
        rng, fall = np.random.default_rng(5), np.exp(-np.arange(WINDOWS) / 6)
        waves = {
            layer: np.random.default_rng(3 if self.synchronous else 50 + layer).random(WINDOWS)
            for layer in range(-1, LAYERS)
        }
        shares = {layer: fall * (0.3 + wave) for layer, wave in waves.items()}
        table = np.stack([shares[layer] / shares[layer].sum() for layer in groups["layer"]])  # (group, window)
        values = groups["value"].to_numpy()[:, None] * table * (1 + 0.01 * rng.normal(size=table.shape))
        frame = groups.loc[groups.index.repeat(WINDOWS), [*KEYS, "component", "stack", "layer", "kind"]]
        window = np.tile(np.arange(WINDOWS), len(groups))
        return frame.assign(window=window, start=40 * window, end=40 * (window + 1), value=values.ravel())

    def _windows(self) -> pd.DataFrame:
        losses = 3 + 5 * np.exp(-np.arange(WINDOWS + 1) / 6)
        rows = [
            {**keys, "window": window, **_ends(window), "loss_start": losses[window], "loss_end": losses[window + 1]}
            | {"allocated": losses[window + 1] - losses[window] + 1e-4, "residual": 1e-4}
            | {"helped": 0.9 * self.helping, "hurt": 0.9 * (1 - self.helping), "zero": 0.1}
            | {"alternated": self.alternated, "top_share": self.top_share}
            for _, keys in _runs()
            for window in range(WINDOWS)
        ]
        return pd.DataFrame(rows)

    def _heads(self) -> pd.DataFrame:
        rows = []
        for run, keys in _runs():
            rng = np.random.default_rng([2, *run])
            for stack, layer, head in itertools.product(STACKS[keys["objective"]], range(LAYERS), range(HEADS)):
                value = -0.01 * (1 + self.head_spread * (1.5 if head == layer % HEADS else -0.5))
                draws = value + 0.0005 * rng.normal(size=40)
                place = {"stack": stack, "kind": "self", "layer": layer, "head": head, "parameters": 100}
                rows.append({**keys, **place, **_estimate(value, draws, -0.01)})
        return pd.DataFrame(rows)

    def _hurting(self) -> pd.DataFrame:
        rows = []
        for (_, seed), keys in _runs():
            objective = keys["objective"]
            for stack, component in itertools.product(STACKS[objective], (*BLOCK, "embeddings")):
                hurt = self.hurts[objective].get(component, 0.0) * (1 + 0.01 * seed)
                kind = "self" if component in BLOCK[:5] else ""
                place = {"component": component, "stack": stack, "kind": kind, "chords": CHORDS, "updates_per_chord": 1}
                for level, layer, share in (
                    ("block", -1, hurt),
                    ("group", 0, hurt),
                    ("parameter", 0, 1 - self.helping),
                ):
                    figures = {"hurt": share, "helped": 1 - share - 0.01, "zero": 0.01}
                    last = {"last_hurt": self.last[objective] + seed, "largest": 0.1, "largest_update": 3}
                    rows.append({**keys, "level": level, "layer": layer, **place, **figures, **last})
        return pd.DataFrame(rows)

    def _histogram(self) -> pd.DataFrame:
        """Sizes around 1e-8 nats, of which `helping` helped; a tenth of W1 did nothing."""
        ends = 10.0 ** np.arange(-12, -4, 0.5)
        counts = np.round(1e4 * np.exp(-(np.linspace(-3, 3, len(ends) - 1) ** 2))).astype(int)
        sides = ((-1, self.helping), (1, 1 - self.helping))
        bins = [
            (*sorted((sign * low, sign * high)), int(share * count))
            for sign, share in sides
            for low, high, count in zip(ends, ends[1:], counts, strict=False)
        ]
        zeros = [(0.0, 0.0, int(counts.sum() / 9))]
        rows = [
            {
                **keys,
                "component": component,
                "stack": stack,
                "layer": 0,
                "kind": "self" if component in BLOCK[:5] else "",
            }
            | {"low": low, "high": high, "count": count, "chords": WINDOWS}
            for _, keys in _runs()
            for stack, component in itertools.product(STACKS[keys["objective"]], BLOCK)
            for low, high, count in bins + (zeros if component == "mlp_in" else [])
        ]
        return pd.DataFrame(rows)

    def _reliability(self) -> pd.DataFrame:
        plain = {
            "half correlation of groups": 0.999,
            "half correlation of groups without embeddings": self.half_correlation,
            "half correlation of parameters": self.half_correlation,
            "sign agreement of parameters": 0.7,
        }
        rows = []
        for (_, seed), keys in _runs():
            for rule, value in self.residuals.items():
                for statistic, factor in (("mean residual", 1.0), ("residual of the total", 10.0)):
                    rows.append(
                        {**keys, "statistic": statistic, "rule": rule, "value": value * factor * (1 + 0.01 * seed)}
                    )
            rows += [{**keys, "statistic": name, "rule": "", "value": value} for name, value in plain.items()]
        return pd.DataFrame(rows).assign(unit="nats per item")


KEYS = ["model", "objective", "seed", "trained", "set", "term"]


def _runs() -> list[tuple[tuple[int, int], dict]]:
    return [
        ((number, seed), dict(zip(KEYS, (f"{name}/seed-{seed}", name, seed, True, "train", name), strict=True)))
        for number, name in enumerate(STACKS)
        for seed in SEEDS
    ]


def _ends(window: int) -> dict[str, int]:
    return {"begin": window * 40, "end": (window + 1) * 40}


def _estimate(value: float, draws: np.ndarray, baseline: float) -> dict:
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"value": value, "low": low, "high": high, "baseline": baseline, "count": 1000, "replicates": draws.tolist()}


def _scores() -> pd.DataFrame:
    """Every model has learned its task."""
    rows = [
        {**keys, "split": "test", "metric": metric, "value": value, "low": value - 0.1, "high": value + 0.1}
        | {"baseline": baseline, "count": 100, "signature": "", "replicates": []}
        for _, keys in _runs()
        for metric, value, baseline in (("loss", 1.0, 5.0), ("bleu", 40.0, 1.0))
    ]
    return pd.DataFrame(rows).drop(columns=["set", "term"])


def write_run(path: Path, recordings: Recordings):
    """A run folder that holds the tables."""
    from infoflow.results import Column, RunFolder, TableSchema

    run = RunFolder(path)
    run.update(kind="study", title="Recorded")
    for name, frame in recordings.tables().items():
        columns = tuple(Column(name=c, dtype=_dtype(frame[c]), unit="", description=c) for c in frame)  # type: ignore[arg-type]
        run.tables.write(frame, TableSchema(name=name, version=1, description=name, columns=columns))
    return run


def _dtype(column: pd.Series) -> str:
    if column.name == "replicates":
        return "list<float64>"
    return {"f": "float64", "i": "int64", "b": "bool"}.get(column.dtype.kind, "string")
