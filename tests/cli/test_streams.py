"""What cannot be shown never ends the work; one place ends the process, when the command has returned."""

import errno
import os
import shlex
import subprocess
import sys
from io import StringIO

import pytest

INFOFLOW = [sys.executable, "-c", "from infoflow.cli import main; main()"]
# A command that tells progress and results for a while, then proves that it came to its end.
WORK = """
import pathlib, sys
import infoflow.cli._app as cli

def data():
    from infoflow.foundation import current_display
    from infoflow.cli._session import reporting
    from infoflow.cli._session import show, show_table
    with reporting({log!r}):
        for number in range(3000):
            current_display().note(f"note {{number}} – of many")
            current_display().warn("a warning")
        with current_display().progress("work", 10) as progress:
            progress.advance(10)
        for number in range(3000):
            show(f"line {{number}} – of many")
        show_table(["a"], [["–"]])
    pathlib.Path("finished").write_text("yes")
    return {code}

cli.app.command(data, name="work")
sys.argv = ["infoflow", "work"]
from infoflow.cli import main
main()
"""


def _shell(command: str, folder, **environment: str) -> subprocess.CompletedProcess:
    variables = {**os.environ, **environment}
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, cwd=folder, env=variables, timeout=120
    )


def _work(tmp_path, log: str | None = "plain", code: int | None = None) -> str:
    (tmp_path / "work.py").write_text(WORK.format(log=log, code=code))
    return f"{shlex.quote(sys.executable)} work.py"


SURROUNDINGS = ["2>&1 | head -c 5", "2>&1 >/dev/null | true", ">&- 2>&-", "2>&-", "<&- >&-"]


@pytest.mark.parametrize(
    ("surroundings", "log"),
    [*((one, "plain") for one in SURROUNDINGS), (SURROUNDINGS[0], "rich"), (SURROUNDINGS[2], "json")],
)
def test_the_command_comes_to_its_end(tmp_path, surroundings: str, log: str) -> None:
    answer = _shell(f"{_work(tmp_path, log)} {surroundings}", tmp_path)
    assert answer.returncode == 0
    assert (tmp_path / "finished").exists()
    assert b"Traceback" not in answer.stdout + answer.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["finished", "work.py"]


def test_the_commands_own_code_is_the_programs(tmp_path) -> None:
    assert _shell(f"{_work(tmp_path, code=1)} 2>&1 | head -c 5", tmp_path).returncode == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110
def test_results_on_a_full_disk_are_missed(tmp_path) -> None:
    answer = _shell(f"{_work(tmp_path)} >/dev/full", tmp_path)
    assert answer.returncode == 2
    assert answer.stderr.endswith(b"Some of the output could not be written: No space left on device.\n")
    assert (tmp_path / "finished").exists()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_every_encoding_shows_what_it_can(tmp_path, encoding: str) -> None:
    answer = _shell(_work(tmp_path), tmp_path, PYTHONIOENCODING=encoding)
    assert answer.returncode == 0
    dash = "–" if encoding in ("cp1252", "utf-8") else "-"
    assert f"line 0 {dash} of many" in answer.stdout.decode(encoding)
    assert f"note 0 {dash} of many" in answer.stderr.decode(encoding)


def test_lines_do_not_go_into_a_file_that_took_a_closed_streams_number(tmp_path) -> None:
    script = "from infoflow.cli._app import use_patient_streams; use_patient_streams(); "
    script += "f = open('opened', 'w'); print('shown'); import sys; sys.stdout.flush(); f.close()"
    answer = _shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} >&-", tmp_path)
    assert answer.returncode == 0
    assert (tmp_path / "opened").read_text() == ""


def test_what_closes_standard_output_takes_no_later_line(tmp_path) -> None:
    script = "from infoflow.cli._app import use_patient_streams; use_patient_streams(); "
    script += "import sys; print('before'); sys.stdout.close(); print('after')"
    answer = _shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(script)}", tmp_path)
    assert (answer.returncode, answer.stdout) == (0, b"before\nafter\n")


class _Gone(StringIO):
    """A stream whose reader went away after some lines."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.lines, self.tried = lines, 0

    def write(self, text: str, /) -> int:
        self.tried += 1
        if self.getvalue().count("\n") >= self.lines:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        return super().write(text)


@pytest.mark.parametrize("lines", [0, 1])
@pytest.mark.parametrize("kind", ["plain", "json"])
def test_a_display_without_a_reader_goes_on(kind: str, lines: int) -> None:
    from infoflow.foundation import JsonDisplay, PlainDisplay

    file, done = _Gone(lines), []
    display = PlainDisplay(file) if kind == "plain" else JsonDisplay(file)
    display.note("first")
    display.warn("second")
    with display.progress("work", 3) as progress:
        for number in range(3):
            progress.advance()
            done.append(number)
    assert done == [0, 1, 2], "all of the work was done"
    assert file.getvalue().count("\n") == lines
    assert ("first" in file.getvalue()) is bool(lines)
    assert "second" not in file.getvalue()
    assert file.tried >= 3, "each line was offered: note, warning, the end of the job"


def test_a_display_on_a_closed_file_goes_on() -> None:
    from infoflow.foundation import JsonDisplay, PlainDisplay

    closed, done = StringIO(), []
    closed.close()
    for display in (PlainDisplay(closed), JsonDisplay(closed)):
        display.note("note")
        with display.progress("work", 1) as progress:
            progress.advance()
        done.append(display)
    assert len(done) == 2
    with pytest.raises(ValueError, match="closed"):
        closed.write("it is the file that would raise")
