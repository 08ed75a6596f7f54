"""Figures of a run in Python: their names, what they say, their files, and what a notebook shows of them."""

import ast
import base64
import re
import tomllib
from pathlib import Path

import pytest

from infoflow.foundation import UserError
from infoflow.report import Figures, render, write_figures

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures(study, report):
    return Figures(study)


def stated():
    from drawn import sections

    return {id: name for heading, _ in sections() for id, name in heading.names.items()}


def test_every_figure_that_the_code_makes_has_a_name_that_its_section_states():
    """Ids are read from the code, so that a section that is added without names does not pass."""
    drawn = set()
    folder = ROOT / "src/infoflow"
    for path in [*folder.glob("report/*/_*.py"), *folder.glob("subjects/*/figures/_*.py")]:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(call, ast.Call)
                and getattr(call.func, "id", "") == "ReportFigure"
                and path.parent.name != "notebook"
            ):
                ids = [keyword.value for keyword in call.keywords if keyword.arg == "id"]
                drawn |= {one.value for one in ids if isinstance(one, ast.Constant)}
    assert len(drawn) > 50
    assert drawn <= set(stated())


def test_every_figure_of_a_study_with_all_tables_has_a_stated_name(whole, whole_story, monkeypatch):
    from drawn import sections

    made = {section.id: section for section in whole_story.sections}
    monkeypatch.setattr("infoflow.report._story.Sources.section", lambda sources, heading, *rest: made.get(heading.id))
    figures = Figures(whole)
    names = list(figures)
    assert len(names) > 45
    assert len(set(names)) == len(names)
    known = tuple(stated().values())
    assert [name for name in names if not name.startswith(known)] == []
    assert {heading.id for heading, _ in sections() if not heading.names} == set()


def test_names_are_a_room_and_a_noun_and_each_is_given_once():
    names = list(stated().values())
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"[a-z-]+/[a-z-]+", name)] == []
    from drawn import sections

    one_room = {heading.id for heading, _ in sections()} | {"representations", "scale"}  # several sections
    assert {name.partition("/")[0] for name in names} <= one_room


def test_a_figure_says_what_the_report_says(figures, story):
    told = next(figure for figure in story.figures if figure.id == "mi-input")
    figure = figures["representations/mutual-information"]
    assert figure.question == told.question
    assert figure.answer == " ".join(told.answer)
    assert figure.caption == told.caption
    assert figure.how_to_read.splitlines() == told.how_to_read
    assert len(figure.data) == len(told.data)


def test_the_report_s_own_id_names_a_figure_too(figures):
    assert figures["mi-input"].name == "representations/mutual-information"
    assert figures["mi-input"].id == "mi-input"


def test_figures_come_section_by_section(figures, story):
    assert [figure.id for figure in figures.values()] == [figure.id for figure in story.figures]
    assert figures.questions == {name: figure.question for name, figure in figures.items()}
    rooms = [[name.partition("/")[0] for name in names] for names in (figures.questions, figures)]
    assert rooms[0] == rooms[1], "the page folds figures within their section"


def test_one_figure_makes_its_own_section_and_no_other(study):
    figures = Figures(study)
    assert figures["heads/map"].question
    assert set(figures._made) == {"heads"}


def test_an_unknown_name_is_answered_with_the_three_nearest(figures):
    with pytest.raises(
        UserError, match=r"no figure 'reprsentations/mutual-informtion'.*Nearest: ([^,]+, ){2}[^,]+\. "
    ) as told:
        figures["reprsentations/mutual-informtion"]
    assert "Nearest: representations/mutual-information," in str(told.value)


def test_a_name_that_this_run_has_no_tables_for_says_so(figures):
    with pytest.raises(UserError, match="its tables hold nothing for it"):
        figures["pruning/gates"]


def test_membership_and_default(figures):
    assert "heads/map" in figures
    assert "heads/mop" not in figures
    assert figures.get("heads/mop") is None


@pytest.mark.parametrize(("kind", "width"), [("svg", 3.3), ("png", 6.8), ("pdf", 3.3)])
def test_a_saved_figure_has_the_bytes_of_the_command_line(tmp_path, kind, width):
    from synthetic_run import make_analysis

    small = make_analysis(tmp_path / "small", tables=("head_confidence", "head_entropy"))
    written = {path.name: path for path in write_figures(small, tmp_path / "all", (kind,), width)}
    heads = Figures(small)["heads/map"]
    assert set(written) == {f"head-map-{choice}.{kind}" for choice in heads.choices}
    for choice in heads.choices:
        saved = heads.choose(choice).save(tmp_path / f"{choice}.{kind}", width=width)
        assert _timeless(saved) == _timeless(written[f"head-map-{choice}.{kind}"])


def _timeless(path):
    """The bytes; of a PDF without its numbers, since the converter numbers objects as it comes to them."""
    content = path.read_bytes()
    return (len(content), re.sub(rb"[0-9A-Z+]+", b"", content[:4000])) if path.suffix == ".pdf" else content


@pytest.mark.parametrize("name", ["figure.gif", "figure"])
def test_other_endings_are_refused(figures, tmp_path, name):
    with pytest.raises(UserError, match=r"must end in \.svg"):
        figures["heads/map"].save(tmp_path / name)


def test_an_impossible_width_is_refused(figures, tmp_path):
    with pytest.raises(UserError, match=r"2\.\.20 inches. Got 60"):
        figures["heads/map"].save(tmp_path / "map.svg", width=60)


