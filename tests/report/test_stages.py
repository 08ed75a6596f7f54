"""Time per stage stands with the provenance, the longest stage first."""

import re

import pytest
from synthetic_run import make_study

from infoflow.report import write_report


def _stage(number: int) -> dict:
    kind = "train" if number % 2 else "measure"
    return {"label": f"{kind} model-{number}", "kind": kind, "seconds": 100.0 * number, "cpu_seconds": 150.0 * number,
            "peak_memory": 2**30}  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    run = make_study(
        tmp_path_factory.mktemp("stages"), seeds=(1,), objectives=("causal-lm",), tables=("training_runs",)
    )
    run.update(stages=[_stage(number) for number in (1, 3, 2, *range(4, 16))])
    return write_report(run).read_text(encoding="utf-8")


@pytest.mark.browser
def test_all_columns_are_seen_on_a_phone(page, tmp_path, visit) -> None:
    path = tmp_path / "report.html"
    path.write_text(page.replace("train model-15", "measure translation+token-dropout/seed-15 on-another-corpus"))
    opened = visit(path, width=390)
    opened.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    widths = "(boxes) => boxes.map((box) => box.scrollWidth - box.clientWidth)"
    assert opened.locator("#stages .scroll").evaluate_all(widths) == [0, 0]


def test_the_longest_stage_comes_first_with_the_longest_bar(page) -> None:
    rows = re.findall(r'<th scope="row">((?:train|measure) model-\d+)</th><td><span[^>]*width:([\d.]+)%', page)
    assert [int(label.split("-")[1]) for label, _ in rows] == list(range(15, 0, -1))
    assert [float(width) for _, width in rows] == pytest.approx([100 * n / 15 for n in range(15, 0, -1)], abs=0.1)


def test_each_has_its_times_and_memory_and_short_ones_are_folded(page) -> None:
    row = page[page.index("train model-15") :][:200]
    assert "<td>25 min</td><td>38 min</td><td>1.1 GB</td>" in row
    assert "15 stages, the longest first. Totals: train 1 h 47 min and measure 1 h 33 min." in page
    assert "<summary>3 shorter ones</summary>" in page


@pytest.mark.filterwarnings("ignore")
def test_a_run_without_stages_or_with_odd_ones_has_a_page(tmp_path) -> None:
    run = make_study(tmp_path, seeds=(1,), objectives=("causal-lm",), tables=("training_runs",))
    assert 'id="stages"' not in write_report(run).read_text(encoding="utf-8")
    run.update(stages=[{"label": "x"}])
    assert "leaves out the time per stage" in write_report(run).read_text(encoding="utf-8")
