"""What the claims about training read: shares of layers and components in the loss change, and who hurt when.

Where a number has no bootstrap over sentences (counts of steps, figures of a whole run), its replicates repeat it, so
that intervals come from the seeds alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from infoflow.foundation import NUM_REPLICATES, stream
from infoflow.results import Spec

from ._model_group import Absent
from ._panel import Panel
from ._reading import OBJECTIVE_NAMES, Objective, Tables, replicates_of

Stack = Literal["encoder", "decoder"]
MAIN_STACK: Mapping[Objective, Stack] = {"causal-lm": "decoder", "masked-lm": "encoder", "translation": "encoder"}
COMPONENTS = ("query", "key", "value", "output", "mlp_in", "mlp_out", "norm")
ATTENTION, FEED_FORWARD = COMPONENTS[:4], COMPONENTS[4:6]

_KEYS = ["seed", "set", "term"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Loss change of each layer and component inside a stack's blocks, as shares of their sum (layer by layer).

    Self-attention, feed-forward and norms; positive shares helped. `number="baseline"`: what equal allocations of all
    parameters would give; `"parameters"`: shares of the parameters.
    """

    objective: Objective
    stack: Stack
    number: Literal["value", "baseline", "parameters"] = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return ("allocation_groups",)

    def panel(self, tables: Tables) -> Panel:
        frame = _of(tables, "allocation_groups", self.objective, ["component", "stack", "layer", "kind", "parameters"])
        frame = frame.loc[(frame["stack"] == self.stack) & (frame["layer"] >= 0) & (frame["kind"] != "cross")]
        frame = frame.loc[frame["component"].isin(COMPONENTS)]
        if frame.empty:
            raise Absent(f"allocation_groups has no {self.stack} of the {OBJECTIVE_NAMES[self.objective]}")
        seeds = {int(seed): _vectors(rows, self.number) for seed, rows in frame.groupby("seed")}
        if len({values.shape for values, _ in seeds.values()}) > 1:
            raise Absent("the models differ in depth")
        return _panel(seeds)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProfileSimilarity:
    """Rank correlation of the share profiles of two stacks, for each pair of different seeds: a curve of one point."""

    first: tuple[Objective, Stack]
    second: tuple[Objective, Stack]
    number: Literal["value", "baseline"] = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return ("allocation_similarity",)

    def panel(self, tables: Tables) -> Panel:
        ends = [f"{name}_{end}" for name in ("objective", "stack", "seed") for end in "ab"]
        columns = [*ends, "normalisation", "metric", self.number]
        first, second = Spec(self.first[0]), Spec(self.second[0])
        own = tables.pairs("allocation_similarity", first, second, columns)
        own = own.loc[(own["normalisation"] == "share") & (own["metric"] == "spearman")]
        stacks = (own["stack_a"] == self.first[1]) & (own["stack_b"] == self.second[1])
        own = own.loc[stacks & (own["seed_a"] != own["seed_b"])]
        units = [tuple(map(int, seeds)) for seeds in own[["seed_a", "seed_b"]].to_numpy()]
        draws = replicates_of(own)
        rows = {
            unit: (np.array([float(value)]), drawn[:, None])
            for unit, value, drawn in zip(units, own[self.number], draws, strict=True)
        }
        if len(rows) < len(units):
            raise Absent("allocation_similarity holds a pair of models twice")
        if not rows:
            names = " and ".join(
                f"{OBJECTIVE_NAMES[objective]} ({stack})" for objective, stack in (self.first, self.second)
            )
            raise Absent(f"no two recorded trainings of {names} under different seeds were compared")
        return _panel(rows if self.number == "value" else {unit: (value, None) for unit, (value, _) in rows.items()})


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusSimilarity:
    """Rank correlation of the share profiles of two stacks under different seeds, mean over pairs of corpora.

    `corpora="other"`: of two trainings on different corpora; `"same"`: on one corpus. A curve of one point for each
    pair of seeds.
    """

    first: tuple[Objective, Stack]
    second: tuple[Objective, Stack]
    corpora: Literal["same", "other"]

    @property
    def sources(self) -> tuple[str, ...]:
        return ("allocation_corpora",)

    def panel(self, tables: Tables) -> Panel:
        if "allocation_corpora" not in tables.tables:
            raise Absent(
                "it needs recordings on several corpora, and a study has one: run one study for each and compare "
                "their folders, infoflow dynamics RUN RUN ..."
            )
        ends = [f"{name}_{end}" for end in "ab" for name in ("stack", "corpus", "seed")]
        first, second = Spec(self.first[0]), Spec(self.second[0])
        frame = tables.pairs("allocation_corpora", first, second, [*ends, "normalisation", "metric", "value"])
        frame = frame.loc[(frame["normalisation"] == "share") & (frame["metric"] == "spearman")]
        same = frame["corpus_a"] == frame["corpus_b"]
        frame = frame.loc[(same == (self.corpora == "same")) & (frame["seed_a"] != frame["seed_b"])]
        frame = frame.loc[(frame["stack_a"] == self.first[1]) & (frame["stack_b"] == self.second[1])]
        if frame.empty:
            names = " and ".join(f"{OBJECTIVE_NAMES[o]} ({stack})" for o, stack in (self.first, self.second))
            raise Absent(f"no two trainings of {names} on {self.corpora} corpora, under different seeds, were compared")
        draws = replicates_of(frame)
        seeds = np.sort(frame[["seed_a", "seed_b"]].to_numpy(), axis=1)
        values = frame["value"].to_numpy(dtype=float)
        units = {tuple(map(int, unit)): (seeds == unit).all(axis=1) for unit in np.unique(seeds, axis=0)}
        return _panel(
            {
                unit: (values[rows].mean(keepdims=True), draws[rows].mean(axis=0)[:, None])
                for unit, rows in units.items()
            }
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockHurts:
    """Figures of components as sums over the layers of a stack: one point per component."""

    objective: Objective
    stack: Stack
    components: tuple[str, ...]
    column: Literal["hurt", "last_hurt"] = "hurt"

    @property
    def sources(self) -> tuple[str, ...]:
        return ("allocation_hurting",)

    def panel(self, tables: Tables) -> Panel:
        columns = ["level", "component", "stack", "kind", "chords", "updates_per_chord", self.column]
        frame = _of(tables, "allocation_hurting", self.objective, columns)
        if (frame["updates_per_chord"].to_numpy() > 1).any():
            raise Absent("several updates were taken together, so hurting steps are not known")
        frame = frame.loc[(frame["level"] == "block") & (frame["stack"] == self.stack) & (frame["kind"] != "cross")]
        frame = frame.loc[frame["component"].isin(self.components)]
        scale = frame["chords"] if self.column == "last_hurt" else 1
        frame = frame.assign(figure=frame[self.column].clip(lower=0) / scale)
        table = frame.pivot_table(index="seed", columns="component", values="figure", aggfunc="max")
        if table.empty or set(table.columns) != set(self.components):
            raise Absent(f"allocation_hurting lacks components of the {OBJECTIVE_NAMES[self.objective]}")
        values = table[list(self.components)].to_numpy(dtype=float)
        return _panel({int(seed): (row, None) for seed, row in zip(table.index, values, strict=True)})


@dataclass(frozen=True, kw_only=True, slots=True)
class LastHurt:
    """The last step in which any of the components, in any of the stacks, hurt: one number for each seed."""

    objective: Objective
    stacks: tuple[Stack, ...]
    components: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        return ("allocation_hurting",)

    def panel(self, tables: Tables) -> Panel:
        how = {"objective": self.objective, "components": self.components, "column": "last_hurt"}
        parts = [BlockHurts(stack=stack, **how).panel(tables) for stack in self.stacks]  # type: ignore[arg-type]
        seeds = set.intersection(*(part.seeds for part in parts))
        last_US = np.stack([part.only(seeds).values_UK.max(axis=1) for part in parts], axis=1)
        rows = zip(parts[0].only(seeds).units, last_US, strict=True)
        return _panel({unit: (own.max(keepdims=True), None) for unit, own in rows})


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowMean:
    """A share of the parameters, mean over the whole training: a curve of one point."""

    objective: Objective
    column: Literal["helping", "alternated", "top_share"]

    @property
    def sources(self) -> tuple[str, ...]:
        return ("allocation_windows",)

    def panel(self, tables: Tables) -> Panel:
        frame = _of(tables, "allocation_windows", self.objective, ["helped", "hurt", "alternated", "top_share"])
        frame = frame.assign(helping=frame["helped"] / (frame["helped"] + frame["hurt"]).replace(0, np.nan))
        means = frame.groupby("seed")[self.column].mean()
        if np.isnan(means.to_numpy()).any():
            raise Absent("single parameters were not followed")
        return _panel({int(seed): (np.array([value]), None) for seed, value in zip(means.index, means, strict=True)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Reliability:
    """A figure of the recording itself: a curve of one point."""

    objective: Objective
    statistic: str
    rule: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        return ("allocation_reliability",)

    def panel(self, tables: Tables) -> Panel:
        frame = _of(tables, "allocation_reliability", self.objective, ["statistic", "rule", "value"])
        frame = frame.loc[(frame["statistic"] == self.statistic) & (frame["rule"] == self.rule)]
        if frame.empty or np.isnan(frame["value"].to_numpy()).any():
            raise Absent(f"allocation_reliability has no {self.statistic}{f' of {self.rule}' if self.rule else ''}")
        return _panel(
            {int(seed): (np.array([value]), None) for seed, value in zip(frame["seed"], frame["value"], strict=True)}
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Synchrony:
    """How often the layers of a stack learn most at once: mean over pairs of layers of the share of common peaks.

    A peak of a layer is a window in which it lowered the loss more than in both neighbouring ones. `baseline`: the same
    after each layer's series was turned round by a random number of windows.
    """

    objective: Objective
    stack: Stack
    number: Literal["value", "baseline"] = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return ("allocation_steps",)

    def panel(self, tables: Tables) -> Panel:
        frame = _of(tables, "allocation_steps", self.objective, ["window", "stack", "layer", "value"])
        frame = frame.loc[(frame["stack"] == self.stack) & (frame["layer"] >= 0)]
        found = {}
        for seed, rows in frame.groupby("seed"):
            series = -rows.pivot_table(index="layer", columns="window", values="value", aggfunc="sum").to_numpy(
                dtype=float
            )
            if series.shape[0] < 2 or series.shape[1] < 10:
                raise Absent("synchrony needs two layers and ten windows")
            found[int(seed)] = (np.array([self._figure(series)]), None)  # type: ignore[arg-type]
        if not found:
            raise Absent(f"allocation_steps has no {self.stack} of the {OBJECTIVE_NAMES[self.objective]}")
        return _panel(found)

    def _figure(self, series: np.ndarray) -> float:
        if self.number == "value":
            return _common_peaks(series)
        rng, windows = stream("synchrony", len(series)), series.shape[1]
        turned = [np.stack([np.roll(row, rng.integers(1, windows)) for row in series]) for _ in range(100)]
        return float(np.mean([_common_peaks(each) for each in turned]))


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadSpread:
    """How unequal the heads of a layer are: standard deviation over heads, beyond what the choice of sentences gives,
    in units of the layer's mean absolute head; mean over layers. `baseline`: what that choice alone gives."""

    objective: Objective
    stack: Stack
    number: Literal["value", "baseline"] = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return ("allocation_heads",)

    def panel(self, tables: Tables) -> Panel:
        frame = _of(
            tables, "allocation_heads", self.objective, ["stack", "kind", "layer", "head", "value", "replicates"]
        )
        frame = frame.loc[(frame["stack"] == self.stack) & (frame["kind"] == "self") & (frame["head"] >= 0)]
        if frame.empty or replicates_of(frame).shape[1] < 2:
            raise Absent(f"allocation_heads has no heads with intervals of the {OBJECTIVE_NAMES[self.objective]}")
        found = {}
        for seed, rows in frame.groupby("seed"):
            layers = [self._figure(own) for _, own in rows.groupby("layer")]
            found[int(seed)] = (np.array([np.mean(layers)]), None)  # type: ignore[arg-type]
        return _panel(found)

    def _figure(self, heads: pd.DataFrame) -> float:
        values, draws = heads["value"].to_numpy(dtype=float), replicates_of(heads)
        noise = float((draws - draws.mean(axis=1, keepdims=True)).var(axis=1).mean())
        spread = max(float(values.var(ddof=1)) - noise, 0.0) if self.number == "value" else noise
        return float(np.sqrt(spread) / np.abs(values).mean())


def by_layer(curve: np.ndarray) -> np.ndarray:
    """A profile as (N, layer, component), components in the order of `COMPONENTS`."""
    return curve.reshape(len(curve), -1, len(COMPONENTS))


def total_of(curve: np.ndarray, components: tuple[str, ...]) -> np.ndarray:
    """Sum of some components of a profile, (N, layer)."""
    return by_layer(curve)[:, :, [COMPONENTS.index(name) for name in components]].sum(axis=2)


def _of(tables: Tables, name: str, objective: Objective, columns: list[str]) -> pd.DataFrame:
    """Rows of the training sentences and the first term of the loss, of one objective."""
    frame = tables.rows(name, Spec(objective), [*_KEYS, *columns])
    frame = frame.loc[frame["set"] == "train"]
    if frame.empty:
        raise Absent(f"no training of a {OBJECTIVE_NAMES[objective]} was recorded")
    return frame.loc[frame["term"] == frame["term"].iloc[0]]


def _vectors(rows: pd.DataFrame, number: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Shares in the order layer, component (the kinds of norms added up), and their replicates (R, K)."""
    order = {name: index for index, name in enumerate(COMPONENTS)}
    places = rows["layer"].to_numpy() * len(COMPONENTS) + rows["component"].map(order).to_numpy()
    size = (int(rows["layer"].max()) + 1) * len(COMPONENTS)
    values = np.bincount(places, rows[number].to_numpy(dtype=float), size)
    shares = values / np.abs(values.sum()) * (1 if number == "parameters" else -1)
    if number != "value":
        return shares, None
    draws = replicates_of(rows)
    if draws.shape[1] < 2:
        raise Absent("the examples were not divided into parts, so shares have no intervals")
    resampled = np.stack([np.bincount(places, column, size) for column in draws.T])
    return shares, -resampled / np.abs(resampled.sum(axis=1, keepdims=True))


def _panel(rows: Mapping[int, tuple[np.ndarray, np.ndarray | None]] | Mapping[tuple[int, ...], tuple]) -> Panel:
    """Values and replicates by seed, or by pair of seeds; values without replicates are repeated."""
    units = sorted(rows)  # type: ignore[type-var]
    values = np.stack([rows[unit][0] for unit in units])  # type: ignore[index]
    draws = [rows[unit][1] for unit in units]  # type: ignore[index]
    repeated = [np.tile(v, (NUM_REPLICATES, 1)) if d is None else d for v, d in zip(values, draws, strict=True)]
    return Panel(
        units=tuple(unit if isinstance(unit, tuple) else (unit,) for unit in units),
        layers=(0,),
        values_UK=values,
        replicates_URK=np.stack(repeated),
    )


def _common_peaks(series: np.ndarray) -> float:
    middle = series[:, 1:-1]
    peaks = (middle > series[:, :-2]) & (middle > series[:, 2:])
    shares = [
        (peaks[i] & peaks[j]).sum() / max(np.sqrt(peaks[i].sum() * peaks[j].sum()), 1)
        for i in range(len(peaks))
        for j in range(i)
    ]
    return float(np.mean(shares))
