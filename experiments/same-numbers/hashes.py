"""Whether a change left every number as it was, to the bit: hashes of all columns of all tables of a run.

    python hashes.py RUN > before.json        # with the code before
    python hashes.py RUN --against before.json  # with the code after; exit code 1 where a number differs

Columns are compared one by one, with the rows in an order that their own key columns give, so that a new key column, a
renamed one (`RENAMED`) or another order of rows is told of but is no difference. Times are left out.
"""

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

TIMES = {"seconds", "cpu_seconds"}
NEW_KEYS = {f"{name}{side}" for name in ("variant", "architecture", "start", "update") for side in ("", "_a", "_b")}
RENAMED = {
    "allocation_steps": {"start": "begin"},
    "allocation_windows": {"start": "begin"},
    "learning_curves": {"update": "step"},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--against", type=Path)
    arguments = parser.parse_args()
    found = hashes(arguments.run)
    if arguments.against is None:
        print(json.dumps(found, indent=1))
        return 0
    return compare(json.loads(arguments.against.read_text()), found)


def hashes(run: Path) -> dict[str, dict[str, str]]:
    """Hash of each column of each table, and of the weights of each model."""
    tables = {path.stem: _columns(path) for path in sorted((run / "tables").glob("*.parquet"))}
    weights = {
        path.parent.relative_to(run / "models").as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((run / "models").rglob("model.safetensors"))
    }
    return {**tables, "models": weights}


def _columns(path: Path) -> dict[str, str]:
    frame = pq.read_table(path).to_pandas()
    if "unit" in frame and "statistic" in frame:  # of a recording: its time is a row
        frame = frame[frame["unit"] != "s"]
    if "variant" in frame or "variant_a" in frame:
        frame = frame.drop(columns=[name for name in frame if name in NEW_KEYS])
    else:
        frame = frame.rename(columns=RENAMED.get(path.stem, {}))
    if {"method", "draw", "point"} <= set(frame):  # earlier versions packed the scope of pruning into the method
        frame = frame.drop(columns=[name for name in frame if name == "scope"])
        frame["method"] = [re.sub("-(all|decoder-self|decoder-cross)$", "", name) for name in frame["method"]]
    for side in ("", "_a", "_b"):  # earlier versions packed the variant into the objective
        if f"objective{side}" in frame:
            frame[f"objective{side}"] = [str(name).partition("+")[0] for name in frame[f"objective{side}"]]
    texts = {name: [_text(value) for value in frame[name]] for name in frame if name not in TIMES}
    order = sorted(range(len(frame)), key=lambda row: [texts[name][row] for name in sorted(texts)])
    return {
        name: hashlib.sha256("\n".join(values[row] for row in order).encode()).hexdigest()[:16]
        for name, values in texts.items()
    }


def _text(value: object) -> str:
    """A value to the last bit."""
    if isinstance(value, (list, np.ndarray)):
        return np.asarray(value, dtype=np.float64).tobytes().hex()
    if isinstance(value, float):
        return np.float64(value).tobytes().hex()
    return "" if value is None or value is pd.NA else str(value)


def compare(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> int:
    differing = 0
    for table in sorted({*before, *after}):
        old, new = before.get(table, {}), after.get(table, {})
        changed = [name for name in old if name in new and old[name] != new[name]]
        gone, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
        differing += len(changed) + len(gone)
        told = [f"{len(old)} columns", *(f"{word} {', '.join(names)}" for word, names in
                (("DIFFERENT", changed), ("GONE", gone), ("new", added)) if names)]  # fmt: skip
        print(f"{table}: {'; '.join(told)}")
    print(f"{differing} differences in {len(before)} tables")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
