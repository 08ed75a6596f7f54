"""Explains why a checkpoint cannot be read: the file, the machine, or the hub."""

import errno
import json
import re
from pathlib import Path

from infoflow.foundation import UserError, json_fault

from ._hub_name import at_revision, no_revision

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
            f"The weights in {home} are quantised ({method}), and cannot be read here: {reason}.\nUse the "
            "original model, "
            "or load it where its library is installed and save it after dequantize()."
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
    """The quantisation of the weights in a folder, from its configuration; "" if there is none."""
    try:
        facts = json.loads((Path(home) / "config.json").read_text(encoding="utf-8"))["quantization_config"]
        method = str(facts["quant_method"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return method if re.fullmatch(r"[\w.-]{1,40}", method) else "by an unknown method"


def machine_lacks(error: BaseException, home: Path | str) -> UserError | None:
    """The error that names the machine's limit that was hit; None if it was none."""
    lacking = _lacking(error, str(error))
    return UserError(_ADVICE[lacking].format(home=home)) if lacking else None


def _lacking(error: BaseException, text: str) -> str:
    if isinstance(error, MemoryError):
        return "memory"
    if isinstance(error, OSError) and error.errno in _MACHINE:
        return _MACHINE[error.errno]
    return next((name for name, sign in _SIGNS if re.search(sign, text, re.IGNORECASE)), "")


def reason_of(error: Exception, part: str = "config.json") -> str:
    """The library's first message, if it has one in words."""
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
