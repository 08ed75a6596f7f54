"""All checks of a series of checkpoints, to run before interpreting it."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._series import Missing
from ._way_checks import (
    OFF,
    CheckRow,
    SeriesChecks,
    WeighedCheckpoint,
    alike,
    in_order,
    outliers,
    path_checks,
    ratio,
    row,
    without,
)

_DEVIATIONS, _NATS = 5.0, 0.1
_UNMOVED = 4  # updates within which weights may be equal: overflow skips the first ones
_LISTED = 3
_VOCABULARY = "vocab_size"


def check_series(series: Sequence[WeighedCheckpoint], missing: Sequence[Missing] = ()) -> SeriesChecks:
    """K1 to K12 for a training's checkpoints, in order of updates.

    Checkpoints with an error are left out of the following checks: an outlier affects the distances of its neighbours.
    """
    ordered = in_order(series)
    gaps = [row(one, "K12", "error" if one.lost else "warning", f"{one.name}: {one.why}") for one in missing]
    rows = content_checks(ordered, gaps)
    left = without(ordered, rows)
    rows += [*_twins(left), *_shards(left)]
    rows += outliers(without(ordered, rows))
    rows += path_checks(without(ordered, rows))
    rows += loss_checks(without(ordered, rows))
    return SeriesChecks(rows=tuple(rows), same_as=same_weights(ordered))


def loss_checks(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """Losses outside the decreasing fit of all others: above earlier ones or below later ones; largest deviation first.

    Reported deviations exceed .1 nats and 5 standard errors of the difference. Above: divergence, or a file of an
    earlier step; below: a file of a later step.
    """
    live = [one for one in series if math.isfinite(one.loss)]
    rows = []
    while len(live) > 3:
        off = [_off(live, index) for index in range(len(live))]
        worst = max(range(len(live)), key=lambda place: abs(off[place]))
        one, others = live[worst], [each for each in live if each is not live[worst]]
        spread = max((each.loss_error for each in live if math.isfinite(each.loss_error)), default=0.0) * math.sqrt(2)
        limit = max(_NATS, _DEVIATIONS * spread)
        if abs(off[worst]) <= limit:
            break
        expected = one.loss - off[worst]
        text = f"loss {one.loss:.2f} at {one.name}, {expected:.2f} expected"
        rows.append(row(one, "K6", "warning", text, value=off[worst], limit=limit))
        live = others
    return rows


def _off(live: Sequence[WeighedCheckpoint], place: int) -> float:
    """How far the loss lies outside the fit of the other losses on its two sides; 0 if it lies between them."""
    from sklearn.isotonic import IsotonicRegression  # slow to import

    others = [one.loss for at, one in enumerate(live) if at != place]
    fitted = IsotonicRegression(increasing=False).fit_transform(np.arange(len(others)), np.array(others))
    loss = live[place].loss
    above = loss - fitted[place - 1] if place > 0 else 0.0
    below = loss - fitted[place] if place < len(fitted) else 0.0
    return float(max(above, 0.0) + min(below, 0.0))


def same_weights(series: Sequence[WeighedCheckpoint]) -> dict[str, int]:
    """The update of the first checkpoint with the same weights, by the name of every later one."""
    return {one.name: group[0].update for group in _groups(series) for one in group[1:]}


def _groups(series: Sequence[WeighedCheckpoint]) -> list[list[WeighedCheckpoint]]:
    """Groups of at least two checkpoints with the same weights."""
    found: dict[str, list[WeighedCheckpoint]] = {}
    for one in series:
        key = one.weight.digest if one.weight else "/".join(file.sha256 for file in one.files)
        if key:
            found.setdefault(key, []).append(one)
    return [group for group in found.values() if len(group) > 1]


def _twins(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    rows = []
    for group in _groups(series):
        if all(one.update <= _UNMOVED for one in group):
            rows += [
                row(one, "K1", "note", f"{one.name} holds the weights of {group[0].name}", other=group[0])
                for one in group[1:]
            ]
            continue
        owner = _owner(group, series)
        for one in group:
            if one is not owner:
                other = owner or next(each for each in reversed(group) if each is not one)
                rows.append(row(one, "K1", "error", f"{one.name} holds the weights of {other.name}", other=other))
    return rows


def _shards(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K2: shards that belong to another checkpoint; a shard that most checkpoints share may be frozen."""
    whole = {one.name for group in _groups(series) for one in group}
    split = [one for one in series if len(one.files) > 1 and one.name not in whole]
    holders: dict[tuple[str, str], list[WeighedCheckpoint]] = {}
    for one in split:
        for file in one.files:
            holders.setdefault((file.name, file.sha256), []).append(one)
    rows = []
    for (name, _), group in holders.items():
        if len(group) < 2:
            continue
        if 2 * len(group) > len(split) > 2:
            rows.append(row(group[0], "K2", "note", f"{len(group)} checkpoints share {name}: is that part frozen?"))
            continue
        owner = _owner(group, series) or group[-1]
        rest = [one for one in group if one is not owner]
        rows += [row(one, "K2", "error", f"{name} of {one.name} is that of {owner.name}", other=owner) for one in rest]
    return rows


