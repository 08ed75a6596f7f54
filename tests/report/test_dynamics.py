"""The section on training: sentences from the data, shares by layer, component and update, and what is left out."""

import json
import re

import pandas as pd
import pytest
from drawn import drawn_section
from dynamics.synthetic import Recordings, write_run
from synthetic_run import write_again

from infoflow.report import write_report
from infoflow.results import RunFolder
from infoflow.subjects.allocation.measures import hurting_table

ANSWERS = {
    "allocation-components": "The share of feed-forward in the blocks' contribution is ",
    "allocation-loss": "The sum of all allocations misses the loss change by at most 0.0101%",
    "allocation-heads": "The largest share of one layer's heads is ",
    "allocation-hurting": "is highest for query in masked LM, 3.03%",
    "allocation-histogram": "changes that moved the loss, is 53.0% in causal LM",
    "allocation-similarity": "The rank correlation of the shares is highest within ",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return write_run(tmp_path_factory.mktemp("recorded"), Recordings(layer_sign={("causal-lm", 5): -0.2}))


@pytest.fixture(scope="module")
def figures(run):
    section = drawn_section(run, "dynamics")
    assert section is not None
    return {figure.id: figure for figure in section.figures}


def test_blocks_that_no_change_of_the_loss_is_told_of_leave_the_rest_of_the_section(run, tmp_path) -> None:
    """As of a generator's loss, which moves nothing in the blocks of its discriminator."""

    def unmoved(table: pd.DataFrame) -> pd.DataFrame:
        alike = table["objective"] == "causal-lm"
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
    assert "in causal LM" not in figures["allocation-histogram"].words
    assert figures["allocation-histogram"].panels[0].title == "masked LM"


def test_one_seed_is_no_mean_and_a_single_layer_has_no_share_to_compare(run, tmp_path) -> None:
    other = RunFolder(tmp_path)
    other.update(kind="study", title="One seed")
    for name in run.tables:
        stored = run.tables.stored(name)
        frame = stored.frame
        for column in {"seed", "seed_a", "seed_b"} & set(frame):
            frame = frame[frame[column] == 0]
        if name == "allocation_heads":
            frame = frame[(frame["objective"] != "translation") | (frame["layer"] == 0)]
        if len(frame):
            write_again(other, frame, stored.schema)
    section = drawn_section(other, "dynamics")
    captions = {figure.id: figure.caption for figure in section.figures}
    assert captions["allocation-heads"].startswith("One seed; sums over the whole training.")
    assert captions["allocation-hurting"].startswith("One seed; on training sentences, in ")
    assert not any("eans over" in caption for caption in captions.values())
    (heads,) = (figure.words for figure in section.figures if figure.id == "allocation-heads")
    assert "translation" not in heads
    assert "100%" not in heads


def test_the_shares_of_the_last_moment_are_the_totals(run, figures) -> None:
    figure = figures["allocation-components"]
    views = {group.id: group for group in figure.payload["metrics"]}
    assert list(views) == ["over-layers", "over-components", "over-training", "raised"]
    titles = ["causal LM", "masked LM", "translation: encoder", "translation: decoder"]
    assert all([panel.title for panel in group.panels] == titles for group in views.values())
    data = figure.data[figure.data["part"] == "sum"]
    assert data["update"].max() == 24 * 40
    last = data[(data["update"] == data["update"].max()) & (data["series"] == "masked-lm")]
    cells, components = last[last["layer"].notna()], last[last["layer"].isna()].set_index("component")
    assert cells["value"].sum() == pytest.approx(100)
    assert (cells["low"] <= cells["value"]).all()
    assert cells["control"].sum() == pytest.approx(100)
    for component, own in cells.groupby("component"):
        assert own["value"].sum() == pytest.approx(components.loc[component, "value"])
        assert own["control"].sum() == pytest.approx(components.loc[component, "control"])
    groups = run.tables["allocation_groups"]
    own = groups[(groups["objective"] == "masked-lm") & (groups["layer"] >= 0)]
    share = own[(own["layer"] == 2) & (own["component"] == "mlp_in")]["value"].sum() / own["value"].sum()
    found = cells[(cells["layer"] == 2) & (cells["component"] == "mlp_in")]["value"].item()
    assert found == pytest.approx(100 * share, rel=0.03)  # the steps of the synthetic run are noisy
    weights = own[(own["layer"] == 2) & (own["component"] == "mlp_in")]["parameters"].sum() / own["parameters"].sum()
    assert cells[(cells["layer"] == 2) & (cells["component"] == "mlp_in")]["control"].item() == pytest.approx(
        100 * weights
    )
    negative = data[(data["series"] == "causal-lm") & (data["layer"] == 5) & (data["update"] == data["update"].max())]
    assert (negative["value"] < 0).all()


def test_views_have_controls_bands_and_colours_as_variables(figures) -> None:
    groups = figures["allocation-components"].payload["metrics"]
    for panel in (panel for group in groups for panel in group.panels):
        assert "datum.set === shown" in json.dumps(panel.spec)
        assert '"strokeDash"' in json.dumps(panel.spec)
        assert "area" in [layer["mark"]["type"] for layer in panel.spec["layer"]]
    charts = [panel for group in groups for panel in group.panels]
    for spec in (panel.spec for panel in [*charts, *(panel for own in figures.values() for panel in own.panels)]):
        assert not re.findall(r'"#[0-9a-f]{6}"', json.dumps(spec))


def test_the_table_of_hurting_parameters_has_a_column_for_each_objective(run, figures) -> None:
    payload = figures["allocation-hurting"].payload
    assert payload["columns"] == ["causal LM", "masked LM", "translation"]
    components = ["embeddings", "key", "query", "value", "output", "W1", "W2"]
    assert list(payload["rows"]) == [
        *components,
        "last step that hurt",
        "largest rise [nats]",
        "single parameters (control)",
    ]
    assert payload["rows"]["query"] == ["0 (0.0%)", "30 (3.0%)", "2 (0.1%)"]  # both stacks of translation
    assert payload["rows"]["last step that hurt"] == ["10", "481", "22"]
    assert payload["rows"]["single parameters (control)"] == ["47.0%"] * 3
    table = run.tables["allocation_hurting"]
    more = table["component"].eq("value") & table["level"].eq("block") & table["objective"].eq("masked-lm")
    rare = pd.DataFrame(table.assign(largest=table["largest"].mask(more, 68.18)))
    assert hurting_table(rare).loc["largest rise [nats]", "masked-lm"] == "68 (value)"
    none = rare.assign(last_hurt=-1, largest=-0.1, hurt=0.0)
    assert set(hurting_table(none).loc[["last step that hurt", "largest rise [nats]"]].to_numpy().ravel()) == {"none"}


def test_the_positive_part_is_what_layers_raised(run, figures) -> None:
    data = figures["allocation-components"].data
    data = data[data["part"] == "raised"]
    raised = data[data["series"] == "causal-lm"]
    steps = run.tables["allocation_steps"]
    own = steps[(steps["objective"] == "causal-lm") & (steps["layer"] >= 0)]
    shares = []
    for _, seed in own.groupby("seed"):
        up = seed.loc[(seed["component"] == "mlp_out") & (seed["value"] > 0), "value"].sum()
        shares.append(100 * up / abs(seed["value"].sum()))
    found = raised.loc[raised["component"] == "mlp_out", "value"].sum()
    assert found == pytest.approx(sum(shares) / len(shares))
    assert found > 0  # layer 5 moved against the loss
    assert (data.loc[data["series"] == "masked-lm", "value"] == 0).all()


@pytest.mark.slow
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
    for name in ("allocation-components", "allocation-loss", "allocation-heads"):
        assert found[name].payload["sets"] == ["training sentences", "held-out sentences"]
        assert figures[name].payload["sets"] == ["training sentences"]
        data = found[name].data
        pd.testing.assert_frame_equal(
            data[data["set"] == "train"].reset_index(drop=True), figures[name].data, check_like=True
        )
    shares = found["allocation-components"].data
    last = shares[(shares["update"] == shares["update"].max()) & shares["layer"].notna()]
    cells = last[last["series"] == "masked-lm"].pivot(index=["layer", "component"], columns="set", values="value")
    layers = cells.index.get_level_values("layer")
    assert ((cells["held-out"] < cells["train"]) == (layers == 2)).all()
    assert "On held-out sentences no share" in " ".join(found["allocation-components"].answer)
    assert "On held-out sentences the loss fell by " in " ".join(found["allocation-loss"].answer)
    page = write_report(other).read_text()
    assert page.count('class="shown-set"') == 3


def test_the_page_holds_the_section_and_a_run_without_recording_does_not(run, tmp_path) -> None:
    page = write_report(run).read_text()
    assert 'data-key="allocation"' in page
    assert '<th scope="row">largest rise [nats]</th>' in page
    assert 'id="method-loss-change"' in page
    empty = RunFolder(tmp_path)
    empty.update(kind="study", title="Empty")
    assert drawn_section(empty, "dynamics") is None
