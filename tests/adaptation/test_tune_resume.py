"""A tuning that was killed, in the grid or in a later seed, ends with the weights of one that was not."""

import hashlib
import signal
from pathlib import Path

import pytest
from adaptation.tune_small import tuned
from support.forked import run_script

SCRIPT = Path(__file__).parent / "tune_small.py"


def _hashes(found) -> list[str]:
    files = [one.folder / "model.safetensors" for one in found.models]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


@pytest.mark.parametrize(("method", "patience"), [("full", 1), ("frozen", 0), ("mix", 0), ("lora", 0), ("decay", 1)])
def test_killed_is_uninterrupted(method: str, patience: int, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    deaths = ((1, 4), (2, 6), (3, 3))  # in the first rate's, in the second's, in that of the second seed
    for die in deaths if method == "full" else deaths[1:2]:
        assert run_script(SCRIPT, killed, method, f"--patience={patience}", "--die", *map(str, die)) == -signal.SIGKILL
    again, whole = (tuned(out, method, patience=patience) for out in (killed, tmp_path / "whole"))
    assert _hashes(again) == _hashes(whole)
    assert again.scores.equals(whole.scores)
    assert again.answers.equals(whole.answers)
