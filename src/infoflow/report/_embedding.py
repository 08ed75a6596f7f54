"""Scripts, styles and data embedded so that nothing can break out of the page, and the page loads nothing."""

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from typing import Any

from markupsafe import Markup

from ._series import NUM_SLOTS
from ._theme import DARK, LIGHT, css_variables


def embedded(value: Any) -> Markup:
    """JSON that is safe inside a script element: no `<`, `>` or `&` remains, NaN becomes null."""
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def policy(scripts: list[str]) -> str:
    """A content security policy that forbids the network and all scripts but the page's own."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def asset(name: str) -> str:
    """A file from the folder `templates`."""
    return resources.files("infoflow.report").joinpath("templates", name).read_text(encoding="utf-8")


def style(*names: str) -> str:
    """Style sheets with the light and dark colours filled in."""
    text = "\n".join(asset(name) for name in names)
    slots = " ".join(f".s{slot} {{ --s: var(--series-{slot}); }}" for slot in range(NUM_SLOTS))
    return (
        text.replace("/*slots*/", slots)
        .replace("/*light*/", css_variables(LIGHT))
        .replace("/*dark*/", css_variables(DARK))
    )


def closed(script: str) -> str:
    """A script that cannot close its own element early."""
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
