"""Numbers in words: as figures tell them, and the rule by which they are rounded."""

import math
import re

import small_run
from drawn import drawn_figures
from hypothesis import given
from hypothesis import strategies as st
from report.drawn import decimals, number

from infoflow.report import write_report
from infoflow.results import RunFolder


@given(st.floats(-1e3, 1e3), st.floats(1e-4, 1e2))
def test_rounding_never_hides_more_than_half_of_the_interval(value, half):
    shown = float(number(value, decimals(value - half, value + half, value)).replace("−", "-").replace(",", ""))
    assert abs(shown - value) <= half / 2 + 1e-9


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e2))
def test_rounding_shows_no_digit_far_below_the_interval(value, half):
    assert 10.0 ** -decimals(value - half, value + half, value) >= half / 100


def test_estimates_in_words(tmp_path):
    told = [
        ((1.3274, 1.19, 1.48), "1.33 (1.19 to 1.48)"),
        ((-0.0204, -0.03, -0.01), "−0.020 (−0.030 to −0.010)"),
        ((0.412, math.nan, math.nan), "0.412"),
        ((3 / 35, 3 / 35 - 2e-17, 3 / 35 + 2e-17), "0.0857 (0.0857 to 0.0857)"),  # a point, but for rounding
        ((31.24, 29.3, 32.4), "31.2 (29.3 to 32.4)"),
        ((1234.5, 1100.0, 1400.0), "1,234 (1,100 to 1,400)"),
        ((-0.004, -0.054, 0.046), "0.00 (−0.05 to 0.05)"),  # zero has no sign
    ]
    rows = [
        small_run.information("causal-lm", layer, value=value, low=low, high=high, baseline=0.0, count=10)
        for layer, ((value, low, high), _) in enumerate(told)
    ]
    data = drawn_figures(small_run.write_run(tmp_path, mutual_information=rows), "knows")["mi-input"].data
    assert data.loc[data["group"] == "trained", "shown"].tolist() == [text for _, text in told]


def test_the_unit_stands_between_value_and_interval(tmp_path):
    row = small_run.information("causal-lm", 0, value=1.33, low=1.2, high=1.5, baseline=0.0, count=10)
    (answer,) = drawn_figures(small_run.write_run(tmp_path, mutual_information=[row]), "knows")["mi-input"].answer
    assert "causal LM has 1.33 nats (1.20 to 1.50)" in answer


def test_bare_numbers(tmp_path):
    told = {"a": (0.05, "0.05"), "b": (-0.00001, "0"), "c": (183.04, "183"), "d": (math.nan, "–"), "e": (0.0, "0")}
    rows = [
        small_run.keys_of("masked-lm", model=name)
        | {"split": "test", "metric": "loss", "signature": "", **small_run.estimate(4.0, 0.1, reference)}
        for name, (reference, _) in told.items()
    ]
    run = small_run.write_run(tmp_path, kind="analyze", task_scores=rows)
    (answer,) = drawn_figures(run, "training")["task-scores"].answer
    for name, (_, text) in told.items():
        assert re.search(rf"\b{name} 4\.00 \(3\.90 to 4\.10\) against {text}[,;]", answer), name


def test_durations(tmp_path):
    told = {12.4: "12 s", 89: "89 s", 482: "8 min", 4635.9: "1 h 17 min"}
    run = RunFolder(tmp_path)
    keys = {"objective": "masked-lm", "seed": 0}
    run.update(kind="analyze", models=[{"name": f"m{seconds}", **keys, "seconds": seconds} for seconds in told])
    page = write_report(run).read_text(encoding="utf-8")
    row = r'<th scope="row"><b class="name s\d+">m([\d.]+)</b></th>(?:<td>[^<]*</td>)*<td>([^<]*)</td>'
    assert {float(seconds): text for seconds, text in re.findall(row, page)} == told
