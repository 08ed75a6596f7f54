"""The whole report as one HTML file that opens in any browser."""

import base64
import gzip
import re
from collections.abc import Callable, Collection, Iterable
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from jinja2 import Environment
from markupsafe import Markup, escape

from infoflow.foundation import UserError, atomic_write, check_writable, version
from infoflow.results import RunFolder

from ._drawing import drawing_ahead, javascript, static_svg
from ._embedding import asset, check_replaceable, closed, environment, pack_figures, packed_json, policy, style
from ._figure import Panel, PanelGroup, ReportFigure, Section
from ._model_tables import unless_damaged
from ._shown_run import ShownRun, claim_groups, parts_text, settings, stage_times
from ._story import Story, sections, tell
from ._summary import VERDICTS, model_rows, study_line, verdict_line
from ._theme import vega_config
from .notebook._plot import known_tables
from .representations._token_map import MARKS, legend_mark

_Stated = TypeVar("_Stated")
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]+$)")
_LONG_CSV, _LONGEST_CSV = 40_000, 150_000  # characters above which data are compressed, or left out
_ONE_PANEL, _SMALL_PANEL = 620, 330  # pixels of the static pictures


def write_report(run: RunFolder | PathLike[str] | str, anonymous: bool = False) -> Path:
    """Write the run's report.html: one file, readable offline, complete or not written at all.

    The report names local files but no folders; `anonymous` hides file names, too.

    It shows what the run's tables contain and leaves out the rest. Returns its path.

    Raises:
        UserError: There is no run, it is damaged, or another program's file has the report's name.
    """
    run = RunFolder.of(run)
    check_replaceable(run.report)
    shown = ShownRun(run.path, anonymous)
    with drawing_ahead() as begin:
        page = pack_figures(render_page(shown, tell(shown, lambda section: _begin(section, begin))))
    with atomic_write(run.report) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return run.report


def anonymize(run: RunFolder) -> Path:
    """Remove paths and names of local files from run.json and the tables, and rewrite the report; returns its path."""
    shown = ShownRun(run.path, anonymous=True)
    entries, renamed = {**shown.read(), "anonymous": True}, shown.renamed_tables()
    for table in renamed:
        run.tables.write(table.frame, table.schema, table.provenance)
    run.update(**entries)
    return write_report(run)


def _contents(sections: list[Section], claims: bool) -> list[Section]:
    findings = Section(id="findings", short="Claims", title="Do published claims hold here?", lead="")
    methods = Section(id="methods", short="Methods", title="Methods and provenance", lead="")
    return [*sections, *([findings] if claims else []), methods]


def render_page(run: RunFolder, story: Story) -> str:
    manifest, left_out = run.read(), list(story.left_out)

    def stated(name: str, tell: Callable[[], _Stated], otherwise: _Stated) -> _Stated:
        return unless_damaged(tell, otherwise, name, left_out)

    own = dict.fromkeys(section.script for section in story.sections if section.script)
    # report.js starts the scripts before it
    names = ("page.js", "attention.js", *own, "navigation.js", "report.js", "words.js")
    scripts = [_vega(), *(closed(asset(name)) for name in names)]
    template = _environment(story).get_template("report.html.jinja")
    return template.render(
        title=manifest.get("title") or run.path.name,
        kind=manifest.get("kind", "analyze"),
        study_line=stated("what was studied", lambda: study_line(run, story.models), ""),
        models=stated("the table of models", lambda: model_rows(run, story.models), []),
        screen=story.screen,
        contents=_contents(story.sections, bool(story.findings)),
        findings=story.findings,
        claim_groups=claim_groups(story.findings, story.sections, [heading for heading, _ in sections()]),
        verdict_line=verdict_line(story.findings),
        verdicts=VERDICTS,
        sections=story.sections,
        parts=stated("the parts of the corpus", lambda: parts_text(run), ""),
        stages=stated("the time per stage", lambda: stage_times(run), None),
        recipe=stated("the papers' settings", lambda: _recipe(run), []),
        recipe_columns=_PUBLISHED,
        settings=stated("the settings", lambda: settings(run), {}),
        tables={name: run.tables.stored(name) for name in run.tables},
        command=manifest.get("command", ""),
        version=version("infoflow"),
        style=Markup(style("style.css", "front_page.css", "attention.css", "words.css", with_subjects=True)),
        chart_config=vega_config(),  # once, for all charts
        scripts=[Markup(script) for script in scripts],
        policy=policy(scripts),
        warnings=[*manifest.get("warnings", []), *left_out],  # after the sections that may add to them
        methods=list(dict.fromkeys(figure.method for figure in story.figures)),
    )


