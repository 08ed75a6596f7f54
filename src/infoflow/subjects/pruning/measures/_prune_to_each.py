"""Prune a model to several numbers of heads: one ranking, a folder for each, and the curve of the costs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions
from infoflow.foundation import current_display
from infoflow.heads import Head
from infoflow.models import Model, check_free

from ._curve import PRUNED_HEADS, PRUNING, curve_row, frames, head_rows, scope_of
from ._greedy import greedy_pruning
from ._head_gates import gated_heads
from ._prune_to import Pruned, Recovery, Start, check_masked

_RANDOM_ORDERS = 3


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PrunedToEach:
    """A model pruned to several numbers of heads, and the cost compared with random choices."""

    points: tuple[Pruned, ...]  # most heads first
    folder: Path  # contains a folder keep-NUMBER for each point
    pruning: pd.DataFrame  # see `PRUNING`: every point, and three random choices of the same size
    pruned_heads: pd.DataFrame  # see `PRUNED_HEADS`
    report: Path | None = None  # the page with the curve, if written

    @property
    def quality(self) -> pd.DataFrame:
        """keep, and the columns of `Pruned.quality`: one row for each point and metric."""
        return _joined([one.quality for one in self.points], self.keep)

    @property
    def speed(self) -> pd.DataFrame:
        """keep, and the columns of `Pruned.speed`: the model before and after, for each point."""
        return _joined([one.speed for one in self.points], self.keep)

    @property
    def keep(self) -> list[int]:
        return [sum(each.num_heads for each in one.model.anatomy.attentions()) for one in self.points]

    @property
    def random_loss(self) -> list[float]:
        """Mean loss (or cosine) at each point for the same number of random heads."""
        metric = self.quality["metric"].iloc[0]
        rows = self.pruning[(self.pruning["method"] == "random") & (self.pruning["metric"] == metric)]
        means = rows.groupby("kept")["value"].mean()
        return [float(means[number]) if number in means.index else float("nan") for number in self.keep]


def prune_to_each(
    model: Model,
    corpus: Corpus,
    keep: Sequence[int],
    out: Path,
    *,
    by: str = "importance",
    kinds: Sequence[str] | None = None,
    sentences: int | None = None,
    seed: int = 0,
    options: PassOptions | None = None,
    masked: Path | None = None,
    recover: Recovery | None = None,
) -> PrunedToEach:
    """Run `prune_to` for each number of heads, the largest first; heads are ranked once, so smaller sets are nested.

    The control is three random orders, or only one if models are trained further, since the models of each random
    order are then trained, too.

    Args:
        model: A loaded model with its tokenizer.
        corpus: Sentences; see `prune_to`.
        keep: Numbers of heads of the whole model to keep.
        out: Folder; each smaller model is in `out/keep-NUMBER`.
        by: Ranking of the heads.
        kinds: Kinds of attention whose heads may be removed; default: all.
        sentences: Maximum number to read, chosen by hash.
        seed: Seeds the random order, if used.
        options: How the corpus is run.
        masked: Folder for copies with zeros, `masked/keep-NUMBER`.
        recover: Updates of further training of each smaller model, and of each random choice.
    """
    numbers = sorted(set(keep), reverse=True)
    for number in numbers:
        check_free(_folder(out, number))
        if masked is not None:
            check_masked(_folder(masked, number), _folder(out, number))
    orders = range(_RANDOM_ORDERS if recover is None else 1)
    draws = [draw for draw in orders if by != "random" or draw != seed]
    with current_display().progress(f"Pruning {model.name}", 1 + len(numbers) + len(draws)) as progress:
        start = Start.of(
            model, corpus, numbers, by=by, kinds=kinds, sentences=sentences, seed=seed, options=options, recover=recover
        )
        progress.advance(1)
        points = []
        for number in numbers:
            points.append(start.pruned(number, _folder(out, number), masked and _folder(masked, number)))
            progress.advance(1)
        scored = [(point.removed, point.scores) for point in points]
        tables = [_rows(start, scored, numbers, seed if by == "random" else 0)]
        for draw in draws:
            tables.append(_random(start, numbers, draw))
            progress.advance(1)
    joined = {name: pd.concat([each[name] for each in tables], ignore_index=True) for name in tables[0]}
    return PrunedToEach(
        points=tuple(points), folder=out, pruning=joined[PRUNING.name], pruned_heads=joined[PRUNED_HEADS.name]
    )


def _folder(out: Path, number: int) -> Path:
    return out / f"keep-{number}"


def _random(start: Start, numbers: Sequence[int], draw: int) -> dict[str, pd.DataFrame]:
    if start.recover is not None:
        random = start.at_random(draw)
        scored = [(random.removed[number], random.scored(number)[2]) for number in numbers]
        return _rows(random, scored, numbers, draw)
    return greedy_pruning(
        start.model,
        start.ranked_on,
        start.scored_on,
        by="random",
        keep=[number - _fixed(start) for number in numbers],
        kinds=start.kinds,
        metric=start.metric,
        draw=draw,
        options=start.options,
    )


def _fixed(start: Start) -> int:
    return start.total - len(gated_heads(start.model, start.kinds))


def _rows(start: Start, scored: Sequence[tuple[Iterable[Head], Sequence[dict]]], numbers: Sequence[int], draw: int):
    """Both tables of the points, from the removed heads and the scores of each point."""
    rows, heads, fixed = [], [], _fixed(start)
    for index, ((gone, scores), number) in enumerate(zip(scored, numbers, strict=True)):
        keys = {"method": start.by, "scope": scope_of(start.kinds), "draw": draw, "point": index}
        removed = frozenset(gone)
        for before, after in zip(start.before, scores, strict=True):
            full = float(before["scores"][0])
            rows.append(curve_row(start.model, {**keys, "setting": float(number - fixed)}, removed, after, full))
        heads += head_rows(start.model, keys, removed)
    return frames(rows, heads)


def _joined(frames: Sequence[pd.DataFrame], keep: Sequence[int]) -> pd.DataFrame:
    parts = [frame.assign(keep=number) for frame, number in zip(frames, keep, strict=True)]
    joined = pd.concat(parts, ignore_index=True)
    return joined[["keep", *(name for name in joined if name != "keep")]]
