"""What scripts that collect a finished study have in common: means over seeds, verdicts, figures, small CSV files."""

import argparse
import io
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from infoflow.foundation import atomic_write, interval_over_seeds
from infoflow.report import write_figures
from infoflow.studies import Run

CLAIM = ["id", "verdict", "effect", "low", "high", "unit", "threshold", "covers", "seeds", "reason"]
DIGITS = "%.4g"


def asked(text: str | None, to: Path | None = None) -> tuple[Run, Path]:
    """The run and the folder for its tables that the command names; the folder is `to` where it names none."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--to", type=Path, default=to, required=to is None)
    options = parser.parse_args()
    run = Run.open(options.run)
    options.to.mkdir(parents=True, exist_ok=True)
    return run, options.to


def over_seeds(
    rows: pd.DataFrame, by: Sequence[str], shares: Sequence[str] = (), bounds: tuple[float, float] = (0.0, 1.0)
) -> pd.DataFrame:
    """Mean over seeds and its interval for each of the values of `by`; of one seed the interval of its table.

    Args:
        rows: One for each seed, with `value`, `low`, `high`, `baseline`, `count` and, where there are, `replicates`.
        by: Columns that tell apart what is averaged.
        shares: Metrics that lie within `bounds`, where intervals are cut.
    """
    found = []
    for values, own in rows.dropna(subset="value").groupby(list(by), sort=True):
        row = dict(zip(by, values if isinstance(values, tuple) else (values,), strict=True))
        low, high = _interval(own)
        if row.get("metric", "p1") in shares:
            low, high = max(low, bounds[0]), min(high, bounds[1])
        baseline = own["baseline"].astype(float).mean()
        row |= {"value": own["value"].mean(), "low": low, "high": high, "baseline": baseline}
        found.append(row | {"seeds": own["seed"].nunique(), "count": int(own["count"].median())})
    return pd.DataFrame(found)


def averaged(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The mean of the rows that agree in `by`, such as those of several seeds of tuning, and of their replicates."""
    means = []
    for values, own in rows.dropna(subset="value").groupby(list(by), sort=False):
        row = dict(zip(by, values if isinstance(values, tuple) else (values,), strict=True))
        row |= {name: float(own[name].astype(float).mean()) for name in ("value", "low", "high", "baseline")}
        draws = _draws(own)
        means.append(row | {"count": int(own["count"].median()), "replicates": [] if draws is None else draws.mean(0)})
    return pd.DataFrame(means)


def claims(run: Run, room: str) -> pd.DataFrame:
    """The verdicts on a room's claims, by number."""
    rows = pd.DataFrame(run.findings)
    rows = rows[rows["id"].str.startswith(f"{room}:")]
    number = rows["id"].str.extract(r"(\d+)$")[0].astype(int)
    return rows.assign(number=number).sort_values("number")[[name for name in CLAIM if name in rows]]


def copy_figures(run: Run, names: Sequence[str], folder: Path) -> None:
    """The report's figures of these names, as SVG; of one with a choice of statistics each."""
    with tempfile.TemporaryDirectory() as temporary:
        paths = [path for path in write_figures(run.folder, temporary, ("svg",)) if path.stem.startswith(tuple(names))]
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            shutil.copyfile(path, folder / path.name)
    print(f"figures: {len(paths)}")


def write(frame: pd.DataFrame, path: Path) -> None:
    """As CSV with four significant digits; a table without rows is left out."""
    if len(frame):
        frame.to_csv(path, index=False, float_format=DIGITS)
        print(f"{path.name}: {len(frame)} rows")


def put(rows: pd.DataFrame, path: Path, own: Sequence[str], order: Sequence[str] = ()) -> None:
    """Put rows into a CSV file in place of those that agree with one of them in `own`; the others stay.

    What was measured in an earlier sitting, whose runs are gone, is so kept; interrupted, the file is as it was.

    Args:
        order: Columns to sort the file by; without them the rows come last.
    """
    before = pd.read_csv(path) if path.exists() else rows.iloc[:0]
    keys = pd.read_csv(io.StringIO(rows[list(own)].to_csv(index=False, float_format=DIGITS)))  # as the file has them
    replaced = pd.MultiIndex.from_frame(before[list(own)]).isin(pd.MultiIndex.from_frame(keys))
    table = pd.concat([before[~replaced], rows], ignore_index=True)
    with atomic_write(path) as temporary:
        (table.sort_values(list(order)) if order else table).to_csv(temporary, index=False, float_format=DIGITS)


def short(value: float, places: int = 2) -> str:
    """For README.md: `.25`, `–` where nothing was measured."""
    return "–" if np.isnan(value) else f"{value:.{places}f}".replace("0.", ".")


def _interval(own: pd.DataFrame) -> tuple[float, float]:
    if len(own) == 1:
        return float(own["low"].iloc[0]), float(own["high"].iloc[0])
    seeds = [(int(seed),) for seed in own["seed"]]
    alone = list(zip(own["low"].astype(float), own["high"].astype(float), strict=True))
    ends = interval_over_seeds(seeds, own["value"].to_numpy(float), _draws(own), alone)
    return float(ends.low), float(ends.high)


def _draws(own: pd.DataFrame) -> np.ndarray | None:
    """The rows' replicates, where all have equally many; else none are paired."""
    draws = [np.asarray(one, dtype=float) for one in own["replicates"]] if "replicates" in own else []
    paired = len(draws) == len(own) and len({len(one) for one in draws}) == 1 and len(draws[0]) > 0
    return np.stack(draws) if paired else None