def _environment(story: Story) -> Environment:
    made = environment()
    made.filters |= {
        "live": lambda panel: packed_json({k: v for k, v in panel.spec.items() if k != "config"}),
        "named": lambda text: _named(text, story),
        "named_here": lambda text: _named(text, story, story.screen.dull if story.screen else ()),
        "csv_address": _csv_address,
        "legend_mark": legend_mark,
    }
    made.globals |= {"marks": MARKS, "static_pictures": _static_pictures}
    return made


def _named(text: str, story: Story, dull: Collection[str] = ()) -> Markup:
    """Escaped text with names of objectives and models in their colours, grey for `dull` lines."""
    slots = {
        str(escape(series.label)).casefold(): "dull" if series.key in dull else f"s{series.slot}"
        for series in story.models.series
        if series.label
    }
    if not slots:
        return escape(text)
    names = "|".join(re.escape(label) for label in sorted(slots, key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w&#])({names})(?!\w)", re.IGNORECASE)
    return Markup(pattern.sub(lambda m: f'<b class="name {slots[m[1].casefold()]}">{m[1]}</b>', str(escape(text))))


def _static_pictures(figure: ReportFigure | PanelGroup) -> list[Markup]:
    """Each panel as inline SVG, for print and browsers without scripts."""
    width = _static_width(figure)
    return [Markup(static_svg(panel, width, f"{figure.id}-{index}")) for index, panel in enumerate(figure.panels)]


def _static_width(figure: ReportFigure | PanelGroup) -> int:
    return _ONE_PANEL if len(figure.panels) == 1 else _SMALL_PANEL


def _begin(section: Section, begin: Callable[[Panel, int], None]) -> None:
    """Start drawing a section's static pictures; figures of several metrics are drawn on request."""
    for figure in section.figures:
        for panel in figure.panels if "metrics" not in figure.payload else ():
            begin(panel, _static_width(figure))


def _csv_address(figure: ReportFigure) -> str:
    """The figure's data as a `data:` address, compressed if long; "" if it would make the page too large.

    The data of the head map are generated on the page instead.
    """
    if figure.template == "heads.html.jinja":
        return ""
    columns = [column for column in figure.data if column not in ("shown", "replicates")]
    text = harmless(figure.data[columns]).to_csv(index=False, float_format="%.6g")
    if len(text) <= _LONG_CSV:
        return "data:text/csv;charset=utf-8;base64," + base64.b64encode(text.encode()).decode()
    compressed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return "" if len(compressed) > _LONGEST_CSV else f"data:application/gzip;base64,{compressed}"


def harmless(frame: pd.DataFrame) -> pd.DataFrame:
    """Make texts harmless to spreadsheets: those that would run as formulas get an apostrophe; numbers stay.

    Carriage returns, which spreadsheets but not CSV writers take for row ends, become line feeds.
    """

    def cell(value: object) -> object:
        if not isinstance(value, str):
            return value
        text = value.replace("\r\n", "\n").replace("\r", "\n")
        return f"'{text}" if _FORMULA.match(value) else text

    texts = [name for name, kind in frame.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)]
    renamed = frame.rename(columns=lambda name: cell(name))
    return renamed.assign(**{str(cell(name)): frame[name].map(cell) for name in texts})


@cache
def _vega() -> str:
    return closed(javascript())


_PUBLISHED = ("this study", "Voita et al. 2019", "lecture slides")
_RECIPE = (
    ("text", "", "WMT, English to German or French", "Europarl, WMT"),
    ("vocabulary", "corpus.vocabulary", "about 32,000", "–"),
    ("layers", "model.layers", "6", "12"),
    ("decoder layers", "", "6", "–"),
    ("width", "model.width", "512", "512"),
    ("heads", "model.heads", "8", "8"),
    ("feed-forward width", "model.feedforward", "2,048", "2,048"),
    ("positions", "", "fixed sinusoids", "–"),
    ("dropout", "model.dropout", "0.1", "0.1"),
    ("attention dropout", "model.attention_dropout", "–", "0"),
    ("peak learning rate", "training.learning_rate", "0.0014", "0.0005"),
    ("schedule", "", "inverse square root", "polynomial"),
    ("warm-up, updates", "", "16,000", "8,000"),
    ("updates", "", "until convergence", "125,000 or 600,000"),
    ("batch", "", "about 16,000 source tokens", "256 or 2,048 samples of 512 tokens"),
    ("Adam, β and ε", "", "0.9, 0.98, 1e-09", "0.9, 0.98, 1e-06"),
    ("weight decay", "training.weight_decay", "–", "0.01"),
    ("gradient clipping", "", "–", "off"),
    ("label smoothing", "training.label_smoothing", "0.1", "–"),
)
"""Each setting, its place in a plan ("" if more than one decides), and its published values: Voita et al. 2019 (both
papers; rate, warm-up, batch and smoothing as in the authors' scripts for the heads paper) and the lecture's slides
(fairseq's RoBERTa, and its study of LM and MT)."""


def _recipe(run: RunFolder) -> list[tuple[str, str, str, str]]:
    """Each setting with its value in this study and the two published values; [] unless the run is a study."""
    manifest = run.read()
    if manifest.get("kind") != "study":
        return []
    plan = {name: manifest.get("plan", {}).get(name) or {} for name in ("corpus", "model", "training")}
    corpus, model, training = plan.values()
    updates, warmup = training.get("updates", 0), training.get("warmup", 0)
    betas, epsilon = training.get("betas") or (), training.get("epsilon")
    amplitude = model.get("sinusoidal_positions")
    ours = {
        "text": f"{corpus.get('name', '–')}, at most {corpus.get('max_words', '–')} words",
        "decoder layers": _setting(model.get("decoder_layers") or model.get("layers")),
        "positions": f"fixed sinusoids × {amplitude:g}" if amplitude else "learned",
        "schedule": str(training.get("schedule", "–")).replace("_", " "),
        "warm-up, updates": _setting(round(warmup * updates) if warmup < 1 else warmup),
        "updates": _setting(updates),
        "batch": f"{_setting(training.get('batch_tokens'))} source tokens",
        "Adam, β and ε": ", ".join(_setting(value) for value in (*betas, epsilon)),
        "gradient clipping": _setting(training.get("clip") or "off"),
    }
    for name, place, *_ in _RECIPE:
        section, _, key = place.partition(".")
        ours.setdefault(name, _setting(plan.get(section, {}).get(key)))
    return [(name, ours[name], *published) for name, _, *published in _RECIPE]


def _setting(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


_FOLDERS = ("tables", "models", "work")


def check_output(run: RunFolder, kind: str, *, tables: Iterable[str] = ()) -> dict[str, Any]:
    """The current contents of run.json; rejects a folder in which a run of this kind cannot be completed.

    Args:
        run: The folder, which may not exist yet.
        kind: The command's name in run.json.
        tables: Names of tables written by the user's measures.
    """
    check_writable(run.path)
    before = run.read()
    if before and before.get("kind") != kind:
        raise UserError(f"{run.path} holds a run of another kind ({before.get('kind')}). Choose another --out.")
    check_replaceable(run.report)
    for name in _FOLDERS:
        if (path := run.path / name).exists() and not path.is_dir():
            raise UserError(f"{path} must be a folder. It is a file. Move it, or choose another --out.")
    run.tables.check_replaceable([*known_tables(), *tables])
    return before
