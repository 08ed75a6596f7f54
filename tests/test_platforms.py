"""What only POSIX has stands in few places of the source, each with a guard; files are read and written as UTF-8."""

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "infoflow"
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "posix", "readline", "curses", "syslog"}
OF_OS = {
    *("chown", "fchmod", "fchown", "fork", "forkpty", "getegid", "geteuid", "getgid", "getloadavg", "getpgid"),
    *("getpgrp", "getuid", "kill", "killpg", "lchown", "link", "mkfifo", "mknod", "nice", "openpty", "posix_fadvise"),
    *(
        "posix_fallocate",
        "posix_spawn",
        "pread",
        "preadv",
        "pwrite",
        "pwritev",
        "register_at_fork",
        "sched_getaffinity",
    ),
    *("sched_setaffinity", "sendfile", "setgid", "setpgid", "setpriority", "setsid", "setuid", "statvfs", "symlink"),
    *("sync", "sysconf", "uname", "wait", "wait3", "wait4", "waitid", "waitpid", "O_DIRECT", "O_NOFOLLOW", "O_CLOEXEC"),
}
OF_SIGNAL = {
    *("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGUSR1", "SIGUSR2"),
    *("alarm", "pause", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait"),
}
OTHERS = {"add_signal_handler", "remove_signal_handler", "symlink_to", "hardlink_to", "AF_UNIX", "SO_REUSEADDR"}

GUARDED = {
    "cli/_session.py": {"resource"},  # os.name
    "engine/_child.py": {"setsid"},  # suppress(AttributeError)
    "engine/_invitation.py": {"getuid"},  # hasattr
    "engine/_starting.py": {"resource"},  # except ImportError
    "engine/_where.py": {"SO_REUSEADDR"},  # os.name: on Windows it means another thing
    "subjects/explorer/server/_explore.py": {"SO_REUSEADDR"},  # os.name
    "foundation/_files.py": {"posix_fallocate"},  # hasattr
    "foundation/_folders.py": {"fcntl", "getuid"},  # WINDOWS; os.name
    "foundation/_machine.py": {
        "resource",
        "sysconf",
        "kill",
        "pthread_kill",
        "sched_getaffinity",
    },  # except ImportError, AttributeError; WINDOWS: there signal 0 is Ctrl-C; os.name; hasattr
    "report/_drawer.py": {"resource"},  # suppress(ImportError)
    "training/_snapshots.py": {"link"},  # except OSError: a copy
}
"""Where they stand, and what keeps Windows from them. A new place needs such a guard, and a line here."""


@cache
def _trees() -> list[tuple[str, ast.Module]]:
    paths = sorted(SOURCE.rglob("*.py"))
    return [(path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


def _posix_only(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = {alias.name for alias in node.names}
            found |= ({node.module} & MODULES) | {
                name for name in names if name in {"os": OF_OS, "signal": OF_SIGNAL}.get(node.module, ())
            }
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in OTHERS | {"os": OF_OS, "signal": OF_SIGNAL}.get(owner, set()):
                found.add(node.attr)
    return found


def test_what_only_posix_has_stands_where_it_is_guarded():
    found = {name: posix for name, tree in _trees() if (posix := _posix_only(tree))}
    assert found == GUARDED


def test_it_is_found():
    source = "import os, signal, fcntl\nfrom signal import SIGKILL\nos.fork()\nsignal.SIGHUP\npath.symlink_to(other)"
    assert _posix_only(ast.parse(source)) == {"fcntl", "SIGKILL", "fork", "SIGHUP", "symlink_to"}


def _without_encoding(tree: ast.AST) -> list[int]:
    """Lines that read or write text as the system's locale has it: another encoding on Windows."""
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = {keyword.arg for keyword in node.keywords}
        if name in ("write_text", "read_text"):
            positional = len(node.args) - (name == "write_text")
            if "encoding" not in given and positional < 1:
                lines.append(node.lineno)
        elif name in ("open", "fdopen") and "encoding" not in given:
            owner = node.func.value.id if _is_method_of_name(node.func) else ""
            if owner in ("tarfile", "zipfile", "webbrowser") or (name == "open" and owner == "os"):
                continue
            modes = [one.value for one in [*node.args, *(k.value for k in node.keywords)] if _is_mode(one)]
            plain = name == "open" and (not owner or owner in ("gzip", "io")) and isinstance(node.func, ast.Name)
            if any("b" not in mode for mode in modes) or (plain and not modes):
                lines.append(node.lineno)
    return lines


def _is_method_of_name(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)


def _is_mode(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 4


def test_text_is_read_and_written_as_utf8():
    found = [f"{name}:{line}" for name, tree in _trees() for line in _without_encoding(tree)]
    assert found == []


def test_text_without_an_encoding_is_found():
    source = 'a.write_text("x")\na.read_text()\nopen("a")\na.open("w")\na.open("wb")\na.read_text(encoding="utf-8")'
    assert _without_encoding(ast.parse(source)) == [1, 2, 3, 4]
