"""The program itself: help, version, exit codes, interruptions, resuming."""

import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.processes import marked_environment, processes_with, wait_until

from infoflow.foundation import version

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COMMANDS = [
    "study",
    "train",
    "analyze",
    "compare",
    "heads",
    "fill-in",
    "bert-score",
    "tune",
    "prune",
    "findings",
    "report",
    "merge",
    "data",
    "doctor",
]
INFOFLOW = [sys.executable, "-c", "from infoflow.cli import main; main()"]
HEAVY = ("torch", "transformers", "datasets", "pandas", "sklearn", "numpy", "altair")


def test_every_help_is_shown_without_a_heavy_import(infoflow):
    """In one process, since each import of torch would show in the last one."""
    script = f"""
import sys
from infoflow.cli import run
for command in {[[], *([name] for name in COMMANDS), ["data", "get"], ["data", "describe"]]}:
    assert run([*command, "--help"]) == 0
assert run(["--version"]) == 0
print("loaded:", sorted(set({HEAVY}) & set(sys.modules)))
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-2:] == [f"infoflow {_version()}", "loaded: ['numpy']"]  # numpy: --version alone


def test_help_names_every_command(infoflow):
    out = infoflow("--help").out
    assert [name for name in COMMANDS if re.search(rf"\b{name}\b", out)] == COMMANDS


def _version() -> str:
    return version("infoflow")


def test_a_word_too_many_is_named(infoflow):
    answer = infoflow("analyze", "model", "a word")
    assert answer.code == 2
    assert answer.err.startswith("Unexpected argument 'a word': leave it out, or write its option before it.")


def test_exit_codes_of_the_program(tmp_path):
    """Of a mistake, and of a reader that closes the pipe, which is none."""
    bad = subprocess.run([*INFOFLOW, "data", "get", "nothing"], capture_output=True, text=True, cwd=tmp_path)
    assert bad.returncode == 2
    assert not bad.stdout
    assert bad.stderr.startswith("No corpus nothing")
    assert "Traceback" not in bad.stderr
    piped = f"set -o pipefail; {shlex.join([*INFOFLOW, 'list', 'corpora'])} | true"
    closed = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, cwd=tmp_path)
    assert (closed.returncode, closed.stderr) == (0, "")


_IMPATIENT = """
import sys

class Impatient:
    def find_spec(self, name, *_):
        if name == "infoflow.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Impatient())
