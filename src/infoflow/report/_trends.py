"""Sentences about how a curve moves with depth, made from its numbers and their intervals."""

import pandas as pd

from ._curves import layers_of, samples_at
from ._language import Cast, Series
from ._numbers import estimate_text, listed, number, size_text
from ._samples import Estimate, Samples

Verbs = tuple[str, str]  # what a line does when it rises, and when it falls


def trend_sentences(frame: pd.DataFrame, cast: Cast, unit: str, verbs: Verbs, what: str) -> list[str]:
    """For every line: its change from first to last layer, and a dip or peak in between; then the control."""
    present = [series for series in cast.series if series.key in set(frame["series"])]
    sentences = [_line_sentence(frame, series, unit, verbs, what, index == 0) for index, series in enumerate(present)]
    control = _control_sentence(frame, present, unit)
    return sentences + ([control] if control else [])


def change(frame: pd.DataFrame, series: str, trained: bool = True) -> Estimate:
    """Last minus first layer, paired by seed and sentence."""
    layers = layers_of(frame, series)
    return (samples_at(frame, series, layers[-1], trained) - samples_at(frame, series, layers[0], trained)).estimate()


def _line_sentence(frame: pd.DataFrame, series: Series, unit: str, verbs: Verbs, what: str, first: bool) -> str:
    layers = layers_of(frame, series.key)
    ends = change(frame, series.key)
    where = f"from layer {layers[0]} to layer {layers[-1]}" if first else "over the same layers"
    start, end = (samples_at(frame, series.key, layer).estimate() for layer in (layers[0], layers[-1]))
    head = f"{_capital(series.label)} "
    if len(layers) == 1:
        return f"{head}has {estimate_text(start, unit)} of {what} at layer {layers[0]}."
    if ends.sign or not ends.has_interval:
        text = f"{head}{verbs[0] if ends.value > 0 else verbs[1]} {size_text(ends, unit)} of {what} {where}"
    else:
        text = f"{head}shows no clear change in {what} {where}: {estimate_text(ends, unit)}"
    turn = _turning_point(frame, series.key, layers, unit)
    return f"{text}, {turn}." if turn else f"{text}{_from_to(start, end, unit)}."


def _turning_point(frame: pd.DataFrame, series: str, layers: list[int], unit: str) -> str:
    """A dip or peak at an inner layer that differs from both ends by more than their intervals allow."""
    at: dict[int, Samples] = {layer: samples_at(frame, series, layer) for layer in layers}
    means = {layer: at[layer].estimate().value for layer in layers}
    for layer, word, sign in (
        (min(layers, key=means.__getitem__), "falls", 1),
        (max(layers, key=means.__getitem__), "rises", -1),
    ):
        if layer in (layers[0], layers[-1]):
            continue
        before, after = (at[layers[0]] - at[layer]).estimate(), (at[layers[-1]] - at[layer]).estimate()
        if before.sign == sign and after.sign == sign:
            back = "recovers" if sign == 1 else "drops"
            return (
                f"but not steadily: it {word} by {size_text(before, unit)} up to layer {layer}, "
                f"then {back} by {size_text(after, unit)}"
            )
    return ""


def _from_to(start: Estimate, end: Estimate, unit: str) -> str:
    return f", from {number(start.value, 2)} to {number(end.value, 2)}{' ' + unit if unit else ''}"


def _control_sentence(frame: pd.DataFrame, present: list[Series], unit: str) -> str:
    untrained = frame[~frame["trained"]]
    names = [series for series in present if (untrained["series"] == series.key).any()]
    moves = [
        change(frame, series.key, trained=False).value for series in names if len(layers_of(untrained, series.key)) > 1
    ]
    if not moves:
        return ""
    low, high = min(moves), max(moves)
    span = number(low, 2) if number(low, 2) == number(high, 2) else f"between {number(low, 2)} and {number(high, 2)}"
    suffix = f" {unit}" if unit else ""
    return f"Untrained models of the same shape change by {span}{suffix}."


def order_sentence(frame: pd.DataFrame, cast: Cast, unit: str, lead: str) -> str:
    """The lines ordered by their value at the last layer, and whether neighbours in that order are told apart."""
    present = [series for series in cast.series if series.key in set(frame["series"])]
    if len(present) < 2:
        return ""
    last = {series.key: samples_at(frame, series.key, layers_of(frame, series.key)[-1]) for series in present}
    ranked = sorted(present, key=lambda series: -last[series.key].estimate().value)
    parts = [f"{series.label} {estimate_text(last[series.key].estimate())}" for series in ranked]
    unclear = [
        f"{a.label} and {b.label}"
        for a, b in zip(ranked, ranked[1:], strict=False)
        if (last[a.key] - last[b.key]).estimate().sign == 0
    ]
    text = f"{lead}: {listed(parts)}{' ' + unit if unit else ''}"
    return f"{text}; {listed(unclear)} cannot be told apart." if unclear else f"{text}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
