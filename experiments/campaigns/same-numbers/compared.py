"""What differs between two records, in words: which table and column, and by how much; which figure and sentence."""

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from recorded import as_text, timeless

SHOWN = 400  # characters of a sentence


def differences(before: Path, after: Path) -> int:
    """Print them; 1 where there are any. `before` and `after` are folders, or their JSON files alone."""
    old, new = (json.loads(_file(one).read_text(encoding="utf-8")) for one in (before, after))
    lines = list(_help(old["help"], new["help"]))
    for name in dict.fromkeys([*old["runs"], *new["runs"]]):
        if name not in old["runs"] or name not in new["runs"]:
            print(f"{name}: recorded {'before' if name in old['runs'] else 'after'} alone, not compared")
            continue
        found = _run(
            old["runs"][name], new["runs"][name], *(_file(one).parent / "runs" / name for one in (before, after))
        )
        lines += [f"{name}: {line}" for line in found]  # fmt: skip
    for line in lines:
        print(line)
    print(f"{len(lines)} differences" if lines else "no difference")
    return 1 if lines else 0


def _file(path: Path) -> Path:
    return path / "hashes.json" if path.is_dir() else path


def _help(old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    for command in dict.fromkeys([*old, *new]):
        texts = [one.get(command, "").splitlines() for one in (old, new)]
        if texts[0] != texts[1]:
            yield f"infoflow {command} --help{_changed(*texts)}"


def _run(old: dict[str, Any], new: dict[str, Any], *folders: Path) -> Iterator[str]:
    yield from (f"stage not done in the new code: {label}" for label in new["missing stages"])
    yield from _items("stage", old["stages"], new["stages"])
    yield from _items("weights of", old["weights"], new["weights"])
    if old["failures"] != new["failures"]:
        yield f"failures: {old['failures']} → {new['failures']}"
    for name, *sides in _both("table", old["tables"], new["tables"]):
        yield from _table(name, *sides, *folders) if len(sides) == 2 else [name]
    for kind in ("figures", "claims", "page"):
        for name, *sides in _both(kind.removesuffix("s"), old[kind], new[kind]):
            yield from _parts(f"{kind.removesuffix('s')} {name}", *sides) if len(sides) == 2 else [name]


def _both(kind: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple]:
    """What is in both and differs, as (name, before, after); what is in one of them, as one line."""
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            yield (f"{kind} {name} is GONE",)
        elif name not in old:
            yield (f"{kind} {name} is new",)
        elif old[name] != new[name]:
            yield name, old[name], new[name]
    if old.keys() == new.keys() and list(old) != list(new):
        yield (f"{kind}s stand in another order",)


def _items(kind: str, old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    for name, *sides in _both(kind, old, new):
        yield f"{kind} {name}: {sides[0]} → {sides[1]}" if sides else name


def _parts(what: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for part in dict.fromkeys([*old, *new]):
        texts = [one.get(part, "") for one in (old, new)]
        if texts[0] == texts[1]:
            continue
        if isinstance(texts[0], dict) and isinstance(texts[1], dict):
            yield f"{what}: {part} {_columns(*texts)}"
        elif part.endswith(("drawing", "markup")):
            yield f"{what}: another {part}"
        else:
            sentences = [text if isinstance(text, list) else text.splitlines() for text in texts]
            yield f"{what}: {part}{_changed(*sentences)}"


def _changed(old: list[str], new: list[str]) -> str:
    lines = [line for line in difflib.ndiff(old, new) if line[:1] in "-+"]
    return "".join(f"\n    {line[:SHOWN]}" for line in lines)


def _columns(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Which columns differ, are gone and are new."""
    kinds = {
        "DIFFERENT": [name for name in old if name in new and old[name] != new[name]],
        "GONE": [name for name in old if name not in new],
        "new": [name for name in new if name not in old],
    }
    return (
        "; ".join(f"{word} {', '.join(names)}" for word, names in kinds.items() if names) or "columns in another order"
    )


def _table(name: str, old: dict[str, Any], new: dict[str, Any], *folders: Path) -> Iterator[str]:
    for part in ("version", "rows", "description"):
        if old[part] != new[part]:
            yield f"table {name}: {part} {old[part]} → {new[part]}"
    if old["columns"] != new["columns"] or list(old["columns"]) != list(new["columns"]):
        yield f"table {name}: schema {_columns(old['columns'], new['columns'])}"
    if old["values"] != new["values"]:
        paths = [folder / "tables" / f"{name}.parquet" for folder in folders]
        sizes = _sizes(*paths) if all(path.exists() for path in paths) else ""
        yield f"table {name}: values {_columns(old['values'], new['values'])}{sizes}"


def _sizes(*paths: Path) -> str:
    """How many rows differ and by how much at most, where both tables lie beside their records."""
    old, new = (timeless(pd.read_parquet(path)).reset_index(drop=True) for path in paths)
    if len(old) != len(new):
        return f" ({len(old)} → {len(new)} rows)"
    found = []
    for name in [name for name in old if name in new]:
        other = np.array([as_text(a) != as_text(b) for a, b in zip(old[name], new[name], strict=True)], dtype=bool)
        if not other.any():
            continue
        size, first = "", f"{old[name][other].iloc[0]} → {new[name][other].iloc[0]}"
        if pd.api.types.is_float_dtype(old[name]) and pd.api.types.is_float_dtype(new[name]):
            size = f", at most {np.nanmax(np.abs(old[name][other] - new[name][other])):.3g}"
        found.append(f"\n    {name}: {other.sum()} of {len(old)} rows{size}; the first: {first[:SHOWN]}")
    return "".join(found)
