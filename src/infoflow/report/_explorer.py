"""The live explorer's page: the views of the offline page, with fields to write in and things to take away."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from infoflow.foundation import version

from ._embedding import asset, closed, policy, style
from ._view import VIEWS, environment


def explorer_page(models: Sequence[Mapping[str, Any]], start: Mapping[str, Any]) -> tuple[str, str]:
    """The page, and the content security policy that it is to be sent with.

    Args:
        models: Of each model its name, task, stacks, heads and example sentences.
        start: What the page opens with: text, translation, the command that starts the explorer again, limits.
    """
    scripts = [closed(asset(name)) for name in (*VIEWS, "explorer.js")]
    page = (
        environment()
        .get_template("explorer.html.jinja")
        .render(
            models=models,
            start=start,
            view={"mixing": True},
            style=Markup(style("style.css", "attention.css", "views.css", "explorer.css")),
            scripts=[Markup(script) for script in scripts],
            version=version("infoflow"),
        )
    )
    return page, f"{policy(scripts)}; connect-src 'self'; frame-ancestors 'none'"
