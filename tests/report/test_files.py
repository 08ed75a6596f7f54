import re
import struct

import pytest
from whole_study import InMemory

import infoflow
from infoflow.foundation import UserError
from infoflow.report import write_figures

KINDS = ("svg", "png", "pdf")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    from synthetic_run import make_analysis

    return make_analysis(tmp_path_factory.mktemp("small"), tables=("mutual_information", "head_confidence"))


@pytest.fixture(scope="module", params=[6.8, 3.3])
def written(request, small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    return request.param, folder, write_figures(small, folder, KINDS, width_inches=request.param)


def test_every_figure_is_written_in_every_format(written):
    _, folder, paths = written
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in paths)
    assert {p.name for p in paths} == {
        f"{n}.{k}" for n in ("mi-input", "mi-convergence", "head-map-confidence") for k in KINDS
    }


def test_svg_is_exactly_as_wide_as_asked_and_in_plain_colours(written):
    width, folder, _ = written
    text = (folder / "mi-input.svg").read_text()
    assert f'width="{width}in"' in text
    assert "var(--" not in text
    assert "layer (0 = embeddings)" in text


def test_png_has_300_dots_per_inch(written):
    width, folder, _ = written
    data = (folder / "mi-input.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">I", data[16:20])[0] == pytest.approx(300 * width, abs=2)


def test_pdf_has_the_width_in_points_and_its_fonts_inside(written):
    width, folder, _ = written
    data = (folder / "mi-input.pdf").read_bytes()
    assert data.startswith(b"%PDF")
    box = re.search(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ([\d.]+)", data)
    assert box
    assert float(box[1]) == pytest.approx(72 * width, abs=0.5)
    assert b"/FontFile" in data


def test_only_the_formats_asked_for(small, tmp_path):
    assert {path.suffix for path in write_figures(small, tmp_path, ("svg",))} == {".svg"}


def test_a_run_writes_its_figures_itself_and_stands_for_its_folder(small, tmp_path):
    run = infoflow.Run(small.path)
    alone = run.write_figures(tmp_path / "figures", ("svg",), width=3.3, columns=1)
    assert [path.read_bytes() for path in alone] == [
        path.read_bytes() for path in write_figures(run, tmp_path / "same", ("svg",), 3.3, 1)
    ]
    assert infoflow.write_report(run) == infoflow.write_report(str(small.path)) == small.report
    with pytest.raises(UserError, match="is not a run folder"):
        infoflow.Run(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"formats": ("svg", "bmp")}, "Got bmp"),
        ({"formats": ()}, "Got none"),
        ({"width_inches": 0.5}, "must lie in 2..20"),
        ({"columns": 0}, "columns must lie in 1..4 at a width of 6.8 inches"),
        ({"columns": 5}, "Got 5. Write fewer columns or a larger width."),
        ({"columns": 3, "width_inches": 3.3}, "columns must lie in 1..2 at a width of 3.3 inches"),
    ],
)
def test_mistakes_are_explained(small, tmp_path, arguments, message):
    with pytest.raises(UserError, match=re.escape(message)):
        write_figures(small, tmp_path, **arguments)


def written_alone(run, name, folder, columns=None):
    """The files of one table's figures at 6.8 inches, by their names."""
    alone = InMemory(run.read(), {name: run.tables[name]})
    return {path.stem: path.read_text() for path in write_figures(alone, folder, ("svg",), 6.8, columns)}


@pytest.mark.parametrize(("columns", "places"), [(1, [0] * 5), (2, [0, 1, 0, 1, 0]), (4, [0, 1, 2, 3, 0])])
def test_panels_stand_side_by_side_as_asked(study, tmp_path, columns, places):
    """Each panel as a cell of a grid: as many across as there are columns, each cell as wide as its share."""
    (svg,) = written_alone(study, "head_confidence", tmp_path, columns).values()
    across, down = zip(*re.findall(r'<g transform="translate\(([\d.]+),([\d.]+)\)"><svg', svg), strict=True)
    cell = (6.8 * 96 - 14 * (columns - 1)) / columns  # 96 pixels are an inch
    assert [float(x) for x in across] == pytest.approx([place * (cell + 14) for place in places], abs=0.02)
    assert len(set(down)) == -(-5 // columns)
    assert [float(width) for width in re.findall(r'"><svg [^>]*?width="([\d.]+)"', svg)] == pytest.approx(
        [round(cell)] * 5, abs=1
    )


def test_more_columns_than_panels_leave_no_gap(small, tmp_path):
    four, one, free = (written_alone(small, "mutual_information", tmp_path, columns) for columns in (4, 1, None))
    assert four["mi-input"] == one["mi-input"] == free["mi-input"]
