"""Does the 95 % interval of every measure's table cover? Draws of sentences from a large pool, each measured by itself.

    for objective in causal-lm masked-lm translation; do
        infoflow train $objective --plan experiments/validation/coverage/plan.toml --out runs/coverage/$objective
    done
    python experiments/validation/coverage/measures.py draw    # resumable: a folder per model and size, a file per draw
    python experiments/validation/coverage/measures.py report  # writes measures.csv beside this file

`draw --models causal-lm --sizes 300 --draws 50` does a part. README.md says what was seen.
"""

import argparse
import copy
import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import infoflow
from infoflow import heads, lenses, probing, representations
from infoflow.flow import AbstractMeasure, Activations, Measure, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, block_of, interval, make_display, use_display

HERE = Path(__file__).parent
POOL = "grammar:24000"
MODELS = ("causal-lm", "masked-lm", "translation")
NUMBERS = ("value", "low", "high", "baseline", "count")
WHOLE = "pool"  # in place of a draw's number


def measures(scale: int = 1) -> list[AbstractMeasure]:
    """What `infoflow study` measures, sized for draws of some hundred sentences of a model of width 32.

    `scale` enlarges every sample: the pool's values come from larger ones than a draw's.
    """
    edges = (1, 6, 21, 101)
    return [
        representations.MutualInformation(occurrences=10_000 * scale, types=100, clusters=50, clusterings=1),
        representations.LayerDistance(occurrences=1500 * scale),
        representations.ChangeByFrequency(per_bin=400 * scale, edges=edges),
        representations.InfluenceByFrequency(per_bin=400 * scale, edges=edges),
        representations.IdentityNeighbours(k=10, occurrences=1000 * scale),
        representations.PositionNeighbours(k=10),
        representations.ContextNeighbours(k=10),
        representations.TagNeighbours(k=10),
        representations.WordGeometry(occurrences=1500 * scale, spaces=("raw",)),
        representations.IntraSentence(),
        representations.IntrinsicDimension(occurrences=1000 * scale),
        representations.DistanceDistribution(occurrences=2000 * scale),
        lenses.Lens(tuned=False, evaluated=1000 * scale),
        heads.Confidence(),
        heads.Entropy(),
        heads.PositionalScores(offsets=(-1, 1)),
        heads.SurfaceStatistics(),
        heads.RelationScores(),
        heads.RareTokenScores(top=100),
        heads.PatternScores(),
        heads.HeadDistance(sentences=24_000),
        heads.HeadLayerDistance(sentences=24_000),
        heads.SpecialGradient(sentences=60 * scale),
        probing.AttentionProbe(sentences=60 * scale, epochs=1),
        heads.Relevance(sentences=15 * scale),
        heads.Importance(sentences=400 * scale),
        heads.Ablation(sentences=48 * scale),
        heads.PruningCurve(sentences=24 * scale),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["time", "draw", "report"])
    parser.add_argument("--runs", type=Path, default=Path("runs/coverage"))
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--sizes", nargs="+", type=int, default=[300, 1000])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--only", nargs="+", default=[], help="tables that are measured; all by default")
    parser.add_argument("--leave-out", nargs="+", default=[], help="tables that are not measured")
    parser.add_argument("--sentences", type=int, default=0, help="of the pool; all by default")
    parser.add_argument("--name", default="draws", help="folder of the draws")
    options = parser.parse_args()
    with use_display(make_display("silent")):
        {"time": time_measures, "draw": draw_all, "report": report}[options.do](options)


def draw_all(options: argparse.Namespace) -> None:
    """Measure the pool and every draw that is not on disk yet."""
    pool = infoflow.load_corpus(POOL)
    if options.sentences:
        pool = pool.select(np.arange(options.sentences))
    for name in options.models:
        model = infoflow.load_model(str(options.runs / name / "models" / name / "seed-0"))
        once = [PerSentence(each) for each in chosen(options, measures()) if isinstance(each, Measure)]
        others = [each for each in chosen(options, measures()) if not isinstance(each, Measure)]
        whole = folder_of(options, name, 0) / f"{WHOLE}.npz"
        scaled = [each for each in chosen(options, measures(scale=10)) if not isinstance(each, Measure)]
        # A batch is at most as many sentences as there are blocks: see `PerSentence`.
        tables = [
            infoflow.measure(model, pool, batch, settings)
            for batch, settings in ((once, PassOptions(tokens_per_batch=3 * NUM_BLOCKS)), (scaled, None))
            if batch and (batch is once or not whole.exists())
        ]
        if not whole.exists():
            save(whole, tables)
        for draw, size in ((draw, size) for draw in range(options.draws) for size in options.sizes):
            path = folder_of(options, name, size) / f"{draw:03}.npz"
            if not path.exists():
                rows = np.random.default_rng([draw, size]).choice(len(pool), size, replace=False)
                part = pool.select(rows)
                found = [{each.name: each.drawn(part.content_ids)} for each in KEPT]
                if others:
                    # Ranks of the pool: a frequency bin is the same tokens in every draw.
                    found.append(infoflow.measure(model, part, others, ranks_from=pool))
                save(path, found)


