"""Files of a tuning: settings and rates of all seeds, scores and answers of one seed."""

import json
import math
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, atomic_write, digest, file_digest, read_object

from ._tuned import TASK_FILE

KEY_FILE, RESULTS_FILE = "tuning.json", "results.json"
Rows = list[dict[str, Any]]
_FAULTS = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def write_key(home: Path, key: dict[str, Any], rates: dict[str, float]) -> None:
    """Write a method's folder: the settings that all seeds share, and the dev metric of each learning rate."""
    with atomic_write(home / KEY_FILE) as temporary:
        temporary.write_text(json.dumps({"key": key, "rates": rates}, indent=2) + "\n", encoding="utf-8")


def read_key(home: Path) -> dict[str, Any] | None:
    """The content written by `write_key`, `{"key": ..., "rates": ...}`; None if nothing exists yet.

    Raises:
        UserError: It is damaged.
    """
    path = home / KEY_FILE
    if not path.exists():
        return None
    try:
        saved = read_object(path)
        rates = {str(float(rate)): float(value) for rate, value in saved["rates"].items()}
        if isinstance(saved["key"], dict) and all(math.isfinite(value) for value in rates.values()):
            return {"key": saved["key"], "rates": rates}
    except _FAULTS:
        pass
    raise UserError(
        f"{path} is damaged, so the settings of these models are unknown.\n"
        f"Choose another output folder, or remove {home} to tune again."
    )


def write_results(folder: Path, scores: Rows, answers: Rows) -> None:
    """Write scores and answers next to a seed's task.json, with a digest over all three."""
    rows = json.loads(json.dumps({"scores": scores, "answers": answers}))
    (folder / RESULTS_FILE).write_text(json.dumps({**rows, "digest": _digest(rows, folder)}), encoding="utf-8")


def read_results(folder: Path) -> dict[str, Rows]:
    """Scores and answers, as written by `write_results`.

    Raises:
        UserError: They, or their task.json, are missing or changed.
    """
    path = folder / RESULTS_FILE
    try:
        found = read_object(path)
        rows = {name: [dict(row) for row in found[name]] for name in ("scores", "answers")}
        wanted = _digest(rows, folder)
        if found.get("digest", wanted) == wanted:  # tunings before digests have none
            return rows
    except _FAULTS:
        pass
    raise UserError(
        f"{path}, or {TASK_FILE} in the same folder, is damaged or missing.\n"
        f"Remove {folder}, and run the command again: only this seed is trained again."
    )


def _digest(rows: dict[str, Rows], folder: Path) -> str:
    return digest([rows["scores"], rows["answers"], file_digest(folder / TASK_FILE)])
