"""Sentences about how curves change with depth, generated from their numbers and intervals."""

import math
import operator
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

import pandas as pd

from ._curves import layers_of, samples_at
from ._numbers import estimate_text, listed, number, size_text
from ._samples import Estimate, Samples, chosen
from ._series import Series


class Wording(NamedTuple):
    """Wording for one quantity."""

    unit: str
    rises: str = "gains"
    falls: str = "loses"
    what: str = ""  # after the first number: "of information about its input token"
    subject: Callable[[Series], str] = lambda series: series.label


class _Turn(NamedTuple):
    """A dip or peak at an inner layer, beyond both ends by more than the intervals."""

    layer: int
    dip: bool
    there: Estimate  # distance from the first layer
    back: Estimate  # distance from the last layer

    @property
    def seen(self) -> bool:
        """Whether both parts are visible in the picture: neither is below a tenth of the other."""
        sizes = sorted((abs(self.there.value), abs(self.back.value)))
        return sizes[0] > 0.1 * sizes[1]

    def __str__(self) -> str:
        there, back = size_text(self.there), size_text(self.back)
        if self.dip:
            return f"falls by {there} up to layer {self.layer} and recovers {back}"
        return f"rises by {there} up to layer {self.layer} and drops again by {back}"


class _Move(NamedTuple):
    """How one line changes from its first layer to its last."""

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
    """One sentence on each line's change from first to last layer, a dip or peak inside first; one on the control.

    For example "From layer 0 to layer 6, causal LM loses 1.34 nats (1.19 to 1.48) of …; translation loses 0.78 (…)."
    """
    shown = [line for line in series if line.key in set(frame["series"])]
    last = {line.key: layers_of(frame, line.key)[-1] for line in shown}
    same = len(set(last.values())) == 1
    depth = {line.key: "" if same else f" (its last layer is {last[line.key]})" for line in shown}
    told, flat = [], []
    for line in shown:
        move = _move(frame, line.key)
        if move.flat:
            flat.append(f"{line.label} ({_signed(move.ends, wording.unit)}){depth[line.key]}")
        else:
            told.append(_clause(frame, line, move, wording, first=not told) + depth[line.key])
    if flat:
        told.append(f"there is no clear change for {listed(flat)}")
    end = f"layer {last[shown[0].key]}" if same else "the last layer"
    control = control_sentence([frame], shown, wording.unit)
    opening = f"From layer {layers_of(frame, shown[0].key)[0]} to {end}, "
    return [f"{opening}{'; '.join(told)}."] + ([control] if control else [])


def trend_words(frame: pd.DataFrame, series: list[Series], noun: str, of: str = "in") -> str:
    """The same without numbers: "With depth, … falls in causal LM; falls and recovers in masked LM; …"."""
    groups: dict[str, list[str]] = {}
    for line in series:
        if line.key in set(frame["series"]) and len(layers_of(frame, line.key)) > 1:
            groups.setdefault(_course(frame, line.key), []).append(line.label)
    told = [f"{course} {of} {listed(labels)}" for course, labels in groups.items()]
    return f"With depth, {noun} {'; '.join(told)}." if told else ""


def _course(frame: pd.DataFrame, key: str) -> str:
    """The course of one line as a verb."""
    _, ends, turn = _move(frame, key)
    if turn and turn.seen:
        return "falls, then recovers," if turn.dip else "rises, then drops again,"
    if not ends.has_interval or not ends.sign:
        return "does not clearly change"
    return "rises" if ends.sign > 0 else "falls"


def change(frame: pd.DataFrame, key: str, trained: bool = True) -> Estimate:
    """Last minus first layer of one line, paired by seed and sentence."""
    layers = layers_of(frame, key)
    return (samples_at(frame, key, layers[-1], trained) - samples_at(frame, key, layers[0], trained)).estimate()


def control_sentence(frames: Iterable[pd.DataFrame], series: list[Series], unit: str) -> str:
    """How far the untrained models change over the same layers; empty without any."""
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
    unclear = [f"{a.label} and {b.label}" for a, b in pairwise(ranked) if _indistinct(last[a.key], last[b.key])]
    text = f"{lead}: {listed(parts)}"
    return f"{text}; no clear difference between {', or '.join(unclear)}." if unclear else f"{text}."


def _indistinct(a: Samples, b: Samples) -> bool:
    return (a - b).estimate().sign == 0


def _signed(estimate: Estimate, unit: str) -> str:
    """`−0.02 nats, −0.09 to 0.05`, for use inside brackets."""
    return estimate_text(estimate, unit).replace(" (", ", ").removesuffix(")")


def _clause(frame: pd.DataFrame, line: Series, move: _Move, wording: Wording, first: bool) -> str:
    unit, what = (wording.unit, f" {wording.what}" if wording.what else "") if first else ("", "")
    subject, (layers, ends, turn) = wording.subject(line), move
    if len(layers) == 1:
        return f"{subject} has {estimate_text(samples_at(frame, line.key, layers[0]).estimate(), unit)}{what}"
    if ends.sign or not ends.has_interval:
        verb = wording.rises if ends.value > 0 else wording.falls
        clause = f"{verb} {size_text(ends, unit)}{what}"
    else:
        clause = f"ends about where it began ({_signed(ends, unit)})"
    return f"{subject} {turn}; overall it {clause}" if turn else f"{subject} {clause}"


def turn_sentence(frame: pd.DataFrame, series: list[Series], size: Callable[[Estimate], str] = size_text) -> str:
    """Where curves turn inside, for a sentence that otherwise names their ends alone; empty if none visibly does.

    For example "The curve of causal LM peaks at layer 4, 0.19 above its start; that of …".
    """
    told = []
    for line in series:
        turn = _turning_point(frame, line.key, layers_of(frame, line.key))
        if turn and turn.seen:
            extreme, side = ("has its lowest point", "below") if turn.dip else ("peaks", "above")
            who = "that of" if told else "The curve of"
            told.append(f"{who} {line.label} {extreme} at layer {turn.layer}, {size(turn.there)} {side} its start")
    return f"{'; '.join(told)}." if told else ""


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
