"""JSON files of infoflow, and readable reasons why a text is not JSON."""

import json
import stat
from pathlib import Path
from typing import Any

_LARGEST = 100_000_000
"""Maximum bytes: run.json of a study with thousands of models has a tenth of that."""


def json_fault(error: ValueError | RecursionError) -> str:
    """The problem found by reading JSON, without Python's wording about codecs and internal limits."""
    if isinstance(error, RecursionError):
        return "lists or objects are nested too deeply"
    if isinstance(error, UnicodeEncodeError):
        return "a text contains half of a surrogate pair"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text at byte {error.start:,}"
    return "a number has more than 4,300 digits" if "int_max_str_digits" in str(error) else str(error)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file that infoflow wrote and that may have been damaged since.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file holds something else; the message describes it without the file's name.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be read forever
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST:,} bytes")
    try:
        found = json.loads(content.decode())
        if rb"\ud" in content.lower():  # only an escape can produce half a character, which no file or terminal accepts
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(json_fault(error)) from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found