KEPT: list["PerSentence"] = []
"""The copies of `PerSentence` that have read the pool: a pass works on copies of what it is given."""


class PerSentence(Measure):
    """A streaming measure whose sums are kept sentence by sentence, so that any draw's table follows without a pass."""

    def __init__(self, inner: Measure) -> None:
        self._inner, self._ids, self._states = inner, [], []
        self.needs, self.table = inner.needs, inner.table

    def prepare(self, reader: Reader) -> None:
        self._inner.prepare(reader)
        KEPT[:] = [each for each in KEPT if each.name != self.name] + [self]

    def update(self, activations: Activations) -> None:
        """Every sentence of the batch in a block of its own."""
        num = len(activations.sentence_ids)
        alone = copy.deepcopy(self._inner)
        alone.update(dataclasses.replace(activations, blocks=torch.arange(num)))
        self._ids.append(activations.sentence_ids)
        self._states.append({key: sums[:num] for key, sums in alone.state_dict().items()})

    def merge(self, other: "PerSentence") -> None:
        raise NotImplementedError

    def state_dict(self) -> dict[str, np.ndarray]:
        return {}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        raise NotImplementedError

    def result(self) -> pd.DataFrame:
        return self.drawn(np.concatenate(self._ids))

    def drawn(self, ids: np.ndarray) -> pd.DataFrame:
        """The table of the sentences `ids`."""
        place = {int(one): index for index, one in enumerate(np.concatenate(self._ids))}
        rows = np.array([place[one] for one in ids.tolist() if one in place])
        blocks, sums = block_of(np.concatenate(self._ids)[rows]), {}
        for key, values in self._arrays():
            sums[key] = np.zeros((NUM_BLOCKS, *values.shape[1:]))
            np.add.at(sums[key], blocks, values[rows])
        measure = copy.deepcopy(self._inner)
        measure.load_state_dict(sums)
        return measure.result()

    def _arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        if len(self._states) > 1:
            keys = list(dict.fromkeys(key for state in self._states for key in state))
            like = {key: next(state[key] for state in self._states if key in state) for key in keys}
            sizes = [len(ids) for ids in self._ids]
            self._states = [
                {
                    key: np.concatenate(
                        [
                            state.get(key, np.zeros((size, *like[key].shape[1:])))
                            for state, size in zip(self._states, sizes, strict=True)
                        ]
                    )
                    for key in keys
                }
            ]
        return iter(self._states[0].items())


def chosen(options: argparse.Namespace, all_measures: Sequence[AbstractMeasure]) -> list[AbstractMeasure]:
    wanted = [each for each in all_measures if each.name not in options.leave_out]
    return [each for each in wanted if not options.only or each.name in options.only]


def folder_of(options: argparse.Namespace, model: str, size: int) -> Path:
    return options.runs / options.name / (f"{model}-{size}" if size else model)


def save(path: Path, found: list[dict[str, pd.DataFrame]]) -> None:
    """All tables' rows with an interval: keys as one string, numbers, replicates."""
    named = [(name, table) for tables in found for name, table in tables.items()]
    parts = [rows_of(name, table) for name, table in named if "replicates" in table and len(table)]
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    partial = path.with_suffix(".partial.npz")
    np.savez_compressed(partial, **arrays)
    partial.rename(path)


def rows_of(name: str, table: pd.DataFrame) -> dict[str, np.ndarray]:
    keys = table[list(table.columns[: list(table.columns).index("value")])].astype(str)
    replicates = [np.asarray(each, dtype=np.float32) for each in table["replicates"]]
    same = [each if len(each) == 200 else np.full(200, np.nan, dtype=np.float32) for each in replicates]
    return {
        "key": np.array([" ".join([name, *row]) for row in keys.itertuples(index=False)]),
        "numbers": table[list(NUMBERS)].to_numpy(dtype=np.float64),
        "replicates": np.stack(same),
    }