def _owner(group: Sequence[WeighedCheckpoint], series: Sequence[WeighedCheckpoint]) -> WeighedCheckpoint | None:
    """The owner of the weights: the checkpoint that lies best on the path between its neighbours, if any.

    Otherwise the last or the first checkpoint of the series, which has no neighbour on one side; otherwise the first of
    the group, if the group is a run of neighbours. None: no owner.
    """
    names = {one.name for one in group}
    measurable = alike(series)
    others = [one for one in measurable if one.name not in names]
    at_home = {}
    for one in (each for each in group if each in measurable):
        before = [each for each in others if each.update < one.update]
        after = [each for each in others if each.update > one.update]
        if before and after and (found := ratio(before[-1], one, after[0])) <= OFF:
            at_home[one.name] = found
    if at_home:
        best = min(at_home, key=lambda name: at_home[name])
        return next(one for one in group if one.name == best)
    for end in (series[-1], series[0]):
        if end.name in names:
            return end
    places = [index for index, one in enumerate(series) if one.name in names]
    return group[0] if places == list(range(places[0], places[0] + len(places))) else None


def content_checks(series: Sequence[WeighedCheckpoint], missing: Sequence[CheckRow] = ()) -> list[CheckRow]:
    """K7, K8, K9, K11, and unreadable checkpoints."""
    read = [one for one in series if one.weight is not None]
    faulty = [one for one in series if one.fault or not one.weight]
    unread = [row(one, "K9", "error", f"{one.name} cannot be read: {one.fault}") for one in faulty]
    return [*missing, *unread, *_numbers(read), *_configurations(read), *_keys(read), *_steps(series)]