def test_a_choice_changes_the_picture_and_an_unknown_one_is_refused(figures):
    heads = figures["heads/map"]
    assert heads.choices[:2] == ("confidence", "entropy")
    assert heads._repr_html_() == heads.choose("confidence")._repr_html_()
    assert heads._repr_html_() != heads.choose("entropy")._repr_html_()
    with pytest.raises(UserError, match="Write one of: confidence, entropy"):
        heads.choose("sharpness")
    with pytest.raises(UserError, match="has no choices"):
        figures["mi-input"].choose("entropy")


@pytest.mark.parametrize("name", ["mi-input", "mi-plane", "head-map", "task-scores"])
def test_a_bundle_holds_what_notebooks_may_hold(figures, name):
    bundle = figures[name]._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "image/png"}
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG\r\n\x1a\n")
    assert len(bundle["text/html"]) + len(bundle["image/png"]) < 300_000
    start, style, shown = re.split(r"<style>(.*?)</style>", bundle["text/html"])
    assert not re.search(r"<(script|iframe|svg|style)\b|https?://", start + shown)
    assert set(re.findall(r"\{(.*?)\}", style)) == {"color-scheme:light", "color-scheme:dark"}  # nothing if dropped
    assert all(part.split("{")[0].endswith(" .infoflow") for part in re.split(r"[,}]", style) if part.strip())


def test_pictures_follow_light_and_dark_and_name_no_variable_without_a_colour(figures):
    for name in ("mi-input", "head-map"):
        for svg in _pictures(figures[name]._repr_html_()):
            assert "prefers-color-scheme:dark" in svg
            used = set(re.findall(r"var\(--([a-z0-9-]+)\)", svg))
            assert used <= set(re.findall(r"--([a-z0-9-]+):#", svg))
            assert re.search(r'<svg[^>]* width="\d+"', svg)
            assert re.search(r'<svg[^>]* height="\d+"', svg)


def _pictures(html):
    return [base64.b64decode(one).decode() for one in re.findall(r"image/svg\+xml;base64,([^\"]+)", html)]


def test_labels_have_room_for_wider_fonts_than_those_they_were_drawn_with(figures):
    """Of Liberation Sans and DejaVu Sans, the widest usual one, labels of 11 pixels differ by up to a sixth."""
    svg = _pictures(figures["mi-input"]._repr_html_())[0]
    left, _, width, _ = map(float, re.search(r'viewBox="([^"]+)"', svg)[1].split())
    place = re.search(r"translate\(([\d.]+),[\d.]+\)[^>]*>translation<", svg)
    assert place
    assert left + width > float(place[1]) + len("translation") * 11 * 0.6


def test_a_chart_is_altair_s_and_names_colours(figures):
    import altair as alt

    plane = figures["representations/information-plane"]
    assert len(plane.charts) == 2
    for chart in plane.charts:
        assert isinstance(chart, alt.LayerChart)
        assert "var(--" not in chart.properties(title="mine").to_json()
    assert "var(--" not in plane.chart.to_json()
    assert isinstance(figures["mi-input"].chart.to_dict()["width"], int)


def test_the_renderer_shows_any_chart_without_a_network():
    chart = {
        "data": {"values": [{"a": 1, "b": 2}]},
        "mark": "bar",
        "encoding": {"x": {"field": "a", "type": "quantitative"}},
    }
    still = render(chart)
    assert set(still) == {"text/html", "text/plain"}
    assert len(_pictures(still["text/html"])) == 1
    assert "prefers-color-scheme" not in _pictures(still["text/html"])[0]  # its black text stays on white
    assert "http" not in still["text/html"]
    assert '<iframe sandbox="allow-scripts"' in render(chart, live=True)["text/html"]


def test_the_installed_package_names_its_renderer():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["altair.vegalite.v6.renderer"] == {"infoflow": "infoflow.report:render"}


def test_a_live_figure_is_a_sandboxed_frame_over_its_picture(figures):
    html = figures["mi-input"].live()._repr_html_()
    assert _pictures(html.partition("<iframe")[0])
    assert 'sandbox="allow-scripts"' in html
    assert "allow-same-origin" not in html
    assert len(html) < 600_000
    assert len(repr(figures["mi-input"].live())) < 100


def test_the_same_figure_of_two_runs_stands_side_by_side_on_the_same_axes(figures, analysis, tmp_path):
    from synthetic_run import make_study

    other = Figures(make_study(tmp_path / "other", seeds=(1,)))
    name = figures.run.path.name
    both = figures["mi-input"].beside(other["mi-input"])
    assert [panel.title.rpartition(", ")[2] for panel in both._panels] == [name, "other"]
    domains = {str(chart.to_dict()["layer"][1]["encoding"]["y"]["scale"]["domain"]) for chart in both.charts}
    assert len(domains) == 1
    assert set(both.data["run"]) == {name, "other"}
    assert both.answer.startswith(f"{name}: Estimate limited by its clusters: from layer 0")
    maps = figures["head-map"].beside(other["head-map"], names=("three seeds", "one"))
    assert {panel.title.rpartition(", ")[2] for panel in maps._panels} == {"three seeds", "one"}


def test_figures_side_by_side_need_one_kind_and_names_of_their_own(figures):
    with pytest.raises(UserError, match="must have the same name"):
        figures["mi-input"].beside(figures["head-map"])
    with pytest.raises(UserError, match=r"a unique name\. Got (\w+), \1\."):
        figures["mi-input"].beside(figures["mi-input"])


def test_what_is_shown_of_a_figure_is_short(figures):
    assert all(len(repr(figure)) < 400 for figure in figures.values())
    assert len(repr(figures)) < 400
