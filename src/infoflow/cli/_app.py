"""The commands and their names, and the way from a command line to an exit code. No `--help` imports torch."""

import codecs
import errno
import io
import json
import os
import re
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise

from cyclopts import App, CycloptsError, Group, UnknownOptionError, UnusedCliTokensError

from infoflow._process import keep_freed_memory, sigterm_interrupts
from infoflow._subjects import parts

from ._analyze import analyze, compare, heads, merge, view
from ._data import describe, get, list_names, show_example
from ._doctor import doctor
from ._examples import epilogue, examples
from ._options import check_arguments, check_extras
from ._predict import predict
from ._session import Incomplete, explain
from ._study import findings, report, stage, stages, study, train, worker


def _version() -> str:
    from infoflow.foundation import version

    return f"infoflow {version('infoflow')}"


BEGIN = "Begin here"
EXPERIMENTS, RESULTS, SURROUNDINGS = "More: train and measure", "More: results of runs", "More: data and machine"

app = App(
    name="infoflow",
    help="How information flows through a Transformer: layers, heads, objectives, with error bars and controls.",
    help_epilogue="`infoflow COMMAND --help` ends with two examples. To continue an interrupted command, run it again.",
    version=_version,
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,  # `run` says how to continue
)
_GROUPS = {name: Group(name, sort_key=key) for key, name in enumerate((BEGIN, EXPERIMENTS, RESULTS, SURROUNDINGS), 1)}
_COMMANDS: dict[str, dict[int, Callable[..., object]]] = {
    BEGIN: {0: study, 1: analyze, 2: heads, 3: view, 5: report, 6: list_names},
    EXPERIMENTS: {0: train, 2: compare, 8: predict},
    RESULTS: {1: findings, 3: merge},
    SURROUNDINGS: {0: doctor, 1: worker, 2: stages, 3: stage},
}


def _add(to: App, function: Callable[..., object], name: str, group: str | None, position: int) -> None:
    group_shown = _GROUPS[group] if group else None
    last = name.split()[-1]
    to.command(function, name=last, group=group_shown, sort_key=position, help_epilogue=epilogue(name))


for _group, _functions in _COMMANDS.items():
    for _position, _function in _functions.items():
        _name = {list_names: "list"}.get(_function, _function.__name__.replace("_", "-"))
        _add(app, _function, _name, _group, _position)

app.register_install_completion_command(
    group=_GROUPS[SURROUNDINGS], sort_key=9, help="Install shell completion (bash, zsh, fish)."
)

_data = App(
    name="data",
    help="Built-in corpora, what a corpus holds, and what an objective makes of a text.",
    group=_GROUPS[SURROUNDINGS],
    sort_key=-1,
    help_epilogue="",
)
for _position, (_name, _function) in enumerate({"get": get, "describe": describe, "show": show_example}.items(), 1):
    _add(_data, _function, f"data {_name}", None, 2 * _position)
app.command(_data)

for _subject in parts(""):
    for _command, (_group, _position) in getattr(_subject, "COMMANDS", {}).items():
        *_above, _name = _command.split()
        _function = getattr(import_module(f"{_subject.__name__}.command"), _name)
        _parent = _data if _above else app
        _add(_parent, _function, _command.replace("_", "-"), None if _above else _group, _position)


# Standard output and error of the program: text that cannot be written is dropped, and the work goes on.
_PLAIN = str.maketrans(
    {"–": "-", "−": "-", "—": "-", "×": "x", "±": "+/-", "…": "...", "→": "->", "“": '"', "”": '"', "’": "'"}
)
_GONE = [errno.EPIPE, errno.EBADF, errno.ECONNRESET, errno.EIO]  # the reader is gone, so the rest can be dropped
if os.name == "nt":
    _GONE.append(errno.EINVAL)  # a closed pipe on Windows


class PatientFile(io.RawIOBase):
    """A file descriptor that accepts every write, even if its reader is gone or the disk is full."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.failure: OSError | None = None
        """The first write error that the user should know about: a full disk, for example, but not a closed pipe."""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data, /) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            try:
                done += os.write(self._descriptor, view[done:])
            except BlockingIOError:  # a pipe that another program made non-blocking is full
                time.sleep(0.01)
            except OSError as error:
                if error.errno not in _GONE:
                    self.failure = self.failure or error
                break
        return len(view)


class _Open(io.TextIOWrapper):
    """A text stream that user code cannot close."""

    def close(self) -> None:
        self.flush()


def use_patient_streams() -> PatientFile:
    """Replace `sys.stdout` and `sys.stderr` by patient streams; returns the file under standard output."""
    _open_closed()
    codecs.register_error("infoflow-plain", _plainly)
    output = PatientFile(1)
    sys.stdout = _text(output, sys.stdout, line_buffering=os.isatty(1))
    sys.stderr = _text(PatientFile(2), sys.stderr, line_buffering=True)
    return output


def _open_closed() -> None:
    """Open closed standard streams as null devices; else the next file opened would receive our output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one