from infoflow.__main__ import main
main()
"""


def test_interrupted_while_it_is_imported_it_says_so():
    ended = subprocess.run([sys.executable, "-c", _IMPATIENT], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "Interrupted before anything had begun.\n")


def _start(plan: Path, out: Path, *options: str) -> subprocess.Popen:
    command = [*INFOFLOW, "study", str(plan), f"--out={out}", "--log=plain", *options]
    environment = marked_environment(out.parent)
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment)


def _wait_for_updates(out: Path, process: subprocess.Popen, num: int = 7) -> None:
    """Until the first model has been trained for `num` updates."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        logs = list(out.glob("work/training/*/log.jsonl"))
        if logs and sum(log.read_text().count("\n") for log in logs) >= num:
            return
        time.sleep(0.01)
    raise AssertionError(f"no {num} updates: {process.communicate()[1] if process.poll() is not None else 'too slow'}")


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "processes"), [(signal.SIGINT, 1), (signal.SIGTERM, 2)])
def test_an_interrupted_study_says_how_to_continue(plan, tmp_path, signum, processes):
    process = _start(plan, tmp_path / "run", f"--processes={processes}", "--set=training.updates=100000")
    _wait_for_updates(tmp_path / "run", process)
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"To continue, run again:\n  infoflow study {plan} --out={tmp_path / 'run'}" in err
    assert "Traceback" not in err
    assert list((tmp_path / "run").glob("work/training/*/checkpoints/*"))
    wait_until(lambda: not processes_with(tmp_path), 30)


def test_doctor_looks_at_everything(infoflow):
    answer = infoflow("doctor")
    assert answer.code == 0
    for part in (
        "Python",
        "libraries",
        "threads",
        "BLAS",
        "bf16 units",
        "GPU",
        "browser",
        "cache",
        "disk",
        "models fetched",
        "drawing",
        "extra explore",
        "extra faiss",
    ):
        assert re.search(rf"^(ok|absent) +{part} ", answer.out, flags=re.MULTILINE), part


def _doctor(answer) -> dict[str, tuple[str, str]]:
    """What `infoflow doctor` says of each part: its state, and what was found; long cells wrap."""
    found: dict[str, tuple[str, str]] = {}
    for line in answer.out.split("\n\n")[0].splitlines():
        if row := re.fullmatch(r"(ok|absent|broken) +(.+?)  +(.*)", line):
            found[row[2]] = (row[1], row[3])
        elif found:
            part, (state, said) = found.popitem()
            found[part] = (state, f"{said} {line.strip()}")
    return found


def test_doctor_draws_and_tells_sizes(infoflow, monkeypatch, tmp_path):
    (tmp_path / "hub" / "models--someone--tiny" / "blobs").mkdir(parents=True)
    (tmp_path / "hub" / "models--someone--tiny" / "blobs" / "a").write_bytes(bytes(2_500_000))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    found = _doctor(infoflow("doctor"))
    state, said = found["models fetched"]
    assert (state, "".join(said.split())) == ("ok", f"{tmp_path / 'hub'}:2.5MB;someone/tiny")
    assert found["drawing"] == ("ok", "a figure was written as svg, png, pdf")
    assert re.search(r"; \d+\.\d (kB|MB|GB)$", found["cache"][1])


def test_doctor_knows_every_extra_of_the_package(infoflow, monkeypatch):
    """A new one without a line here would be forgotten."""
    monkeypatch.setattr("infoflow.cli._doctor.find_spec", lambda name: None)
    absent = {part.removeprefix("extra "): said.removeprefix("without ").split(", ")
              for part, (_, said) in _doctor(infoflow("doctor")).items() if part.startswith("extra ")}  # fmt: skip
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name, packages in stated.items():
        assert set(absent[name]) == {re.split("[><=]", one)[0] for one in packages}


def test_doctor_says_what_an_absent_extra_is_for(infoflow, monkeypatch):
    monkeypatch.setattr("infoflow.cli._doctor.find_spec", lambda name: None)
    answer = infoflow("doctor")
    assert _doctor(answer)["extra explore"] == ("absent", "without starlette, uvicorn, h11")
    advice = dict(line.split(": ", 1) for line in answer.out.split("\n\n")[1:])
    said, command = advice["extra explore"].split("\n  ")
    assert said.endswith("infoflow explore MODEL.")
    assert re.fullmatch(r'\S.* install "h11>=[\d.]+" "starlette>=[\d.]+" "uvicorn>=[\d.]+"', command.strip())
    assert "without it torch searches exactly" in " ".join(advice["extra faiss"].split())


def test_doctor_asks_the_hub_as_commands_do(infoflow, monkeypatch):
    """Through the client's own session: a name that resolves may not answer, and a proxy needs no name."""
    import huggingface_hub
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for code, state in ((200, "ok"), (503, "absent")):
        session = SimpleNamespace(head=lambda url, code=code, **how: SimpleNamespace(status_code=code))
        monkeypatch.setattr(huggingface_hub, "get_session", lambda session=session: session)
        assert _doctor(infoflow("doctor"))["model hub"][0] == state


def test_doctor_names_what_is_needed_and_absent(infoflow, monkeypatch):
    from infoflow import foundation

    monkeypatch.setattr(
        foundation, "requirements", lambda extra="": [] if extra else ["numpy>=2", "no-such-package>=3"]
    )
    answer = infoflow("doctor")
    assert answer.code == 1
    assert _doctor(answer)["libraries"] == ("broken", "without no-such-package>=3")
    assert 'install "no-such-package>=3"' in answer.out


def test_extras_are_checked_before_torch_is_imported():
    code = "import sys; sys.modules['starlette'] = None; from infoflow.cli import run; "
    code += "print(run(['explore', 'a-model']), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]
    assert re.search(r'needs starlette and uvicorn. Install it: .* install "h11', done.stderr)


def test_doctor_names_a_cache_that_cannot_be_written(infoflow, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INFOFLOW_CACHE", str(tmp_path / "file" / "cache"))
    answer = infoflow("doctor")
    assert _doctor(answer)["cache"][0] == "broken"
    assert re.search(r"^cache: .*INFOFLOW_CACHE", answer.out, flags=re.MULTILINE)
