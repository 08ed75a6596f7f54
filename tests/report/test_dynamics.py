"""The section on training: sentences from the data, bars that can be replayed, and what is left out."""

import json
import re

import pandas as pd
import pytest
from drawn import drawn_section
from dynamics.synthetic import Recordings, write_run
from synthetic_run import write_again

from infoflow.report import write_report
from infoflow.results import RunFolder

ANSWERS = {
    "allocation-bars": "Shares of the blocks' contribution: causal LM: feed-forward",
    "allocation-loss": "causal LM 0.01% of a fall of 4.91 nats (trapezoid; first order: 0.51%)",
    "allocation-heads": "causal LM: most in layer 0",
    "allocation-hurting": "masked LM: query hurt most often, in 3% of the steps (last at update 481)",
    "allocation-histogram": "causal LM: in an average step 52% of the blocks' parameters helped, 46% hurt",
    "allocation-similarity": "One objective under two seeds: causal LM: decoder",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return write_run(tmp_path_factory.mktemp("recorded"), Recordings(layer_sign={("causal-lm", 5): -0.2}))


@pytest.fixture(scope="module")
def figures(run):
    section = drawn_section(run, "dynamics")
    assert section is not None
    return {figure.id: figure for figure in section.figures}


def test_every_question_is_answered_from_the_data(figures) -> None:
    assert set(figures) == set(ANSWERS)
    for name, start in ANSWERS.items():
        assert start in " ".join(figures[name].answer), figures[name].answer


@pytest.mark.parametrize("still", [["causal-lm"], ["causal-lm", "masked-lm", "translation"]])
def test_blocks_that_no_change_of_the_loss_is_told_of_leave_the_rest_of_the_section(run, tmp_path, still) -> None:
    """As of a generator's loss, which moves nothing in the blocks of its discriminator."""

    def unmoved(table: pd.DataFrame) -> pd.DataFrame:
        alike = table["objective"].isin(still)
        return pd.concat([table[~alike], table[alike].assign(low=0.0, high=0.0)])

    other = RunFolder(tmp_path)
    other.update(kind="study", title="Unmoved")
    for name in run.tables:
        stored = run.tables.stored(name)
        frame = unmoved(stored.frame) if name == "allocation_histogram" else stored.frame
        write_again(other, frame, stored.schema)
    section = drawn_section(other, "dynamics")
    assert section is not None
    figures = {figure.id: figure for figure in section.figures}
    assert set(figures) - {"allocation-histogram"} == set(ANSWERS) - {"allocation-histogram"}
    if len(still) > 1:
        assert "allocation-histogram" not in figures
        return
    (answer,) = figures["allocation-histogram"].answer
    assert "causal LM: no parameter of the blocks changed the loss; masked LM: in an average step" in answer
    assert figures["allocation-histogram"].panels[0].title == "masked LM"


def test_the_bars_of_the_last_moment_are_the_totals(run, figures) -> None:
    figure = figures["allocation-bars"]
    assert [panel.title for panel in figure.panels] == [
        "causal LM",
        "masked LM",
        "translation: encoder",
        "translation: decoder",
    ]
    moments = figure.payload["frames"]
    assert moments == sorted(moments)
    assert moments[-1] == 24 * 40
    data = figure.data
    last = data[(data["update"] == moments[-1]) & (data["series"] == "masked-lm")]
    assert last["share"].sum() == pytest.approx(100)
    groups = run.tables["allocation_groups"]
    own = groups[(groups["objective"] == "masked-lm") & (groups["layer"] >= 0)]
    share = own[(own["layer"] == 2) & (own["component"] == "mlp_in")]["value"].sum() / own["value"].sum()
    found = last[(last["layer"] == 2) & (last["component"] == "mlp_in")]["share"].item()
    assert found == pytest.approx(100 * share, rel=0.03)  # the steps of the synthetic run are noisy
    negative = data[(data["series"] == "causal-lm") & (data["layer"] == 5) & (data["update"] == moments[-1])]
    assert (negative["share"] < 0).all()


def test_charts_follow_the_slider_and_name_colours_as_variables(figures) -> None:
    for panel in figures["allocation-bars"].panels:
        text = json.dumps(panel.spec)
        assert '"frame"' in text
        assert "datum.shares[shown][frame]" in text
    for figure in figures.values():
        assert not re.findall(r'"#[0-9a-f]{6}"', json.dumps([panel.spec for panel in figure.panels]))


def test_the_sentences_can_be_chosen(run, figures, tmp_path) -> None:
    other = RunFolder(tmp_path)
    other.update(kind="study", title="On two sets")
    for name in run.tables:
        stored = run.tables.stored(name)
        frame = stored.frame
        if "set" in frame:
            held_out = frame.assign(set="held-out")
            if "value" in frame and name != "allocation_reliability":
                held_out = held_out.assign(value=frame["value"].where(frame["layer"] != 2, frame["value"] / 2))
            frame = pd.concat([frame, held_out], ignore_index=True)
        write_again(other, frame, stored.schema)
    section = drawn_section(other, "dynamics")
    assert section is not None
    found = {figure.id: figure for figure in section.figures}
    for name in ("allocation-bars", "allocation-loss", "allocation-heads"):
        assert found[name].payload["sets"] == ["training sentences", "held-out sentences"]
        assert figures[name].payload["sets"] == ["training sentences"]
        data = found[name].data
        pd.testing.assert_frame_equal(
            data[data["set"] == "train"].reset_index(drop=True), figures[name].data, check_like=True
        )
    (bars,) = [panel.spec for panel in found["allocation-bars"].panels if panel.title == "masked LM"]
    for row in bars["layer"][0]["data"]["values"]:
        on_train, on_held_out = (moments[-1] for moments in row["shares"])
        assert (on_held_out < on_train) == (row["layer"] == 2)
    assert "On held-out sentences no share" in " ".join(found["allocation-bars"].answer)
    assert "On held-out sentences the loss fell by causal LM" in " ".join(found["allocation-loss"].answer)
    page = write_report(other).read_text()
    assert page.count('class="shown-set"') == 3


def test_heads_are_shares_of_the_whole_map(figures) -> None:
    data = figures["allocation-heads"].data
    sums = data["map"].abs().groupby([data["series"], data["stack"], data["kind"]]).sum()
    assert sums.to_numpy() == pytest.approx(100)


def test_the_page_holds_the_section_and_a_run_without_recording_does_not(run, tmp_path) -> None:
    page = write_report(run).read_text()
    assert 'class="replay"' in page
    assert 'id="method-loss-change"' in page
    empty = RunFolder(tmp_path)
    empty.update(kind="study", title="Empty")
    assert drawn_section(empty, "dynamics") is None
