"""From the command line to an exit code, in the one place that ends the process.

0: done; 1: `doctor` found something broken; 2: a mistake of the user; 3: a measure failed and others did not;
130: interrupted.
"""

import json
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType

from cyclopts import CycloptsError

from infoflow.foundation import keep_freed_memory

from ._app import app
from ._failures import Incomplete, explain
from ._options import check_arguments
from ._streams import use_patient_streams

USER_ERROR, INCOMPLETE, INTERRUPTED = 2, 3, 130

_QUIET = {
    "DATASETS_VERBOSITY": "error",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def main() -> None:
    """The console script `infoflow`."""
    output = use_patient_streams()
    _silence_libraries()
    keep_freed_memory()
    code = run(sys.argv[1:])
    sys.stdout.flush()
    if output.failure is not None and code == 0:
        code = _fail(f"Not all of the output could be written: {output.failure.strerror}.", sys.argv[1:])
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code, once it has returned."""
    try:
        with _sigterm_as_interrupt():
            check_arguments(arguments)
            code = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _fail(f"{error}\n{_advice(arguments)}", arguments)
    except KeyboardInterrupt:
        command = shlex.join(["infoflow", *arguments])
        _say("interrupted", f"Interrupted. What is finished is kept; to continue, run again:\n  {command}", arguments)
        return INTERRUPTED
    except Incomplete as error:
        sys.stdout.flush()
        _say("error", str(error), arguments)
        return INCOMPLETE
    except Exception as error:
        if (message := explain(error)) is None:
            raise
        return _fail(message, arguments)
    return code if isinstance(code, int) else 0


def _silence_libraries() -> None:
    """Progress and warnings that matter come through our display; the libraries' own would be noise between them."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """A batch queue's SIGTERM stops like Ctrl-C."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _fail(message: str, arguments: Sequence[str]) -> int:
    from infoflow.foundation import showable

    _say("error", showable(message), arguments)
    return USER_ERROR


def _say(event: str, message: str, arguments: Sequence[str]) -> None:
    if "--log=json" in arguments or ("--log", "json") in pairwise(arguments):
        message = json.dumps({"event": event, "text": message})
    print(message, file=sys.stderr, flush=True)


def _advice(arguments: Sequence[str]) -> str:
    if arguments[0].startswith("-"):
        return "Options stand after the command: infoflow COMMAND ... --log json. See infoflow --help"
    chain, _, _ = app.parse_commands(list(arguments))
    return f"See {' '.join(['infoflow', *chain])} --help"
