"""The interactive chart in a frame that can access neither the notebook nor a network."""

import base64
import gzip
import json
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .._embedding import closed, embedded
from .._engine import javascript
from .._theme import DARK, LIGHT, css_variables, vega_config

_FRAME = (
    '<div style="position:relative">{}<iframe sandbox="allow-scripts" title="interactive chart" loading="lazy" '
    'style="position:absolute;top:0;left:0;width:100%;height:100%;border:0" srcdoc="{}"></iframe></div>'
)


def live_html(still: Markup, specs: list[dict[str, Any]], width: int) -> Markup:
    """Interactive charts over a static picture of them, each at most `width` pixels wide (0: its own width).

    The frame may run only its own scripts; untrusted notebooks drop it and keep the picture.
    """
    environment = Environment(loader=PackageLoader("infoflow.report"), autoescape=True, undefined=StrictUndefined)
    page = environment.get_template("notebook_live.html.jinja").render(
        engine=_engine(),
        specs=embedded(specs),
        config=embedded(vega_config() if any("var(--" in json.dumps(spec) for spec in specs) else {}),
        width=width,
        light=Markup(css_variables(LIGHT)),
        dark=Markup(css_variables(DARK)),
    )
    return Markup(_FRAME).format(still, page)


@cache
def _engine() -> str:
    """Vega, compressed to a third; the browser unpacks it."""
    return base64.b64encode(gzip.compress(closed(javascript()).encode(), mtime=0)).decode()
