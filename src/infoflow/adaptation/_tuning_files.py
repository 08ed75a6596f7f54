"""What a tuning keeps beside its models: settings and rates of all seeds, scores and answers of one."""

import json
import math
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, atomic_write, digest, file_digest

from ._tuned import TASK_FILE

KEY_FILE, RESULTS_FILE = "tuning.json", "results.json"
Rows = list[dict[str, Any]]
_FAULTS = (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def write_key(home: Path, key: dict[str, Any], rates: dict[str, float]) -> None:
    """Leave in a method's folder what all seeds depend on, and what each learning rate reached on dev."""
    with atomic_write(home / KEY_FILE) as temporary:
        temporary.write_text(json.dumps({"key": key, "rates": rates}, indent=2) + "\n", encoding="utf-8")


def read_key(home: Path) -> dict[str, Any] | None:
    """What `write_key` left, `{"key": ..., "rates": ...}`; None where nothing was begun.

    Raises:
        UserError: It is damaged.
    """
    path = home / KEY_FILE
    if not path.exists():
        return None
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        rates = {str(float(rate)): float(value) for rate, value in saved["rates"].items()}
        if isinstance(saved["key"], dict) and all(math.isfinite(value) for value in rates.values()):
            return {"key": saved["key"], "rates": rates}
    except _FAULTS:
        pass
    raise UserError(
        f"{path} is damaged: which settings these models were tuned with can no longer be told.\n"
        f"Give another output folder, or remove {home} to tune again."
    )


def write_results(folder: Path, scores: Rows, answers: Rows) -> None:
    """Leave scores and answers beside a seed's task.json, with a digest over all three."""
    rows = json.loads(json.dumps({"scores": scores, "answers": answers}))
    (folder / RESULTS_FILE).write_text(json.dumps({**rows, "digest": _digest(rows, folder)}), encoding="utf-8")


def read_results(folder: Path) -> dict[str, Rows]:
    """Scores and answers, as `write_results` left them.

    Raises:
        UserError: They, or task.json beside them, are missing or not what was written.
    """
    path = folder / RESULTS_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rows = {name: [dict(row) for row in found[name]] for name in ("scores", "answers")}
        wanted = _digest(rows, folder)
        if found.get("digest", wanted) == wanted:  # of tunings before there were digests there is none
            return rows
    except _FAULTS:
        pass
    raise UserError(
        f"{path}, or {TASK_FILE} beside it, is damaged or missing.\n"
        f"Remove {folder}, and give the command again: this seed alone is trained again."
    )


def _digest(rows: dict[str, Rows], folder: Path) -> str:
    return digest([rows["scores"], rows["answers"], file_digest(folder / TASK_FILE)])
