"""The model hub: names on it, whether it is reachable, and why a checkpoint cannot be read."""

import errno
import json
import os
import re
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from huggingface_hub import constants
from huggingface_hub.file_download import repo_folder_name

from infoflow.foundation import UserError, as_written, json_fault


def hub_is_reachable() -> bool:
    """False on a machine without network, where the hub's client would retry for half a minute.

    Only the host name is looked up. Behind a proxy, which resolves names itself, the hub counts as reachable.
    """
    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(name) for name in ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")):
        return True
    try:
        socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True


_SHOWN = 8


def at_revision(name: str) -> tuple[str, str | None]:
    """The parts before and after the last @ of a name; without an @, the name and None.

    A file or folder may have such a name too: check for one first.

    >>> at_revision("EleutherAI/pythia-70m@step1000")
    ('EleutherAI/pythia-70m', 'step1000')
    >>> at_revision("bert-base-uncased")
    ('bert-base-uncased', None)
    """
    before, at, behind = name.rpartition("@")
    return (before, behind) if at else (name, None)


def named_at(source: object, revision: str) -> str:
    """The name on the hub with its revision."""
    if not isinstance(source, str) or Path(source).expanduser().exists() or at_revision(source)[1] is not None:
        raise UserError(
            "A revision needs a name on the model hub, and must be given once, as NAME@REVISION or as revision=. "
            f"Got revision {as_written(revision)} of {as_written(source)}."
        )
    return f"{source}@{revision}"


def hub_arguments(name: Path | str) -> tuple[Path | str, dict[str, Any]]:
    """The first argument of transformers' `from_pretrained`, and the argument for the revision if there is one."""
    if isinstance(name, Path):
        return name, {}
    repository, revision = at_revision(name)
    if revision is None:
        return name, {}
    if not repository or not re.fullmatch(r"[\w.+-]+(/[\w.+-]+)*", revision) or ".." in revision:
        raise UserError(
            f"The @ of a model on the hub must be followed by a branch, tag or commit, such as "
            f"{repository[:80] or 'NAME'}@main. Got {name[:120]}."
        )
    return repository, {"revision": revision}


def no_revision(name: str, reason: str) -> UserError:
    """The error if a repository has nothing for the requested revision; it lists what is in the local hub cache."""
    repository, revision = at_revision(name)
    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")
    refs = folder / "refs"
    names = sorted(path.relative_to(refs).as_posix() for path in refs.rglob("*") if path.is_file())
    named = {(refs / name).read_text(encoding="utf-8").strip() for name in names}
    commits = sorted(path.name for path in (folder / "snapshots").glob("*") if path.name not in named)
    found = [*names, *commits]
    more = f", and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    here = f"{', '.join(found[:_SHOWN])}{more}" if found else "none of its revisions"
    return UserError(
        f"Revision {revision} of {repository} is not in the cache, and the model hub did not provide it (no such "
        f"revision, no access, or no network): {reason}.\nIn the cache of this machine: {here}. Check the name after "
        "the @, or the network."
    )


# Explains why a checkpoint cannot be read: the file, the machine, or the hub.


_MACHINE = {errno.ENOMEM: "memory", errno.EMFILE: "files", errno.ENFILE: "files", errno.EAGAIN: "threads"}
_SIGNS = (
    ("memory", r"can't allocate memory|cannot allocate memory|out of memory|not enough memory|bad_alloc|os error 12"),
    ("files", r"too many open files|os error 24|os error 23"),
    ("threads", r"can't start new thread|resource temporarily unavailable|os error 11"),
)
_ADVICE = {
    "memory": "The machine has too little memory for {home}. Close other programs, raise the limit (ulimit -v), or "
    "use a smaller model.",
    "files": "Too many files are open to read {home}. Raise the limit (ulimit -n 4096) and run the command again.",
    "threads": "The machine allows no more threads, so {home} cannot be used. Lower --threads, or raise the limit "
    "(ulimit -u).",
}
_PICKLE = re.compile(r"weights_only|weights only|unpickl|pickle", re.IGNORECASE)
_KNOWN = (
    ("ignore_mismatched_sizes", "its weights have different shapes from its config.json"),
    ("automatic conversion of the weights", "weights of its experts are missing, or do not fit its config.json"),
    ("does not recognize this architecture", "this version of transformers does not know its model_type"),
    ("HeaderTooLarge", "its weights file is damaged"),
    ("InvalidHeader", "its weights file is damaged"),
    ("IncompleteBuffer", "its weights file is cut short"),
    ("MetadataIncomplete", "its weights file is cut short"),
)
# Checks of transformers' configurations use Python's names of types.
_FIELD = re.compile(
    r"Field '(\w+)'(?: with value .*? doesn't match any type in \((.*?)\)\.| expected (.+?), got)", re.DOTALL
)
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "list": "a list",
    "dict": "an object",
    "NoneType": "null",
}


