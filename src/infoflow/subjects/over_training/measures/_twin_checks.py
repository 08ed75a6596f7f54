"""Checks for duplicate weights: K1 and K2."""

from collections.abc import Sequence

from ._check_rows import CheckRow, WeighedCheckpoint, row
from ._way_checks import OFF, alike, ratio

_UNMOVED = 4  # updates within which weights may be equal: overflow skips the first ones


def twin_checks(series: Sequence[WeighedCheckpoint]) -> list[CheckRow]:
    """K1, then K2 for the rest: every checkpoint with the same weights or shard, except their owner."""
    return [*_twins(series), *_shards(series)]


def same_weights(series: Sequence[WeighedCheckpoint]) -> dict[str, int]:
    """The update of the first checkpoint with the same weights, by the name of every later one."""
    return {one.name: group[0].update for group in _groups(series) for one in group[1:]}


def _groups(series: Sequence[WeighedCheckpoint]) -> list[list[WeighedCheckpoint]]:
    """Groups of at least two with the same weights."""
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
    """A shard from another checkpoint in one whose other shards are its own; one that all share is frozen."""
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
        rows += [
            row(one, "K2", "error", f"{name} of {one.name} is that of {owner.name}", other=owner)
            for one in group
            if one is not owner
        ]
    return rows


def _owner(group: Sequence[WeighedCheckpoint], series: Sequence[WeighedCheckpoint]) -> WeighedCheckpoint | None:
    """The owner of the weights: the checkpoint that lies best on the path between its neighbours, if any.

    Else the last or the first checkpoint of a series, which has no neighbour on one side; else, among neighbours, the
    first one. None: no owner.
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
    places = [place for place, one in enumerate(series) if one.name in names]
    return group[0] if places == list(range(places[0], places[0] + len(places))) else None
