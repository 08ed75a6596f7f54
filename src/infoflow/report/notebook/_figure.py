"""A report figure in Python: its answer, data, charts and files."""

import base64
import gzip
import json
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
from markupsafe import Markup

from infoflow.foundation import UserError, atomic_write, in_notebook
from infoflow.results import Table

from .._drawing import PIXELS_PER_INCH, javascript, paper_svg, png_of
from .._embedding import closed, embedded, environment
from .._figure import Panel
from .._figure import ReportFigure as Content
from .._files import check_size, encoded
from .._layer_figure import side_by_side
from .._theme import DARK, LIGHT, coloured, css_variables, vega_config
from ._picture import ONE_PANEL, SMALL_PANEL, in_theme, lighter_png, paragraphs, picture, shorter, table_html

_ROWS = 12  # rows shown of a figure that is a table
RENDERER = "infoflow"
_DEFAULTS = ("", "default", "html")  # Altair's own renderers, which load their scripts from the network
_FRAME = (
    '<div style="position:relative">{}<iframe sandbox="allow-scripts" title="interactive chart" loading="lazy" '
    'style="position:absolute;top:0;left:0;width:100%;height:100%;border:0" srcdoc="{}"></iframe></div>'
)


class Figure:
    """A question, the picture that answers it, and everything needed to read it.

    In a notebook it shows a picture that needs no network; `live()` is the interactive version.
    """

    def __init__(
        self,
        name: str,
        stated: Content,
        variants: Callable[[], Mapping[str, Content]],
        source: str = "",
        chosen: str = "",
    ) -> None:
        self.name = name
        self._content, self._variants_of, self._source, self._chosen = stated, variants, source, chosen

    @property
    def id(self) -> str:
        """The figure's id in the report's address."""
        return self._content.id

    @property
    def question(self) -> str:
        return self._content.question

    @property
    def answer(self) -> str:
        """What the data show, in sentences."""
        stated = self._drawn if self._chosen else self._content
        return " ".join(stated.answer)

    @property
    def caption(self) -> str:
        """Sample size, and the meaning of the bands."""
        return self._content.caption

    @property
    def how_to_read(self) -> str:
        return "\n".join(self._content.how_to_read)

    @property
    def data(self) -> pd.DataFrame:
        """All numbers of the picture."""
        return Table.of(self._content.data)

    @property
    def choices(self) -> tuple[str, ...]:
        """The alternatives of which the figure shows one at a time, such as head statistics; () if there are none."""
        return tuple(choice for choice in self._variants if choice)

    def choose(self, choice: str) -> "Figure":
        """The same figure for another of its `choices`.

        Raises:
            UserError: The figure has no such choice.
        """
        if choice not in self.choices:
            got = f"{self.name} shows no {shorter(choice)}."
            raise UserError(
                f"{got} It has no choices." if not self.choices else f"{got} Write one of: {', '.join(self.choices)}."
            )
        return Figure(self.name, self._content, self._variants_of, self._source, choice)

    @property
    def charts(self) -> list[Any]:
        """The figure's panels as Altair charts.

        Raises:
            UserError: The figure is a table.
        """
        show_charts_offline()
        return [altair_chart(panel, self._width) for panel in self._panels]

    @property
    def chart(self) -> Any:
        """All panels as one Altair chart, to change or save.

        Raises:
            UserError: The figure is a table.
        """
        return arranged(self.charts, columns=1 if len(self._panels) == 1 else 2)

    def save(self, path: Path | str, width: float = 6.8, columns: int | None = None) -> Path:
        """Write the figure as svg, png, pdf or html, by the extension of `path`; `width` in inches.

        3.3 inches is one column of a two-column paper, 6.8 its full width. `columns` panels stand side by side, by
        default as many as fit. The files equal those of `infoflow report --figures`.

        Raises:
            UserError: Unknown extension, width outside 2 to 20 inches, too many `columns` for the width, or the figure
                is a table.
        """
        path = Path(path)
        kind = path.suffix.lower().removeprefix(".")
        if kind not in ("svg", "png", "pdf", "html"):
            raise UserError(f"A file name must end in .svg, .png, .pdf or .html, such as figure.pdf. Got {path.name}.")
        check_size(width, columns)
        page = kind == "html"
        content = self.live().page().encode() if page else encoded(paper_svg(self._drawn, width, columns), kind)
        with atomic_write(path) as temporary:
            temporary.write_bytes(content)
        return path

    def live(self) -> "LiveFigure":
        """The interactive figure, half a megabyte in size; it needs no network either.

        Raises:
            UserError: The figure is a table.
        """
        return LiveFigure(self, live_html(self._pictures, [panel.spec for panel in self._panels], self._width))

    def beside(self, *others: "Figure", names: tuple[str, ...] = ()) -> "Figure":
        """This figure and those of other runs side by side, with shared axes if they are by layer.

        Args:
            others: Figures of the same name.
            names: A name for each, this one first; by default the names of their runs.

        Raises:
            UserError: The figures have different names, or `names` are not unique.
        """
        every = (self, *others)
        names = names or tuple(figure._source for figure in every)
        if odd := [figure.name for figure in others if figure.name != self.name]:
            raise UserError(f"Figures side by side must have the same name. Got {self.name} and {odd[0]}.")
        if len(set(names)) < len(every) or len(names) != len(every) or not all(names):
            stated = ", ".join(name or "none" for name in names)
            raise UserError(
                f"Each of {len(every)} figures needs a unique name. Got {stated}. "
                'Give them: figure.beside(other, names=("before", "after")).'
            )
        joined = side_by_side({name: one._drawn for name, one in zip(names, every, strict=True)})
        return Figure(self.name, joined, lambda: {"": joined}, " and ".join(names))

    @cached_property
    def _variants(self) -> Mapping[str, Content]:
        return self._variants_of()

    @property
    def _drawn(self) -> Content:
        """The panels that are drawn: the current choice, or the first."""
        if not self._variants:
            raise UserError(f"{self.name} is a table and has no chart. Its numbers are in .data.")
        return self._variants[self._chosen or next(iter(self._variants))]

    @property
    def _panels(self) -> list[Panel]:
        return self._drawn.panels

    @property
    def _width(self) -> int:
        return ONE_PANEL if len(self._panels) == 1 else SMALL_PANEL

    @property
    def _pictures(self) -> Markup:
        stated = [picture(panel, self._width, f"{self.question} {panel.title}") for panel in self._panels]
        return Markup(" ").join(stated)

    def _html_around(self, body: Markup) -> str:
        chosen = self._chosen or next(iter(self.choices), "")
        others = [choice for choice in self.choices if choice != chosen]
        more = f"Shown: {chosen}. Also: {', '.join(others)} (figure.choose)." if others else ""
        head = paragraphs(self.question, strong=True) + paragraphs(self.answer)
        shown = Markup("<div>{}</div>").format(body)
        return str(in_theme(head, shown, paragraphs(self.caption, more, small=True)))

    def _repr_html_(self) -> str:
        data = self._content.data
        return self._html_around(self._pictures if self._variants else table_html(data.head(_ROWS), len(data)))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """The picture as HTML, and as PNG at twice the resolution for viewers that drop HTML."""
        bundle: dict[str, Any] = {"text/plain": repr(self), "text/html": self._repr_html_()}
        if self._variants:
            columns = min(2, len(self._panels))
            svg = paper_svg(self._drawn, columns * self._width / PIXELS_PER_INCH)
            white = coloured(svg).replace(">", '><rect width="100%" height="100%" fill="#ffffff"/>', 1)
            bundle["image/png"] = base64.b64encode(lighter_png(png_of(white, 2.0))).decode()
        return bundle

    def __repr__(self) -> str:
        return "\n".join([f"Figure {self.name!r}", shorter(self.question, 120), shorter(self.answer, 200)])


