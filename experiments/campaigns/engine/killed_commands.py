"""Commands that are killed at random moments, given again, and compared with undisturbed ones, bit by bit.

    python experiments/campaigns/engine/killed_commands.py --trials 12

What is killed, in turn: `infoflow tune`, `infoflow data index` over an older index, `infoflow probe`, and a study with
`[retrieval]`. Each is killed with -9, with all that it started, at two moments: once in its first call, once in its
second, both drawn from the time that an undisturbed one took. Then it is given until it ends. Right: exit code 0;
tables, weights, passages and index equal to those of the undisturbed one; no half-written file and no process left.
What an interrupted index finds in between may be the old one, the new one, or a message with exit code 2: `between`.
"""

import argparse
import csv
import hashlib
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[3]
MARK = "INFOFLOW_KILLED_COMMAND"
COLUMNS = (
    "trial",
    "command",
    "killed_at_s",
    "calls",
    "exit_code",
    "between",
    "equal",
    "left_files",
    "left_processes",
    "seconds",
)
_MODEL = "model/models/masked-lm/seed-0"
_TINY = """\
objectives = ["masked-lm"]
[corpus]
name = "grammar:400"
vocabulary = 150
[model]
width = 16
layers = 2
heads = 2
feedforward = 32
positions = 64
[training]
updates = 6
batch_tokens = 256
save_every = 2
[analysis]
tables = ["task_scores"]
"""
_RETRIEVAL = """
[retrieval]
on = true
entities = 12
relations = 4
objects = 4
exposures = [1, 2]
updates = 12
queries = 12
warm_updates = 8
arms = ["closed-book", "retrieve-bm25", "retrieve-learned"]
measures = ["scores"]
"""
_LOG = "--log=plain"
COMMANDS = {
    "tune": [
        "tune", _MODEL, "--train=labels.tsv", "--task=length", "--rates=1e-3,1e-2", "--seeds=0,1", "--epochs=8",
        "--set=tune.save_every=2", "--out=out", _LOG,
    ],
    "data index": ["data", "index", "facts:200", "--out=out", _LOG],
    "probe": ["probe", _MODEL, "--task=upos", "--corpus=grammar:300", "--only=probe_scores", "--out=out", _LOG],
    "retrieval study": ["study", "retrieval.toml", "--out=out", "--processes=2", _LOG],
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("killed_commands.csv"))
    chosen = parser.parse_args()
    rows = list(csv.DictReader(chosen.out.open())) if chosen.out.exists() else []
    done = {int(row["trial"]) for row in rows}
    with tempfile.TemporaryDirectory() as folder, chosen.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not rows:
            writer.writeheader()
        home = Path(folder)
        _prepare(home)
        whole = {}
        for number in (number for number in range(chosen.trials) if number not in done):
            name = list(COMMANDS)[number % len(COMMANDS)]
            if name not in whole:
                whole[name] = _undisturbed(home, name)
            row = _trial(home, number, name, *whole[name])
            writer.writerow(row)
            file.flush()
            print(row, flush=True)


def _prepare(home: Path) -> None:
    nouns, ends = ("cat", "dog", "bird", "house"), ("", " and runs", " and runs and sings")
    rows = [f"the {noun} sees the {other}{end}" for noun in nouns for other in nouns for end in ends]
    (home / "labels.tsv").write_text("".join(f"{'long' if len(row) > 24 else 'short'}\t{row}\n" for row in rows))
    (home / "tiny.toml").write_text(_TINY)
    (home / "retrieval.toml").write_text(_TINY + _RETRIEVAL)
    assert _command(home, ["study", "tiny.toml", "--out=model", "--processes=1", _LOG], "x").wait() == 0


def _command(home: Path, words: list[str], mark: str) -> subprocess.Popen:
    undrawn = str(ROOT / "experiments" / "campaigns" / "bad-inputs" / "undrawn")
    path = os.pathsep.join(filter(None, [undrawn, str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, MARK: mark, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with (home / "log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "infoflow", *words], cwd=home, env=environment, stdout=log, stderr=log,
        )  # fmt: skip


def _begin(home: Path, name: str) -> None:
    """An empty folder; before an index lies an older one of other passages."""
    subprocess.run(["rm", "-rf", str(home / "out")], check=True)
    if name == "data index":
        assert _command(home, ["data", "index", "facts:50", "--out=out", _LOG], "x").wait() == 0


def _undisturbed(home: Path, name: str) -> tuple[dict[str, str], float]:
    _begin(home, name)
    begun = time.monotonic()
    code = _command(home, COMMANDS[name], "x").wait()
    assert code == 0, (home / "log").read_text()[-3000:]
    return _contents(home / "out"), time.monotonic() - begun


def _trial(home: Path, number: int, name: str, expected: dict[str, str], seconds: float) -> dict:
    rng, mark = random.Random(f"{number}-{name}"), secrets.token_hex(8)
    _begin(home, name)
    begun, moments, between, code, calls = time.monotonic(), [], "", None, 0
    while code != 0 and calls < 5:
        calls += 1
        process = _command(home, COMMANDS[name], mark)
        if calls <= 2:
            moments.append(round(rng.uniform(0.3, 1.0) * seconds, 2))  # before, only imports run
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=moments[-1])
            for one in {process.pid, *_marked(mark)}:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            process.wait()
            if name == "data index":
                asked = _command(home, ["data", "index", "out", "--ask=the birthplace of ada lund", _LOG], "x").wait()
                between += {0: "found ", 2: "refused "}.get(asked, f"exit {asked} ")
        code = process.wait()
    time.sleep(1)
    left = [path for path in (home / "out").rglob(".*") if "partial" in path.name]
    return {
        "trial": number, "command": name, "killed_at_s": " ".join(map(str, moments)), "calls": calls, "exit_code": code,
        "between": between.strip(), "equal": _contents(home / "out") == expected, "left_files": len(left),
        "left_processes": len(_marked(mark)), "seconds": round(time.monotonic() - begun, 1),
    }  # fmt: skip


def _marked(mark: str) -> list[int]:
    """Processes that bear the mark, wherever they hang by now."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            ended = (path / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if not ended and f"{MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


def _contents(out: Path) -> dict[str, str]:
    """Hashes of tables without their times, of weights, and of passages and index."""
    found = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file()):
        name = str(path.relative_to(out))
        if path.suffix == ".parquet" and path.parent.name == "tables":
            frame = pq.read_table(path).to_pandas()
            frame = frame.drop(columns=[column for column in frame if "seconds" in column])
            found[name] = hashlib.sha256(frame.to_json(double_precision=15).encode()).hexdigest()
        elif path.suffix in (".safetensors", ".arrow", ".npy") and ".work" not in name and "work/" not in name:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


if __name__ == "__main__":
    main()
