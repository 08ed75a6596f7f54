"""The drawing engine's process, run as a script: it reads calls as JSON lines and answers with bytes.

It imports nothing from infoflow, so that it starts fast.
"""

import json
import sys
from contextlib import suppress

import vl_convert

CALLS = ("vegalite_to_svg", "svg_to_png", "svg_to_pdf", "javascript_bundle")


def main() -> None:
    """Answer calls until standard input ends; each answer starts with a line giving its size in bytes, or the error."""
    _allow_address_space()
    for line in sys.stdin.buffer:
        call = json.loads(line)
        assert call["name"] in CALLS
        try:
            answer = getattr(vl_convert, call["name"])(*call["arguments"], **call["options"])
        except Exception as error:  # reported in the calling process
            _answer({"error": f"{type(error).__name__}: {error}"}, b"")
            continue
        content = answer if isinstance(answer, bytes) else answer.encode()
        _answer({"bytes": len(content)}, content)


def _answer(head: dict[str, object], content: bytes) -> None:
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + content)
    sys.stdout.buffer.flush()


def _allow_address_space() -> None:
    """Raise the address-space limit to its maximum: the engine reserves far more addresses than memory."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main()