def _text(file: PatientFile, before: io.TextIOBase | None, line_buffering: bool) -> io.TextIOWrapper:
    encoding = getattr(before, "encoding", None) or "utf-8"
    return _Open(io.BufferedWriter(file), encoding=encoding, errors="infoflow-plain", line_buffering=line_buffering)


def _plainly(error: UnicodeError) -> tuple[str | bytes, int]:
    """Error handler for characters that an encoding lacks: a plain equivalent, or else an escape."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


# From the command line to an exit code, in the one place that ends the process.
#
# 0: done; 1: `doctor` found something broken; 2: a mistake of the user; 3: a measure failed and others did not; 130:
# interrupted.

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
    output = use_patient_streams()
    _silence_libraries()
    keep_freed_memory()
    code = run(sys.argv[1:])
    sys.stdout.flush()
    if output.failure is not None and code == 0:
        code = _fail(f"Some of the output could not be written: {output.failure.strerror}.", sys.argv[1:])
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    arguments = _with_new_names(arguments)
    if not arguments:
        print(_where_to_begin())
        return 0
    try:
        with sigterm_interrupts():
            check_arguments(arguments)
            check_extras(arguments)
            code = app(list(arguments), exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        return _fail(f"{_message(error)}\n{_advice(arguments)}", arguments)
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
    """Silence the libraries' own progress bars and warnings; those that matter go through our display."""
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


_NEW_OPTIONS = {("study", "--seed"): "--seeds", ("over-training", "--jobs"): "--processes"}
_NEW_OPTIONS |= {("worker", "--jobs"): "--processes"}
_NEW_OPTIONS |= {(command, "--precision"): "--dtype" for command in ("analyze", "compare", "heads", "probe")}

_NEW_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def _with_new_names(arguments: Sequence[str]) -> list[str]:
    """Replace names of an earlier version in the arguments, with a warning; kept for one version."""
    if list(arguments[:2]) == ["data", "list"]:
        _say("warning", "infoflow data list is now infoflow list corpora; the old name will be removed.", arguments)
        return ["list", "corpora", *arguments[2:]]
    found = [argument.partition("=") for argument in arguments]
    for number, (name, equals, value) in enumerate(found):
        if number and (new := _NEW_OPTIONS.get((arguments[0], name))):
            _say("warning", f"{name} is now {new}; the old name will be removed.", arguments)
            found[number] = new, equals, value
    written = ["".join(parts) for parts in found]
    return [_new_value(option, value) for option, value in pairwise(["", *written])]


def _new_value(before: str, argument: str) -> str:
    option, equals, value = argument.rpartition("=")
    return option + equals + _NEW_DTYPES.get(value, value) if "--dtype" in (before, option) else argument


def _where_to_begin() -> str:
    """One screen: the first commands, as examples."""
    named = [name for name in app if not name.startswith("-") and _GROUPS[BEGIN] in app[name].group]
    named.sort(key=lambda name: app[name].sort_key)
    said = {name: " ".join(app[name].help.partition(".")[0].split()) for name in named}
    lines = [f"  {examples(name)[0]}\n    {text}." for name, text in said.items()]
    return "\n".join(
        ["Where to begin:", "", *lines, "", "All commands: infoflow --help. Examples: infoflow COMMAND --help."]
    )


_CONSENT = ("--insecure", "--own-code")  # options that reduce safety, so they are never suggested after a typing error


def _message(error: CycloptsError) -> str:
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        words = shlex.join(error.unused_tokens)
        return f"Unexpected argument {words}: leave it out, or write its option before it."
    if isinstance(error, UnknownOptionError):
        given = (error.token.keyword or error.token.value).partition("=")[0]
        if any(given.strip("-").upper() in one.names for one in error.argument_collection or ()):
            return f"{given} is not an option: write the {given.strip('-').lower()} without it."
    text = re.sub(rf" Did you mean ({'|'.join(_CONSENT)})\?", "", str(error))
    if missing := re.fullmatch(r'Command "([^"]+)" parameter (\S+) requires an argument\.', text):
        command, name = missing.groups()
        given = name in (error.root_input_tokens or ())
        return f"{name} needs a value." if given else f"infoflow {command} needs {name}."
    return text


def _advice(arguments: Sequence[str]) -> str:
    if arguments[0].startswith("-"):
        return "Options go after the command: infoflow COMMAND ... --log json. See infoflow --help"
    chain, _, _ = app.parse_commands(list(arguments))
    example = [f"For example: {line}" for line in examples(" ".join(chain))[:1]]
    return "\n".join([*example, f"See {' '.join(['infoflow', *chain])} --help"])
