"""The section on transplanted heads: sentences from the data, curves that agree with the table, what is left out."""

import json

import numpy as np
import pytest
from drawn import drawn_section
from support.transplanted import GAIN, STEPS, Transplants, write_run

from infoflow.report import write_report
from infoflow.results import RunFolder


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return write_run(tmp_path_factory.mktemp("transplanted"), Transplants())


@pytest.fixture(scope="module")
def figure(run):
    section = drawn_section(run, "transplant")
    assert section is not None
    (figure,) = section.figures
    return figure


def figure_of(path, **changes):
    section = drawn_section(write_run(path, Transplants(**changes)), "transplant")
    assert section is not None
    return section.figures[0]


def test_what_came_out_is_told_from_the_numbers(figure) -> None:
    told, control, bleu = figure.answer
    logs = np.log(STEPS[1:])
    gap = np.array(GAIN["specialised"][1:]) - np.array(GAIN["random"][1:])
    area = float(np.trapezoid(gap, logs) / (logs[-1] - logs[0]))
    assert told.startswith("In a fresh model of translation, specialised heads gain ")
    assert f"heads gain {area:.2f}" in told
    assert told.count("against random ones over the whole curve and gain 0.0") == 2
    assert "; frozen, they gain 0.1" in told
    assert "chance" not in told
    assert control.startswith("The control: shuffled heads ")
    assert control.count("against the model's own over the whole curve") == 2
    assert control.count(", may be chance)") >= 2
    assert bleu.startswith("In BLEU at the end, specialised heads gain 1.5")
    assert bleu.endswith("(the trained model has 25.0).")


def test_curves_are_means_and_gains_are_differences(run, figure) -> None:
    data, table = figure.data, run.tables["transplant_curves"].query("metric == 'loss'")
    for arm in ("none", "specialised", "random", "shuffled"):
        for frozen in (False, True):
            for step in STEPS[1:]:
                at = data[(data["arm"] == arm) & (data["frozen"] == frozen) & (data["step"] == step)]
                own = table[(table["arm"] == arm) & (table["frozen"] == frozen) & (table["step"] == step)]
                loss = at[at["what"] == "loss"].iloc[0]
                assert loss["value"] == pytest.approx(own.groupby("seed")["value"].mean().mean(), abs=1e-4)
                assert loss["low"] < loss["value"] < loss["high"]
                if arm == "none":
                    assert len(at) == 1
                    continue
                plain = table[(table["arm"] == "none") & (table["frozen"] == frozen) & (table["step"] == step)]
                gain = at[at["what"] == "gain"].iloc[0]
                expected = plain["value"].mean() - own.groupby("seed")["value"].mean().mean()
                assert gain["value"] == pytest.approx(expected, abs=1e-4)
                assert gain["high"] - gain["low"] < 0.8 * (loss["high"] - loss["low"])  # sentences are paired
    assert 0 not in set(data["step"])  # the axis is logarithmic


def test_frozen_stands_beside_not_frozen_and_lines_have_names(figure) -> None:
    assert [panel.title for panel in figure.panels] == [
        "Heads keep learning",
        "Frozen heads",
        "Heads keep learning, gain over the model's own heads",
        "Frozen heads, gain over the model's own heads",
    ]
    names = [json.dumps(panel.spec, ensure_ascii=False) for panel in figure.panels]
    assert all(f"{mark} {label}" in names[0] for mark, label in (("●", "specialised heads"), ("◆", "its own heads")))
    assert "its own heads" not in names[2].split('"datasets"')[1]
    assert "4 heads put into each fresh model, random ones as the mean of 2 draws" in figure.caption
    assert "Means over 3 seeds" in figure.caption
    assert figure.findings == ("heads:H1",)


def test_the_page_tells_the_method_and_the_verdict(run) -> None:
    page = write_report(run).read_text(encoding="utf-8")
    assert '<section id="transplant"' in page
    assert 'id="method-transplant"' in page
    assert "heads:H1" in page


def test_how_many_roles_hold_by_chance_stands_below(figure, tmp_path) -> None:
    assert "by chance" not in figure.caption
    said = "3 of the 6 specialised heads hold a role; by chance, at most 1.2 roles would be held per model."
    assert said in figure_of(tmp_path, by_chance=1.2).caption
