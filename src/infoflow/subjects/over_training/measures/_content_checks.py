"""Checks of each checkpoint against the others of its series: K7 to K9, and K11."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ._check_rows import CheckRow, WeighedCheckpoint, row

_LISTED = 3
_VOCABULARY = "vocab_size"


def content_checks(series: Sequence[WeighedCheckpoint], missing: Sequence[CheckRow] = ()) -> list[CheckRow]:
    """K7, K8, K9, K11, and unreadable checkpoints."""
    read = [one for one in series if one.weight is not None]
    unread = [
        row(one, "K9", "error", f"{one.name} cannot be read: {one.fault}")
        for one in series
        if one.fault or not one.weight
    ]
    return [*missing, *unread, *_numbers(read), *_configurations(read), *_keys(read), *_steps(series)]


def _numbers(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K7: not finite; or a constant, unless most checkpoints or the initialisation have it too."""
    rows, usual = [], Counter(name for one in series for name in _tensors(one).constant)
    for one in series:
        if names := _tensors(one).not_finite:
            text = f"{_listed(names)} of {one.name} {'is' if len(names) == 1 else 'are'} not finite: left out"
            rows.append(row(one, "K7", "error", text, value=len(names), limit=0))
        for name in _tensors(one).constant:
            own = 2 * usual[name] > len(series)
            if own and one is not series[0]:
                continue  # reported once
            level = "note" if own or one.update == 0 else "error"
            text = f"all values of {name} in {one.name} are the same{'' if level == 'note' else ': left out'}"
            rows.append(row(one, "K7", level, text))
    return rows


def _configurations(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K8: a configuration entry or tokenizer that differs from most others."""
    if not series:
        return []
    rows = []
    names = dict.fromkeys(name for one in series for name in _config(one))
    for name in names:
        values = {one.name: json.dumps(_config(one).get(name), sort_keys=True) for one in series}
        rows += _odd(series, values, name.replace("_", " ") if name != _VOCABULARY else "vocabulary")
    tokenizers = {one.name: one.weight.tokenizer for one in series if one.weight and one.weight.tokenizer}
    beside = [one for one in series if one.name in tokenizers]
    usual = _usual(list(tokenizers.values()))
    for one in beside:
        if tokenizers[one.name] != usual:
            other = next(each for each in beside if tokenizers[each.name] == usual)
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
    """K9: tensors that most others have, or lack. Missing ones are not initialised at random."""
    if not series:
        return []
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
        row(
            one,
            "K11",
            "error",
            f"{one.name} was saved at step {one.saved_at:,}",
            value=one.saved_at,
            limit=one.named,
        )
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
    """The most frequent value; the first one wins ties."""
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