def _numbers(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K7: tensors that are not finite, or constant (only a note at step 0, or if most checkpoints share it)."""
    rows, usual = [], Counter(name for one in series for name in _tensors(one).constant)
    for one in series:
        if names := _tensors(one).not_finite:
            text = f"{_listed(names)} of {one.name} {'is' if len(names) == 1 else 'are'} not finite: left out"
            rows.append(row(one, "K7", "error", text, value=len(names), limit=0))
        for name in _tensors(one).constant:
            own = 2 * usual[name] > len(series)
            if own and one is not series[0]:
                continue  # it is reported only once
            level = "note" if own or one.update == 0 else "error"
            text = f"all values of {name} in {one.name} are the same{'' if level == 'note' else ': left out'}"
            rows.append(row(one, "K7", level, text))
    return rows


def _configurations(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K8: a configuration entry or tokenizer that differs from most other checkpoints."""
    rows = []
    names = dict.fromkeys(name for one in series for name in _config(one))
    for name in names:
        values = {one.name: json.dumps(_config(one).get(name), sort_keys=True) for one in series}
        rows += _odd(series, values, name.replace("_", " ") if name != _VOCABULARY else "vocabulary")
    tokenizers = {one.name: one.weight.tokenizer for one in series if one.weight and one.weight.tokenizer}
    with_tokenizer = [one for one in series if one.name in tokenizers]
    usual = _usual(list(tokenizers.values()))
    for one in with_tokenizer:
        if tokenizers[one.name] != usual:
            other = next(each for each in with_tokenizer if tokenizers[each.name] == usual)
            text = f"the tokenizer of {one.name} is not that of {other.name}"
            rows.append(row(one, "K8", "error", text, other=other))
    return rows


def _odd(series: Sequence[WeighedCheckpoint], values: dict[str, str], name: str) -> list[CheckRow]:
    usual = _usual(list(values.values()))
    other = next(one for one in series if values[one.name] == usual)
    rows = []
    for one in series:
        if values[one.name] == usual:
            continue
        level = "note" if name == "vocabulary" and _padding_only(one, other) else "error"
        more = ": rows of padding" if level == "note" else ""
        text = f"{one.name}: {name} {_shown(values[one.name])} here, {_shown(usual)} at {other.name}{more}"
        rows.append(row(one, "K8", level, text, other=other))
    return rows


def _padding_only(one: WeighedCheckpoint, other: WeighedCheckpoint) -> bool:
    """Whether both vocabularies are known to hold the whole of the same tokenizer."""
    assert one.weight is not None
    assert other.weight is not None
    known = one.weight.tokenizer == other.weight.tokenizer and one.weight.tokens > 0
    smaller = min(int(_config(each).get(_VOCABULARY) or 0) for each in (one, other))
    return known and smaller >= one.weight.tokens


def _keys(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K9: tensors that most other checkpoints have, or lack. Missing ones are not initialised at random."""
    sets = {one.name: frozenset(_tensors(one).shapes) for one in series}
    usual = _usual(list(sets.values()))
    rows = []
    for one in series:
        absent, odd = sorted(usual - sets[one.name]), sorted(sets[one.name] - usual)
        parts = [f"{len(names)} tensor{'s' if len(names) > 1 else ''} {what}: {_listed(names)}"
                 for names, what in ((absent, "missing"), (odd, "unexpected")) if names]  # fmt: skip
        if parts:
            text = f"{one.name}: {'; '.join(parts)}"
            rows.append(row(one, "K9", "error", text, value=len(absent) + len(odd), limit=0))
    return rows


def _steps(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K11: saved at another step than in the name; or a step claimed twice."""
    rows = [
        row(one, "K11", "error", f"{one.name} was saved at step {one.saved_at:,}", value=one.saved_at, limit=one.named)
        for one in series
        if one.saved_at is not None and one.named is not None and not one.by_hand and one.saved_at != one.named
    ]
    wrong = {each.name for each in rows}
    claims: dict[int, list[WeighedCheckpoint]] = {}
    for one in series:
        if one.name not in wrong:
            claims.setdefault(one.update, []).append(one)
    for update, several in claims.items():
        if len(several) > 1:
            names = " and ".join(one.name for one in several)
            rows += [row(one, "K11", "error", f"step {update:,} is claimed by {names}") for one in several]
    return rows


def _usual(values: Sequence[Any]) -> Any:
    """The most frequent value; in ties, the first one."""
    return Counter(values).most_common(1)[0][0] if values else None


def _tensors(one: WeighedCheckpoint):
    assert one.weight is not None
    return one.weight.tensors


def _config(one: WeighedCheckpoint) -> dict[str, Any]:
    assert one.weight is not None
    return one.weight.config


def _shown(value: str) -> str:
    text = f"{int(value):,}" if value.isdecimal() else value
    return text if len(text) <= 60 else f"{text[:57]}..."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
