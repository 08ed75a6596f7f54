"""From the command line to an exit code, in the one place that ends the process.

0: done; 1: `doctor` found something broken; 2: a mistake of the user; 3: a measure failed and others did not;
130: interrupted.
"""

import json
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from itertools import pairwise

from cyclopts import CycloptsError, UnusedCliTokensError

from infoflow._allocator import keep_freed_memory
from infoflow._signals import sigterm_interrupts

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
        code = _fail(f"Some of the output could not be written: {output.failure.strerror}.", sys.argv[1:])
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code, once it has returned."""
    try:
        with sigterm_interrupts():
            check_arguments(arguments)
            code = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _fail(f"{_told(error)}\n{_advice(arguments)}", arguments)
    except KeyboardInterrupt:
        command = shlex.join(["infoflow", *arguments])
        _say("interrupted", f"Interrupted. Finished work is kept. To continue, run again:\n  {command}", arguments)
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
    """Silence the libraries' own progress and warnings: those that matter go through our display."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")


def _fail(message: str, arguments: Sequence[str]) -> int:
    from infoflow.foundation import showable

    _say("error", showable(message), arguments)
    return USER_ERROR


def _say(event: str, message: str, arguments: Sequence[str]) -> None:
    from infoflow.foundation import visible

    message = visible(message)
    if "--log=json" in arguments or ("--log", "json") in pairwise(arguments):
        message = json.dumps({"event": event, "text": message})
    print(message, file=sys.stderr, flush=True)


def _told(error: CycloptsError) -> str:
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        words = shlex.join(error.unused_tokens)
        return f"Unexpected argument {words}: leave it out, or write its option before it."
    return str(error)


def _advice(arguments: Sequence[str]) -> str:
    if arguments[0].startswith("-"):
        return "Options go after the command: infoflow COMMAND ... --log json. See infoflow --help"
    chain, _, _ = app.parse_commands(list(arguments))
    return f"See {' '.join(['infoflow', *chain])} --help"
