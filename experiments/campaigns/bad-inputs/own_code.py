"""Claims and measures of the user's own that raise, end the process, print, or never end."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cases import Answer, Case, World, written
from surroundings import PIPES, ended

_CLAIM = """
import sys, os, warnings
import numpy as np
from infoflow.findings import MASKED, Control, Finding, Table, exceeds, untrained
READS = {"input": Table("mutual_information", MASKED).where(side="input", regime="clean").by("layer")}
def test(curves):
    BODY
    return [exceeds("last layer", curves["input"][:, -1:], 0.0, "nats")]
FINDING = Finding(
    id="mine:1", claim="A claim.", source="a guess", published="no number", statistic="last layer", reads=READS,
    test=test, controls=(), learned=(MASKED,), minimum_seeds=1,
)
AFTER
"""
_BODIES = {
    "raises": "raise ValueError('broken')",
    "raises nothing told": "raise RuntimeError",
    "raises control": "raise ValueError('\\x1b[31m\\0')",
    "raises long": "raise ValueError('x' * 100000)",
    "recursion": "return test(curves)",
    "exits": "sys.exit(5)",
    "exits well": "sys.exit()",
    "quits": "raise SystemExit('words')",
    "interrupts": "raise KeyboardInterrupt",
    "asserts": "assert False",
    "memory": "raise MemoryError",
    "generator": "raise GeneratorExit",
    "stops": "raise StopIteration",
    "warns": "warnings.warn('odd')",
    "prints": "print('the test prints')",
    "closes": "sys.stdout.close()",
    "none": "return None",
    "text": "return 'holds'",
    "numbers": "return [1.0]",
    "true": "return [True]",
    "nan": "return [exceeds('x', curves['input'][:, -1:] * np.nan, 0.0, 'nats')]",
    "infinite": "return [exceeds('x', curves['input'][:, -1:] * np.inf, 0.0, 'nats')]",
    "text rows": "return [exceeds('x', 'rows', 0.0, 'nats')]",
    "no rows": "return [exceeds('x', curves['input'][:0], 0.0, 'nats')]",
    "other rows": "return [exceeds('x', curves['input'][:3, -1:], 0.0, 'nats')]",
    "changes": "curves['input'][:] = 1e300",
    "clears": "curves.clear()",
    "folder": "os.chdir('/')",
    "one line of 10**7": "print('x' * 10**7)",
}
_FILES = {
    "raises": "raise ValueError('broken')",
    "exits": "import sys; sys.exit(5)",
    "exits well": "import sys; sys.exit()",
    "quits": "quit()",
    "interrupts": "raise KeyboardInterrupt",
    "group": "raise ExceptionGroup('two', [ValueError('a'), KeyError('b')])",
    "base": "raise BaseException('odd')",
    "own error": "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
    "recursion": "def f(): return f()\nf()",
    "deep": f"x = {'(' * 2000}1{')' * 2000}",
    "long line": f"x = [{'0,' * 1_000_000}]",
    "NUL": "x = 1\0",
    "binary": "\udcff",
    "empty": "",
    "claims in a dict": "FINDINGS = {}",
    "prints": "print('hello')",
    "imports": "import nothing_of_the_kind",
    "itself": "import mine",
    "shadows": "import json\njson.loads = None",
    "odd ids": _CLAIM.replace("mine:1", "mine:\\x1b[31m").replace("BODY", "pass").replace("AFTER", ""),
    "long ids": _CLAIM.replace("mine:1", f"mine:{'1' * 5000}").replace("BODY", "pass").replace("AFTER", ""),
    "path ids": _CLAIM.replace("mine:1", "../../mine:1").replace("BODY", "pass").replace("AFTER", ""),
    "no reads": _CLAIM.replace("reads=READS", "reads=None").replace("BODY", "pass").replace("AFTER", ""),
    "odd reads": _CLAIM.replace("reads=READS", "reads={'x': 3}").replace("BODY", "pass").replace("AFTER", ""),
    "no test": _CLAIM.replace("test=test", "test=None").replace("BODY", "pass").replace("AFTER", ""),
    "no seeds": _CLAIM.replace("seeds=1", "seeds=-1").replace("BODY", "pass").replace("AFTER", ""),
    "odd table": _CLAIM.replace('"mutual_information"', '"nothing"').replace("BODY", "pass").replace("AFTER", ""),
    "odd column": _CLAIM.replace("side=", "sides=").replace("BODY", "pass").replace("AFTER", ""),
    "odd group": _CLAIM.replace("learned=(MASKED,)", "learned=('x',)").replace("BODY", "pass").replace("AFTER", ""),
    "claim number": _CLAIM.replace('claim="A claim."', "claim=3").replace("BODY", "pass").replace("AFTER", ""),
    "claim markup": _CLAIM.replace("A claim.", "<script>alert(1)</script>")
    .replace("BODY", "pass")
    .replace("AFTER", ""),
    "twice": _CLAIM.replace("BODY", "pass").replace("AFTER", "import dataclasses\nB = dataclasses.replace(FINDING)"),
}
_MEASURE = """
import sys, os, warnings
import numpy as np, torch
import infoflow
def per_token(states):
    BODY
    return states.norm(dim=-1)
