"""The live explorer's page: the views of the offline page, with input fields and controls for ablations."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from infoflow.foundation import version
from infoflow.report._embedding import asset, closed, policy, style
from infoflow.report._view import VIEWS, environment


def explorer_page(models: Sequence[Mapping[str, Any]], start: Mapping[str, Any]) -> tuple[str, str]:
    """The page, and the content security policy to send with it.

    Args:
        models: Name, task, stacks, heads and example sentences of each model.
        start: Initial state of the page: text, translation, the command that restarts the explorer, limits.
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