class LiveFigure:
    """An interactive figure: a frame over its static picture."""

    def __init__(self, figure: Figure, frame: Markup) -> None:
        self._figure, self._frame = figure, frame

    def _repr_html_(self) -> str:
        return self._figure._html_around(self._frame)

    def page(self) -> str:
        """The figure as a standalone HTML page."""
        head = Markup(
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
            '<meta name="viewport" content="width=device-width"><title>{}</title></head>'
            '<body style="font-family:Liberation Sans,Arial,sans-serif;max-width:720px;margin:1em auto;padding:0 1em">'
        ).format(self._figure.question)
        return f"{head}{self._repr_html_()}</body></html>\n"

    def __repr__(self) -> str:
        return f"LiveFigure {self._figure.name!r}"


def altair_chart(panel: Panel, width: int) -> alt.LayerChart:
    """The panel as an Altair chart to change and save, in the colours of print and with a fixed width."""
    title = {"title": panel.title} if panel.title else {}
    spec = json.loads(coloured(json.dumps({**panel.spec, **title, "width": width})))
    spec["config"] = {**spec.get("config", {}), "background": "transparent"}
    spec.pop("$schema", None)  # not allowed in a chart that becomes part of another
    return alt.LayerChart.from_dict(spec)


def arranged(charts: list[alt.LayerChart], columns: int) -> Any:
    """Arrange charts in rows of `columns`, stating shared properties once."""
    plain, datasets = [], {}
    for chart in charts:
        one = chart.copy()
        one.config, one.padding = alt.Undefined, alt.Undefined
        datasets |= {} if one.datasets is alt.Undefined else one.datasets.to_dict()
        one.datasets = alt.Undefined
        plain.append(one)
    if len(charts) == 1:
        return charts[0]
    joined = alt.concat(*plain, columns=columns)
    joined.config, joined.datasets = charts[0].config, datasets
    return joined


def show_charts_offline() -> None:
    """In notebooks, render all Altair charts without a network, unless the user has chosen a renderer."""
    alt.renderers.register(RENDERER, render)
    if alt.renderers.active in _DEFAULTS and in_notebook():
        alt.renderers.enable(RENDERER)


def render(spec: dict[str, Any], **metadata: Any) -> dict[str, str]:
    """An Altair renderer: any chart as a picture that needs neither scripts nor a network.

    Select it with `alt.renderers.enable("infoflow")`; this library's figures enable it if no other was chosen.
    `live=True` puts the interactive chart over the picture (0.5 MB each).
    """
    panel = Panel(spec={**spec, "width": ONE_PANEL} if spec.get("width") == "container" else spec)
    still = picture(panel, 0, "chart")
    shown = live_html(still, [panel.spec], 0) if metadata.get("live") else still
    return {"text/html": str(in_theme(shown)), "text/plain": "chart"}


def live_html(still: Markup, specs: list[dict[str, Any]], width: int) -> Markup:
    """Interactive charts over a static picture of them, each at most `width` pixels wide (0: its own width).

    The frame may run only its own scripts; untrusted notebooks drop it and keep the picture.
    """
    page = (
        environment()
        .get_template("notebook_live.html.jinja")
        .render(
            engine=_engine(),
            specs=embedded(specs),
            config=embedded(vega_config() if any("var(--" in json.dumps(spec) for spec in specs) else {}),
            width=width,
            light=Markup(css_variables(LIGHT)),
            dark=Markup(css_variables(DARK)),
        )
    )
    return Markup(_FRAME).format(still, page)


@cache
def _engine() -> str:
    """Vega, compressed to a third, which the browser unpacks."""
    return base64.b64encode(gzip.compress(closed(javascript()).encode(), mtime=0)).decode()