def time_measures(options: argparse.Namespace) -> None:
    pool = infoflow.load_corpus(POOL)
    for name in options.models:
        model = infoflow.load_model(str(options.runs / name / "models" / name / "seed-0"))
        for each in measures():
            start = time.perf_counter()
            tables = infoflow.measure(model, pool.select(np.arange(options.sizes[0])), [each])
            rows = {n: len(t) for n, t in tables.items()}
            print(f"{name} {each.name} {time.perf_counter() - start:.2f} s {rows}", flush=True)


def report(options: argparse.Namespace) -> None:
    """Coverage of every table's intervals over the draws on disk, as measures.csv."""
    rows: list[dict] = []
    for folder in sorted(path for path in (options.runs / options.name).iterdir() if "-" in path.name):
        model, _, size = folder.name.rpartition("-")
        if not size.isdigit():
            continue
        draws = Draws.of(sorted(folder.glob("[0-9]*.npz")))
        pool = Draws.of([folder.parent / model / f"{WHOLE}.npz"])
        keep = {"model": model, "sentences": int(size), "draws": draws.num}
        by_what: dict[str, list[dict]] = {}
        for key in draws.numbers:
            if (found := draws.coverage(key, pool)) is not None:
                by_what.setdefault(what_of(key), []).append(found)
        rows += [{"table": what, **keep, **summary(found)} for what, found in sorted(by_what.items())]
    frame = pd.DataFrame(rows)
    path = HERE / "measures.csv"
    if path.exists():
        same = ["table", "model", "sentences"]
        frame = pd.concat([pd.read_csv(path), frame]).drop_duplicates(same, keep="last").sort_values(same)
    frame.to_csv(path, index=False, float_format="%.3f")


def what_of(key: str) -> str:
    """The table, and the quantity where a table has several."""
    table, *keys = key.split(" ")
    quantity = {"geometry": 2, "lens": 2}.get(table)
    return table if quantity is None else f"{table}: {keys[quantity]}"


def summary(found: list[dict]) -> dict:
    """Means over the rows of a table, and its worst row."""
    worst = min(found, key=lambda row: row["coverage"])
    means = {name: float(np.mean([row[name] for row in found])) for name in ("coverage", "pool", "percentile", "width")}
    return {"rows": len(found), **means, "worst": worst["coverage"], "worst_row": worst["key"]}


@dataclasses.dataclass(frozen=True)
class Draws:
    """Every row's numbers and replicates, draw by draw."""

    num: int
    numbers: dict[str, list[np.ndarray]]
    replicates: dict[str, list[np.ndarray]]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> "Draws":
        numbers: dict[str, list[np.ndarray]] = {}
        replicates: dict[str, list[np.ndarray]] = {}
        for path in paths:
            with np.load(path, allow_pickle=False) as held:
                for key, row, own in zip(held["key"], held["numbers"], held["replicates"], strict=True):
                    numbers.setdefault(str(key), []).append(row)
                    replicates.setdefault(str(key), []).append(own)
        return cls(len(paths), numbers, replicates)

    def coverage(self, key: str, pool: "Draws") -> dict | None:
        """None for a row that few draws have, or that does not vary.

        coverage: of the mean over the draws; pool: of the pool's value; percentile: what percentiles of the replicates
        would have covered; width: of the interval, in standard deviations of the value over draws.
        """
        value, low, high = np.stack(self.numbers[key]).T[:3]
        if len(value) < 0.9 * self.num or not np.isfinite(value).all() or value.std() < 1e-9 * abs(value.mean()):
            return None
        truth = pool.numbers[key][0][0] if key in pool.numbers else np.nan
        ends = np.array([interval(own) for own in self.replicates[key]])
        return {
            "key": key,
            "coverage": float(((low <= value.mean()) & (value.mean() <= high)).mean()),
            "pool": float(((low <= truth) & (truth <= high)).mean()),
            "percentile": float(((ends[:, 0] <= value.mean()) & (value.mean() <= ends[:, 1])).mean()),
            "width": float(np.nanmean(high - low) / value.std(ddof=1)),
        }


if __name__ == "__main__":
    main()
