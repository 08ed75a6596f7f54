import re
import struct

import pytest

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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"formats": ("svg", "bmp")}, "Got bmp"),
        ({"formats": ()}, "Got none"),
        ({"width_inches": 0.5}, "must lie in 2..20"),
    ],
)
def test_mistakes_are_explained(small, tmp_path, arguments, message):
    with pytest.raises(UserError, match=re.escape(message)):
        write_figures(small, tmp_path, **arguments)
