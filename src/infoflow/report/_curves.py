"""Turn measure tables into curves with 95% bands, and into sentences about how the curves change with depth."""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from infoflow.foundation import t_quantile

from ._in_words import Estimate, Samples, chosen, estimate_text, inline_text, listed, number, size_text
from ._theme import Series


def over_seeds(seeds: int) -> str:
    """`Means over 3 seeds`, or `One seed`."""
    return f"Means over {seeds} seeds" if seeds > 1 else "One seed"


def band_words(seeds: int, over: str = "sentences", bands: str = "bands", known: bool = True) -> str:
    """Return the caption's sentence about bands, without the full stop.

    Args:
        seeds: Number of seeds behind each mean.
        over: What was sampled besides seeds; "" if nothing was.
        bands: What is drawn: "bands" or "whiskers".
        known: Whether a single seed has an interval.
    """
    if seeds > 1:
        return f"{over_seeds(seeds)} with 95% intervals over seeds{f' and {over}' if over else ''} ({bands})"
    if over and known:
        return f"One seed; {bands} are 95% intervals over {over}"
    return "One seed: no interval is known, and no band is drawn"


def seed_bands(frame: pd.DataFrame, by: Sequence[str], value: str = "value", *, positive: bool = False) -> pd.DataFrame:
    """`value`, `low`, `high` and `seeds` for each combination of `by`: Student's interval of the mean over seeds.

    With one seed, `low` and `high` are NaN. `positive` computes intervals on the log scale, for values above 0.
    """
    of_seed = frame.groupby([*by, "seed"], sort=False, dropna=False)[value].mean().reset_index()
    grouped: Any = of_seed.groupby(list(by), sort=False, dropna=False)[value]
    table = grouped.agg(value="mean", spread="std", seeds="count").reset_index()
    quantiles = {num: t_quantile(num - 1) if num > 1 else np.nan for num in set(table["seeds"])}
    half = table["seeds"].map(quantiles).astype(float) * table["spread"] / np.sqrt(table["seeds"])
    low, high = table["value"] - half, table["value"] + half
    if positive:
        factor = np.exp(half / table["value"])
        low, high = table["value"] / factor, table["value"] * factor
    return table.assign(low=low, high=high).drop(columns="spread")


