"""How large does the report of many models get?

    python experiments/campaigns/memory/report.py runs/analyze --models 60

Takes a run that `infoflow analyze` wrote of one or more models, and writes one of many: copies under other names, with
numbers that differ by about one percent, so that nothing compresses because it is equal. Pairs are all pairs. The size
of its report goes to `report.csv`.
"""

import argparse
import csv
import resource
import tempfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from infoflow import write_report
from infoflow.results import RunFolder

FILE = Path(__file__).with_name("report.csv")
COLUMNS = ("models", "tables", "report_MB", "seconds", "peak_MB")
_NAMES = (("model",), ("model_a", "model_b"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--models", type=int, default=60)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = many(RunFolder.existing(chosen.run), RunFolder(folder), chosen.models)
        size = write_report(run).stat().st_size
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = used.ru_utime + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        row = (chosen.models, len(run.tables), f"{size / 1e6:.2f}", f"{seconds:.0f}", f"{used.ru_maxrss / 1024:.0f}")
    print(dict(zip(COLUMNS, row, strict=True)))
    rows = [each for each in csv.reader(FILE.open()) if each[0] != str(row[0])] if FILE.exists() else [list(COLUMNS)]
    with FILE.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([*rows, row])


def many(run: RunFolder, target: RunFolder, num: int) -> RunFolder:
    """The run of copies."""
    manifest = run.read()
    known = [model["name"] for model in manifest["models"]]
    names = {f"model-{index:02}": known[index % len(known)] for index in range(num)}
    models = [{**manifest["models"][known.index(base)], "name": name} for name, base in names.items()]
    target.update(**{**manifest, "models": models, "failures": []})
    for table in run.tables:
        stored = run.tables.stored(table)
        frame = stored.frame[stored.schema.column_names]  # as written: reading adds keys
        columns = next((each for each in _NAMES if each[0] in frame), ())
        copies = list(_copies(frame, columns, names)) if columns and len(frame) else [frame]
        target.tables.write(pd.concat(copies, ignore_index=True), stored.schema)
    return target


def _copies(frame: pd.DataFrame, columns: tuple[str, ...], names: dict[str, str]) -> Iterator[pd.DataFrame]:
    whole = dict(iter(frame.groupby(list(columns))))
    for number, chosen in enumerate(combinations(names, len(columns))):
        base = whole.get(tuple(names[name] for name in chosen))
        rows = next(iter(whole.values())) if base is None else base
        yield _changed(rows, np.random.default_rng(number)).assign(**dict(zip(columns, chosen, strict=True)))


def _changed(rows: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    numbers = rows.select_dtypes("float64")
    factor = 1 + 0.01 * rng.standard_normal((len(numbers), 1))
    return rows.assign(**{name: numbers[name] * factor[:, 0] for name in numbers})


if __name__ == "__main__":
    main()
