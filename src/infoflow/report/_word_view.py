"""Neighbours of some words in one model, as one HTML file that needs only a browser."""

from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from infoflow.foundation import UserError, atomic_write, version

from ._binary import packed_json
from ._embedding import asset, closed, embedded, policy, style
from ._series import Series
from ._view import check_view_path
from .knows._words import words_payload

_SCRIPTS = ("page.js", "attention.js", "words.js")


def write_word_view(table: pd.DataFrame, model: str, path: Path | str) -> Path:
    """Write the static neighbours of words next to those of their occurrences, with their sentences.

    Args:
        table: `word_neighbours` of one model.
        model: Its name.
        path: One HTML file, readable offline, complete or not written at all.

    Returns:
        The path.

    Raises:
        UserError: The table is empty, `path` does not end in `.html`, or a file there is not infoflow's.
    """
    path = check_view_path(path)
    if table.empty:
        raise UserError(f"There is nothing near these words in {model}: none occurs in the corpus as one token.")
    words = words_payload([(Series(key=model, label=model, slot=0), table.assign(model=model))])
    scripts = [closed(asset(name)) for name in _SCRIPTS]
    environment = Environment(
        loader=PackageLoader("infoflow.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["embedded"] = embedded
    page = environment.get_template("word_view.html.jinja").render(
        model=model,
        words={"packed": packed_json(words.live), "still": words.still, "live": words.live},
        style=Markup(style("style.css", "attention.css", "words.css")),
        scripts=[Markup(script) for script in scripts],
        policy=policy(scripts),
        version=version("infoflow"),
    )
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path