def unreadable(home: Path | str, error: Exception) -> UserError:
    """The error for a problem with the checkpoint at `home`, or with the machine."""
    text = str(error).strip()
    if lacking := machine_lacks(error, home):
        return lacking
    if _PICKLE.search(text):
        return UserError(
            f"The weights in {home} are a pickle that contains more than tensors, or is damaged. A pickle can run "
            "code, so infoflow does not open it. Use the model in the safetensors format."
        )
    reason = reason_of(error)
    if method := _quantised(home):
        return UserError(
            f"The weights in {home} are quantised ({method}), and cannot be read here: {reason}.\nUse the original "
            "model, or load it where its library is installed and save it after dequantize()."
        )
    if isinstance(home, Path):
        return UserError(f"The model in {home} cannot be read: {reason}. Save or download it again.")
    if at_revision(home)[1] is not None:
        return no_revision(home, reason)
    return UserError(
        f"There is no folder {home}, and the model hub provided no model of that name (no such name, no access, or no "
        f"network): {reason}.\nName the folder of a downloaded model, or check the name and the network."
    )


def _quantised(home: Path | str) -> str:
    """The quantisation method of the weights in a folder, from its configuration; "" if there is none."""
    try:
        facts = json.loads((Path(home) / "config.json").read_text(encoding="utf-8"))["quantization_config"]
        method = str(facts["quant_method"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return method if re.fullmatch(r"[\w.-]{1,40}", method) else "by an unknown method"


def machine_lacks(error: BaseException, home: Path | str) -> UserError | None:
    """The error that names the machine's limit that was hit; None if no limit was hit."""
    lacking = next((name for name, sign in _SIGNS if re.search(sign, str(error), re.IGNORECASE)), "")
    if isinstance(error, MemoryError):
        lacking = "memory"
    elif isinstance(error, OSError) and error.errno in _MACHINE:
        lacking = _MACHINE[error.errno]
    return UserError(_ADVICE[lacking].format(home=home)) if lacking else None


def reason_of(error: Exception, part: str = "config.json") -> str:
    """The first message in plain words from a library's error or its causes, if there is one."""
    text = json_fault(error) if isinstance(error, ValueError) else str(error).strip()
    if field := _FIELD.search(text):
        kinds = [word for kind, word in _KINDS.items() if re.search(rf"\b{kind}\b", field[2] or field[3])]
        return f"{field[1]} in its {part} must be {' or '.join(kinds) or 'of another kind'}"
    for sign, known in _KNOWN:
        if sign in text:
            return known
    if isinstance(error, FileNotFoundError) and (file := re.search(r"[^/\\\s'\":]+\.(safetensors|bin)\b", text)):
        return f"its file {file[0]} is missing"
    if isinstance(error, KeyError):
        return f"its {part} lacks or misnames {text.strip(chr(39))}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if isinstance(error, TypeError | AttributeError | IndexError | ZeroDivisionError) or not lines:
        return f"its {part} contains invalid values"
    first = lines[0].rstrip(".:")
    if lines[0].endswith(":") and len(lines) > 1:  # a heading and its content
        first = f"{first}: {lines[1].rstrip('.')}"
    return first
