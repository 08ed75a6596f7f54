"""Drawing in a process of its own: the same pictures, and one message where the engine dies."""

import os
import subprocess
import sys

import pytest
from report.drawn import drawing_engine as _engine

from infoflow.foundation import UserError

SPEC = {
    "data": {"values": [{"a": 1, "b": 2.5}, {"a": 2, "b": None}]},
    "mark": "bar",
    "encoding": {"x": {"field": "a", "type": "ordinal"}, "y": {"field": "b", "type": "quantitative"}},
}
LIMITED = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30))
from infoflow.foundation import UserError
from infoflow.report._drawing import svg_of
for _ in range(2):
    try:
        svg_of({})
    except UserError as error:
        print(str(error).splitlines()[0])
"""


def test_pictures_are_those_of_the_engine_in_this_process() -> None:
    import vl_convert

    svg = _engine.svg_of(SPEC)
    assert len(svg) == len(vl_convert.vegalite_to_svg(SPEC))  # ids count through a process
    assert _engine.png_of(svg, scale=2.0) == vl_convert.svg_to_png(svg, scale=2.0)
    assert _engine.pdf_of(svg).startswith(b"%PDF")
    assert _engine.javascript() == vl_convert.javascript_bundle()


def test_a_chart_that_the_engine_refuses_is_our_bug_and_the_next_one_is_drawn() -> None:
    with pytest.raises(RuntimeError, match="refused a chart"):
        _engine.svg_of({"mark": {"type": "nonsense"}, "encoding": 3})
    assert _engine.svg_of(SPEC).startswith("<svg")


def test_an_engine_that_was_killed_is_told_and_started_again() -> None:
    _engine.svg_of(SPEC)
    process = _engine._process(os.getpid())
    process.kill()
    process.wait()
    with pytest.raises(UserError, match=r"drawing engine ended \(SIGKILL\).*\n.*infoflow report"):
        _engine.svg_of(SPEC)
    assert _engine.svg_of(SPEC).startswith("<svg")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux")
def test_a_limit_on_addresses_is_told() -> None:
    answer = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=120, check=True)
    lines = answer.stdout.splitlines()
    assert len(lines) == 2
    assert all("drawing engine ended (SIG" in line and "ulimit -v" in line for line in lines)
