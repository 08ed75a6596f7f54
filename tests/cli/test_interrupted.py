"""A command that was interrupted or killed at any of its files ends, given again, as if it had not been."""

import signal
from itertools import cycle
from pathlib import Path

import pandas as pd
import pytest
from support.forked import run_script

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("interrupted_command.py")
PLAN = """
objectives = ["masked-lm"]
[corpus]
name = "grammar:300"
vocabulary = 150
validation = 0.1
test = 0.3
[model]
width = 16
layers = 1
heads = 2
feedforward = 32
[training]
updates = 4
batch_tokens = 256
save_every = 2
device = "cpu"
[analysis]
tables = ["task_scores", "mutual_information"]
occurrences = 200
clusters = 10
untrained = false
[probing]
tasks = ["length"]
[alignment]
on = false
"""
TEXT = ["--corpus=grammar:80", "--sentences=40"]
COMMANDS = {
    "study": ["study", "plan.toml", "--processes=1"],
    "train": ["train", "masked-lm", "--plan=plan.toml"],
    "analyze": ["analyze", "MODEL", *TEXT, "--only=head_confidence"],
    "tune": ["tune", "MODEL", "--train=task.tsv", "--dev=task.tsv", "--test=task.tsv", "--rates=1e-3", "--epochs=1"],
    "tune-frozen": ["tune", "MODEL", "--train=task.tsv", "--dev=task.tsv", "--test=task.tsv", "--method=frozen"],
    "prune": ["prune", "MODEL", "--keep=2,3", *TEXT],
    "index": ["data", "index", "facts:16", "--benchmark=facts:16", "--trec=run/found.txt"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_was_interrupted_ends_as_if_it_had_not_been(command, tmp_path, request):
    model = str(request.getfixturevalue("masked_lm")) if "MODEL" in COMMANDS[command] else ""

    def call(name: str, signal_name: str = "SIGINT", number: int = 0) -> tuple[int, Path]:
        folder = tmp_path / name
        (folder / "temporary").mkdir(parents=True, exist_ok=True)
        (folder / "plan.toml").write_text(PLAN)
        (folder / "task.tsv").write_text("".join(f"x\ta{i} b\ny\tc d{i}\n" for i in range(20)))
        words = [model if word == "MODEL" else word for word in COMMANDS[command]]
        code = run_script(SCRIPT, signal_name, str(number), folder, *words, "--out=run", "--log=plain")
        return code, folder

    code, whole = call("whole")
    assert code == 0, (whole / "stderr").read_text()
    published = (whole / "published").read_text().splitlines()
    for k, name in _stops(len(published), everywhere=command == "study"):
        code, again = call(f"{name}-{k}", name, k)
        others = (again / "published").read_text().splitlines()
        assert code == (-signal.SIGKILL if name == "SIGKILL" else 130), (k, published, others)
        if name == "SIGINT":
            assert _left(again) == []
        code, _ = call(again.name)
        said = (again / "stderr").read_text()
        assert code == 0, said
        assert "Traceback" not in said
        assert _left(again) == []
        assert _files(again) == _files(whole)
        _compare(again / "run" / "tables", whole / "run" / "tables")


def _stops(number: int, everywhere: bool) -> set[tuple[int, str]]:
    """At which of its files it is stopped, and how: a study by each signal at two of them, others by each at one."""
    files = sorted({1, number // 2, number - 1, number} - {0})
    return {*zip(files if everywhere else files[1::2], cycle(("SIGKILL", "SIGINT")), strict=False)}


def _left(folder: Path) -> list[str]:
    """What is half-written, and temporary files."""
    return [path.name for path in (*folder.rglob("*.partial"), *(folder / "temporary").iterdir())]


def _files(folder: Path) -> set[str]:
    """All but what a run keeps for the next call."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {str(path) for path in paths if "work" not in path.parts}


def _compare(folder: Path, other: Path) -> None:
    """All tables have the same numbers, times but."""
    for path in folder.glob("*.parquet"):
        found, expected = (pd.read_parquet(each / path.name) for each in (folder, other))
        times = [name for name in found if "second" in name or name in ("speed-up", "milliseconds")]
        pd.testing.assert_frame_equal(found.drop(columns=times), expected.drop(columns=times))