measure = infoflow.measure_of(per_token, name="mine", unit="length")
try:
    table = infoflow.measure("MODEL", "CORPUS", [measure])["mine"]
except infoflow.UserError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
except ValueError as error:
    sys.exit(3 if str(error) == "broken" else 1)
"""
_MEASURES = {
    "fine": ("pass", (0,)),
    "raises": ("raise ValueError('broken')", (3,)),  # in Python it reaches its author
    "exits": ("sys.exit(5)", (5,)),
    "prints": ("print('a batch')", (0,)),
    "text": ("return 'x'", (2,)),
    "none": ("return None", (2,)),
    "number": ("return 1.0", (2,)),
    "numpy": ("return states.norm(dim=-1).numpy()", (0, 2)),
    "one axis too few": ("return states.norm()", (2,)),
    "one axis too many": ("return states", (2,)),
    "too short": ("return states.norm(dim=-1)[:, 1:]", (2,)),
    "nan": ("return states.norm(dim=-1) * float('nan')", (0, 2)),
    "infinite": ("return states.norm(dim=-1) / 0", (0, 2)),
    "whole numbers": ("return states.norm(dim=-1).long()", (0, 2)),
    "complex": ("return states.norm(dim=-1) * 1j", (2,)),
    "truth": ("return states.norm(dim=-1) > 1", (0, 2)),
    "changes states": ("states.zero_()", (0, 2)),
    "gradient": ("return states.norm(dim=-1).requires_grad_()", (0, 2)),
    "seeds": ("torch.manual_seed(0)", (0,)),
}


def own_code_cases(world: World) -> Iterator[Case]:
    for name, body in _BODIES.items():
        text = _CLAIM.replace("BODY", body).replace("AFTER", "")
        yield _claims(world, f"test {name}", text, (130,) if name == "interrupts" else (0, 2))
    for name, text in _FILES.items():
        yield _claims(world, f"file {name}", text, (130,) if name == "interrupts" else (0, 2))
    hanging = _CLAIM.replace("BODY", "while True: pass").replace("AFTER", "")
    for name, text in {"test": hanging, "file": "while True: pass"}.items():
        for number in (signal.SIGINT, signal.SIGTERM):
            words = ["findings", "run", "--claims=mine.py"]
            yield Case(
                f"{name} hangs, {number.name}", words, "", _prepared(world, text), (130,), writes=True,
                answer=_stopped(number), check=None,
            )  # fmt: skip
    for name, (body, codes) in _MEASURES.items():
        text = _MEASURE.replace("BODY", body).replace("MODEL", str(world.model)).replace("CORPUS", str(world.sentences))
        yield Case(f"measure {name}", [], "", written(mine__py=text), codes, writes=True, answer=_script)


def _prepared(world: World, text: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        (folder / "run").mkdir()
        shutil.copy(world.study / "run.json", folder / "run" / "run.json")
        shutil.copytree(world.study / "tables", folder / "run" / "tables")
        (folder / "mine.py").write_bytes(text.encode("utf-8", "surrogateescape"))

    return prepare


def _claims(world: World, name: str, text: str, codes: tuple[int, ...]) -> Case:
    def check(folder: Path, _: str, __: str) -> str | None:
        page = folder / "run" / "report.html"
        if not page.exists():
            return "ends without a report"
        return "runs a script of a claim" if "<script>alert(1)" in page.read_text() else None

    words = ["findings", "run", "--claims=mine.py", "--log=plain"]
    return Case(name, words, "", _prepared(world, text), codes, check, writes=True, limit=60, quotes=True)


def _stopped(number: int) -> Callable[[Path, list[str]], Answer]:
    """Stopped once it has run for ten seconds of the processor."""

    def run(folder: Path, arguments: list[str]) -> Answer:
        command = [sys.executable, "-m", "infoflow", *arguments]
        with subprocess.Popen(command, cwd=folder, **PIPES) as process:
            while process.poll() is None and _seconds(process.pid) < 10:
                time.sleep(0.2)
            process.send_signal(number)
            return ended(process)

    return run


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _script(folder: Path, _: list[str]) -> Answer:
    with subprocess.Popen([sys.executable, "mine.py"], cwd=folder, **PIPES) as process:
        return ended(process)
