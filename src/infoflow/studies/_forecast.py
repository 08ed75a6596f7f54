"""The remaining time of a graph of stages, predicted from the stages that ended last and from running ones."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Protocol, runtime_checkable

_LAST = 5  # number of latest stages of a kind from which its pace is learned
_MINUTES = 120.0  # seconds over which the pace of a running stage and the number of concurrent stages are observed
_ENOUGH = 0.2  # share of a stage over which its pace is measured to predict its end
_KNOWN = 0.02  # share of a stage after which its own reports predict its end
_OVERDUE = 0.1  # a stage that takes longer than expected still needs this share of its time so far


@runtime_checkable  # the tests check argument types at run time
class Planned(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def needs(self) -> Sequence[str]: ...
    @property
    def cost(self) -> float: ...


class Forecast:
    """Predicts the remaining seconds of `stages`, which follow the stages they need, from costs and observed times."""

    def __init__(self, stages: Iterable[Planned], now: Callable[[], float] | None = None) -> None:
        self._stages = {stage.key: stage for stage in stages}
        self._now = now or (lambda: time.monotonic())
        self._ended: set[str] = set()
        self._paces: dict[str, deque[float]] = {}  # by kind: seconds per second of estimated cost, of the latest stages
        self._running: dict[str, deque[tuple[float, float]]] = {}  # when each running stage had reached which share
        self._at_a_time: deque[tuple[float, int]] = deque()

    def start(self, key: str) -> None:
        self._running[key] = deque([(self._now(), 0.0)])
        self._count()

    def advance(self, key: str, share: float) -> None:
        points = self._running.get(key)
        if points and share > points[-1][1]:
            points.append((self._now(), share))
            while len(points) > 3 and self._now() - points[2][0] > _MINUTES and share - points[2][1] > _ENOUGH:
                del points[1]  # the first point is the stage's start

    def end(self, key: str, done: bool = True) -> None:
        points = self._running.pop(key, None)
        self._ended.add(key)
        self._count()
        if done and points and (stage := self._stages[key]).cost > 0:
            seconds = self._now() - points[0][0]
            self._paces.setdefault(stage.kind, deque(maxlen=_LAST)).append(seconds / stage.cost)

    def has_seen(self, kind: str) -> bool:
        return kind in self._paces

    def _count(self) -> None:
        self._at_a_time.append((self._now(), len(self._running)))
        while len(self._at_a_time) > 1 and self._now() - self._at_a_time[1][0] > _MINUTES:
            self._at_a_time.popleft()

    def left(self) -> float | None:
        """Remaining seconds; None until something is known."""
        paces = self._kinds()
        if not paces:
            return None
        usual = median(paces.values())
        rest = {
            key: self._rest(key, stage.cost * paces.get(stage.kind, usual))
            for key, stage in self._stages.items()
            if key not in self._ended
        }
        chain = dict.fromkeys(rest, 0.0)  # seconds of the longest chain of stages that begins with each stage
        for key in reversed(rest):
            chain[key] += rest[key]
            for need in self._stages[key].needs:
                if need in chain:
                    chain[need] = max(chain[need], chain[key])
        at_a_time = max((number for _, number in self._at_a_time), default=1)
        return max(sum(rest.values()) / max(at_a_time, 1), *chain.values(), 0.0)

    def _kinds(self) -> dict[str, float]:
        """Observed seconds per second of estimated cost, for each kind of stage that was observed."""
        found = {kind: list(paces) for kind, paces in self._paces.items()}
        for key, points in self._running.items():
            stage, (began, _), (then, share) = self._stages[key], points[0], points[-1]
            if share >= _KNOWN and stage.cost > 0:
                whole = then - began + self._by_reports(points)
                found.setdefault(stage.kind, []).append(whole / stage.cost)
        return {kind: median(paces[-_LAST:]) for kind, paces in found.items()}

    def _rest(self, key: str, whole: float) -> float:
        """Seconds that a stage still needs if it takes `whole` seconds in total."""
        points = self._running.get(key)
        if points is None:
            return whole
        passed = self._now() - points[0][0]
        if points[-1][1] >= _KNOWN:
            return max(
                self._by_reports(points) - (self._now() - points[-1][0]), _OVERDUE * (self._now() - points[-1][0])
            )
        return max(whole - passed, _OVERDUE * passed)

    @staticmethod
    def _by_reports(points: Sequence[tuple[float, float]]) -> float:
        """Remaining seconds of a stage from its last report and its pace in the last minutes, if reports suffice."""
        last, share = points[-1]
        then, before = points[1 if len(points) > 2 and share - points[1][1] >= _KNOWN else 0]
        return (1.0 - share) * (last - then) / max(share - before, 1e-9)