def sampled_bands(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The columns of `seed_bands` for a measure's rows, over seeds and sentences; one seed keeps its own interval."""
    return estimates(frame, by)[[*by, "value", "low", "high", "seeds"]]


def estimates(frame: pd.DataFrame, by: Sequence[str], unit: str = "seed") -> pd.DataFrame:
    """The `Estimate` over seeds (or another `unit`) and sentences for each combination of `by`; `shown` is its text."""
    rows = []
    groups: Any = frame.groupby(list(by), sort=False, dropna=False)
    for key, own in groups:
        found = Samples.of(own, unit).estimate()
        rows.append({**dict(zip(by, key, strict=True)), **asdict(found), "shown": estimate_text(found)})
    return pd.DataFrame(rows, columns=[*by, *(one.name for one in fields(Estimate)), "shown"])


def first_seed(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep each line's first seed, since head numbers and answers to examples cannot be averaged over seeds."""
    if frame.empty or "seed" not in frame:
        return frame
    return frame[frame["seed"] == frame.groupby("series")["seed"].transform("min")]


def mean_of_draws(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per seed, with values, intervals and replicates averaged over random draws."""
    if not rows["seed"].duplicated().any():
        return rows
    found = []
    for _, own in rows.groupby("seed", sort=False):
        mean = own.head(1).assign(**{name: float(own[name].mean()) for name in ("value", "low", "high")})
        drawn = [np.asarray(one, dtype=float) for one in own["replicates"]] if "replicates" in own else []
        if drawn and len({one.shape for one in drawn}) == 1:
            mean = mean.assign(replicates=[np.mean(drawn, axis=0)])
        found.append(mean)
    return pd.concat(found)


COLUMNS = ["series", "group", "layer", "value", "low", "high", "seeds", "count"]


def curves(frame: pd.DataFrame, layer: str = "layer", by: str = "seed") -> pd.DataFrame:
    """Mean and interval of each line at each layer.

    `group` is "trained", "untrained" (the control models) or "baseline" (the measure's own control, such as shuffled
    labels, averaged over models). `frame` needs the column `series` (see `ModelSelection.named`).
    """
    rows = []
    for series in dict.fromkeys(frame["series"]):
        for trained, group in ((True, "trained"), (False, "untrained")):
            for position, samples in samples_by_layer(frame, series, trained, layer, by).items():
                rows.append(_row(series, group, position, samples.estimate()))
    controls = frame.loc[frame["trained"]].dropna(subset="baseline")
    controls = controls if "seed" in controls else controls.assign(seed=0)
    for at in seed_bands(controls, [layer], "baseline").sort_values(layer).to_dict("records"):
        base = Estimate(value=at["value"], low=at["low"], high=at["high"], seeds=0, count=0)
        rows.append(_row("", "baseline", float(at[layer]), base))
    return pd.DataFrame(rows, columns=[*COLUMNS, "shown"])


def samples_by_layer(
    frame: pd.DataFrame, series: str, trained: bool = True, column: str = "layer", by: str = "seed"
) -> dict[float, Samples]:
    """The samples of the line `series` at each of its layers, in order."""
    own, positions = _of_line(frame, series, trained), frame[column].to_numpy(dtype=float, na_value=np.nan)
    found = np.unique(positions[own & ~np.isnan(positions)]).tolist()
    return {position: Samples.of(frame, by, own & (positions == position)) for position in found}


def samples_at(frame: pd.DataFrame, series: str, layer: int, trained: bool = True) -> Samples:
    """The samples of the line `series` at one layer."""
    among = _of_line(frame, series, trained) & (frame["layer"] == layer).to_numpy(dtype=bool, na_value=False)
    return Samples.of(frame, among=among)


def layers_of(frame: pd.DataFrame, series: str, column: str = "layer") -> list[int]:
    """The layers at which a line was measured, in order."""
    return sorted(int(layer) for layer in frame.loc[frame["series"] == series, column].unique())


def has_untrained(frame: pd.DataFrame) -> bool:
    return bool((~frame["trained"]).any())


def interval_note(table: pd.DataFrame, counted: str = "") -> str:
    """State what the bands of these curves show, and how many observations are behind each point.

    `counted` names the counted unit and what the intervals cover; the default is occurrences and sentences.
    """
    trained = table[table["group"] == "trained"]
    if trained.empty:
        return ""
    seeds = int(trained["seeds"].max())
    bands = band_words(seeds, counted or "sentences", known=bool(trained["low"].notna().any()))
    count = int(trained["count"].median())
    return f"{bands}; {count:,} {counted or 'occurrences'} behind each point." if count else f"{bands}."


def sample_note(frame: pd.DataFrame) -> str:
    """Note on how many of the requested tokens were sampled if the byte budget was too small; begins with a space."""
    if "tokens_kept" not in frame:
        return ""
    both = zip(frame["tokens_kept"].tolist(), frame["tokens_requested"].tolist(), strict=True)
    cut = sorted({(int(kept), int(requested)) for kept, requested in both if kept < requested})
    if not cut:
        return ""
    (kept, requested), least = cut[0], "as few as " if len(cut) > 1 else ""
    return f" The token sample kept {least}{kept:,} of {requested:,} tokens requested (analysis.sample_bytes)."


def _of_line(frame: pd.DataFrame, series: str, trained: bool) -> np.ndarray:
    same = (frame["series"] == series) & (frame["trained"] == trained)
    return same.to_numpy(dtype=bool, na_value=False)


def _row(series: str, group: str, layer: float, estimate: Estimate) -> dict:
    shown = estimate_text(estimate)
    row = {"series": series, "group": group, "layer": int(layer), **asdict(estimate)}
    return row | {"shown": shown.split(" (")[0] if group == "baseline" else shown}


# Sentences about how curves change with depth, generated from their numbers and intervals.


class Wording(NamedTuple):
    """How sentences word the change of one quantity."""

    unit: str
    rises: str = "gains"
    falls: str = "loses"
    what: str = ""  # after the first number: "of information about its input token"
    subject: Callable[[Series], str] = lambda series: series.label


class _Turn(NamedTuple):
    """A dip or peak at an inner layer that differs from both ends by more than the intervals."""

    layer: int
    dip: bool
    there: Estimate  # value at the first layer minus the value at the turn
    back: Estimate  # value at the last layer minus the value at the turn

    @property
    def seen(self) -> bool:
        """Whether both sides of the turn are visible in the picture: each is at least a tenth of the other."""
        sizes = sorted((abs(self.there.value), abs(self.back.value)))
        return sizes[0] > 0.1 * sizes[1]

    def __str__(self) -> str:
        there, back = size_text(self.there), size_text(self.back)
        if self.dip:
            return f"falls by {there} up to layer {self.layer} and recovers {back}"
        return f"rises by {there} up to layer {self.layer} and drops again by {back}"


class _Move(NamedTuple):
    layers: list[int]
    ends: Estimate  # last minus first
    turn: _Turn | None

    @property
    def flat(self) -> bool:
        """Whether there is neither a clear change from end to end nor a turn in between."""
        return len(self.layers) > 1 and self.ends.has_interval and self.ends.sign == 0 and not self.turn


def _move(frame: pd.DataFrame, key: str) -> _Move:
    layers = layers_of(frame, key)
    return _Move(layers, change(frame, key), _turning_point(frame, key, layers))


def trend_sentences(frame: pd.DataFrame, series: list[Series], wording: Wording) -> list[str]:
    """One sentence on the change of all lines from the first to the last layer, and one on the control.

    A dip or peak in between is named first. For example "From layer 0 to layer 6, causal LM loses 1.34 nats (1.19 to
    1.48) of …; translation loses 0.78 (…)."
    """
    shown = [line for line in series if line.key in set(frame["series"])]
    last = {line.key: layers_of(frame, line.key)[-1] for line in shown}
    same = len(set(last.values())) == 1
    depth = {line.key: "" if same else f" (its last layer is {last[line.key]})" for line in shown}
    stated, flat = [], []
    for line in shown:
        move = _move(frame, line.key)
        if move.flat:
            flat.append(f"{line.label} ({inline_text(move.ends, wording.unit)}){depth[line.key]}")
        else:
            stated.append(_clause(frame, line, move, wording, first=not stated) + depth[line.key])
    if flat:
        stated.append(f"there is no clear change for {listed(flat)}")
    end = f"layer {last[shown[0].key]}" if same else "the last layer"
    control = control_sentence([frame], shown, wording.unit)
    opening = f"From layer {layers_of(frame, shown[0].key)[0]} to {end}, "
    return [f"{opening}{'; '.join(stated)}."] + ([control] if control else [])


def trend_words(frame: pd.DataFrame, series: list[Series], noun: str, of: str = "in") -> str:
    """`trend_sentences` without numbers: "With depth, … falls in causal LM; falls and recovers in masked LM; …"."""
    groups: dict[str, list[str]] = {}
    for line in series:
        if line.key in set(frame["series"]) and len(layers_of(frame, line.key)) > 1:
            groups.setdefault(_course(frame, line.key), []).append(line.label)
    stated = [f"{course} {of} {listed(labels)}" for course, labels in groups.items()]
    return f"With depth, {noun} {'; '.join(stated)}." if stated else ""


def _course(frame: pd.DataFrame, key: str) -> str:
    _, ends, turn = _move(frame, key)
    if turn and turn.seen:
        return "falls, then recovers," if turn.dip else "rises, then drops again,"
    if not ends.has_interval or not ends.sign:
        return "does not clearly change"
    return "rises" if ends.sign > 0 else "falls"


def change(frame: pd.DataFrame, key: str, trained: bool = True) -> Estimate:
    """Difference between the last and the first layer of one line, paired by seed and sentence."""
    layers = layers_of(frame, key)
    return (samples_at(frame, key, layers[-1], trained) - samples_at(frame, key, layers[0], trained)).estimate()


def control_sentence(frames: Iterable[pd.DataFrame], series: list[Series], unit: str) -> str:
    """A sentence on how far untrained models change over the same layers; empty if there are none."""
    controls = [(frame, set(frame.loc[~frame["trained"], "series"])) for frame in frames]
    moves = [
        abs(change(frame, line.key, trained=False).value)
        for frame, keys in controls
        for line in series
        if line.key in keys
    ]
    moves = [move for move in moves if math.isfinite(move)]  # skip models without values at both ends
    if not moves:
        return ""
    suffix = f" {unit}" if unit else ""
    if max(moves) < 0.005:
        return f"Untrained models of the same shape move by less than 0.005{suffix}."
    return f"Untrained models of the same shape move by at most {number(max(moves), 2)}{suffix}."


def order_sentence(frame: pd.DataFrame, series: list[Series], lead: str) -> str:
    """The lines ordered by their value at the last layer, and which adjacent ones do not clearly differ."""
    shown = [line for line in series if line.key in set(frame["series"])]
    if len(shown) < 2:
        return ""
    last = {line.key: samples_at(frame, line.key, layers_of(frame, line.key)[-1]) for line in shown}
    ranked = sorted(shown, key=lambda line: -last[line.key].estimate().value)
    parts = [f"{line.label} {estimate_text(last[line.key].estimate())}" for line in ranked]
    pairs = [(a, b) for a, b in pairwise(ranked) if not (last[a.key] - last[b.key]).estimate().sign]
    unclear = [f"{a.label} and {b.label}" for a, b in pairs]
    text = f"{lead}: {listed(parts)}"
    return f"{text}; no clear difference between {', or '.join(unclear)}." if unclear else f"{text}."


def _clause(frame: pd.DataFrame, line: Series, move: _Move, wording: Wording, first: bool) -> str:
    unit, what = (wording.unit, f" {wording.what}" if wording.what else "") if first else ("", "")
    subject, (layers, ends, turn) = wording.subject(line), move
    if len(layers) == 1:
        return f"{subject} has {estimate_text(samples_at(frame, line.key, layers[0]).estimate(), unit)}{what}"
    if ends.sign or not ends.has_interval:
        verb = wording.rises if ends.value > 0 else wording.falls
        clause = f"{verb} {size_text(ends, unit)}{what}"
    else:
        clause = f"ends about where it began ({inline_text(ends, unit)})"
    return f"{subject} {turn}; overall it {clause}" if turn else f"{subject} {clause}"


def turn_sentence(frame: pd.DataFrame, series: list[Series], size: Callable[[Estimate], str] = size_text) -> str:
    """Where curves turn between their ends, for a text that otherwise names only the ends; empty if none visibly turns.

    For example "The curve of causal LM peaks at layer 4, 0.19 above its start; that of …".
    """
    stated = []
    for line in series:
        turn = _turning_point(frame, line.key, layers_of(frame, line.key))
        if turn and turn.seen:
            extreme, side = ("has its lowest point", "below") if turn.dip else ("peaks", "above")
            who = "that of" if stated else "The curve of"
            stated.append(f"{who} {line.label} {extreme} at layer {turn.layer}, {size(turn.there)} {side} its start")
    return f"{'; '.join(stated)}." if stated else ""


def _turning_point(frame: pd.DataFrame, key: str, layers: list[int]) -> _Turn | None:
    at = {layer: samples_at(frame, key, layer) for layer in layers}
    for sign in (1, -1):
        found = chosen(at, operator.neg if sign == 1 else operator.pos)
        if found is None or found.key in (layers[0], layers[-1]):
            continue
        there = found.at[found.key]
        before, after = (found.at[layers[0]] - there).estimate(), (found.at[layers[-1]] - there).estimate()
        if before.sign == sign and after.sign == sign:
            return _Turn(found.key, sign == 1, before, after)
    return None
