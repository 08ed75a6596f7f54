"""The section on retrieval: sentences and pictures from the data, controls, what is missing, text that is escaped."""

import re

import numpy as np
import pandas as pd
import pytest
import retrieved
from drawn import assert_explained, drawn_figures, drawn_section, tell
from findings.retrieved_tables import HOSTILE, LEARNED, UPWARD, Retrieved

from infoflow.report import write_report
from infoflow.results import RunFolder

pytestmark = pytest.mark.slow

NOT_SURPRISING = ("retrieval-examples",)
IDS = [
    "knowledge-arms", "stored-bits", "evidence-depth", "memory-exposure", "evidence-upward", "evidence-heads",
    "evidence-ablation", "conflict", "index-swap", "retrieval-scores", "null-passage", "retrieval-learning",
    "retrieval-course", "retrieval-learned", "retrieval-examples",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return retrieved.write_run(tmp_path_factory.mktemp("retrieved"), Retrieved(seeds=(1, 2)))


@pytest.fixture(scope="module")
def story(run):
    return tell(run)


@pytest.fixture(scope="module")
def section(story):
    (found,) = (one for one in story.sections if one.id == "retrieval")
    return found


@pytest.fixture(scope="module")
def figures(section):
    return {figure.id: figure for figure in section.figures}


def rows_of(panel, **wanted) -> list[dict]:
    rows = [row for rows in panel.spec["datasets"].values() for row in rows]
    return [row for row in rows if all(row.get(name) == value for name, value in wanted.items())]


def strings(panel) -> set[str]:
    return {str(value) for row in rows_of(panel) for value in row.values()}


def test_figures_come_in_order(figures) -> None:
    assert list(figures) == IDS


def test_it_says_that_readers_came_able_to_read(section, tmp_path) -> None:
    plain = section.lead
    assert plain.endswith("which heads carry it?")
    given = Retrieved(seeds=(1, 2), arms=("closed-book", LEARNED))
    able = retrieved.write_run(tmp_path, given, only=("knowledge", "retrieval_scores"))
    scores, knowledge = (given.tables([name])[name] for name in ("retrieval_scores", "knowledge"))
    told = scores[scores["metric"] == "learned"].assign(metric="read_updates", value=1250.0)
    retrieved.write_table(able, "retrieval_scores", pd.concat([scores, told], ignore_index=True))
    reads = ~knowledge["trained"] & (knowledge["facts"] == "held out") & (knowledge["document"] == "gold")
    retrieved.write_table(able, "knowledge", knowledge.assign(value=knowledge["value"].mask(reads, 0.875)))
    assert drawn_section(able, "retrieval").lead.removeprefix(plain) == (
        " Before this training, their initial reader learned to read right passages of another world in 1,250 updates "
        "and then answered 0.88 of this world's held-out questions with the right passage; “untrained” means this "
        "reader here."
    )


def test_every_figure_says_how_to_read_it_and_how_it_was_made(figures) -> None:
    assert_explained(figures.values(), NOT_SURPRISING)


def test_right_answers_are_means_over_seeds(run, figures) -> None:
    figure, table = figures["knowledge-arms"], run.tables["knowledge"]
    assert [panel.title for panel in figure.panels] == [
        "without a passage", "with passages it finds", "with the right passage", "with a random passage",
    ]  # fmt: skip
    own = table[(table["reading"] == "raw") & (table["metric"] == "p1") & (table["index"] == "as-trained")]
    own = own[(own["facts"] == "trained") & (own["weight"] == 16) & own["trained"] & (own["layer"] == -1)]
    mean = own[(own["objective"] == "closed-book") & (own["variant"] == "") & (own["document"] == "none")][
        "value"
    ].mean()
    drawn = figure.data.query("series == 'closed-book' and trained and exposure == '16×' and document == 'none'")
    assert drawn["value"].item() == pytest.approx(mean)
    assert "without a passage: 80% in closed book" in figure.answer[0]
    assert "97% in learned retriever" in figure.answer[1]
    assert {row["exposure"] for row in rows_of(figure.panels[0]) if "exposure" in row} == {
        "1×", "4×", "16×", "held out", "withheld",
    }  # fmt: skip
    assert "⋯ guess" in strings(figure.panels[0])


def test_halves_and_centres_are_marked(figures) -> None:
    figure = figures["evidence-depth"]
    marks = rows_of(figure.panels[0], series=LEARNED, document="gold")
    centres = [row for row in marks if "centre" in row]
    assert len(centres) == 1
    assert centres[0]["layer"] == pytest.approx(2.2, abs=0.01)
    assert "In learned retriever, evidence enters around state 2.2 (half at 2.0)." in figure.answer
    assert "In closed book, memory is read around state 3.6 (half at 4.0)." in figure.answer
    assert not any("closed book evidence" in text for text in figure.answer)


def test_what_a_reader_finds_stands_beside_the_right_passage(figures, tmp_path) -> None:
    figure = figures["evidence-depth"]
    assert [panel.title.split(":")[0] for panel in figure.panels] == ["evidence", "what is found", "memory"]
    found, right = figure.panels[1], figure.panels[0]
    assert {row["series"] for row in rows_of(found) if "series" in row} == {LEARNED}, "the others find none"
    assert {row["series"] for row in rows_of(right) if "series" in row} > {LEARNED, "closed-book"}
    assert "In learned retriever, what is found enters around state 2.6 (half at 2.0)." in figure.answer
    assert "the third has none" in figure.how_to_read[1]
    given = Retrieved(seeds=(1,))
    table = given.tables(["knowledge_lens"])["knowledge_lens"]
    run = retrieved.write_run(tmp_path, given, only=("knowledge_lens",))
    retrieved.write_table(run, "knowledge_lens", table[table["document"] != "retrieved"])
    figure = drawn_figures(run, "retrieval")["evidence-depth"]
    assert [panel.title.split(":")[0] for panel in figure.panels] == ["evidence", "memory"]
    assert "the second has none" in figure.how_to_read[1]


def test_memory_is_drawn_by_exposure_beside_facts_that_stand_nowhere(run, figures) -> None:
    figure, table = figures["memory-exposure"], run.tables["knowledge_lens"]
    titles = ["trained facts, 1×", "trained facts, 4×", "trained facts, 16×", "withheld facts (control)"]
    assert [panel.title for panel in figure.panels] == titles
    own = table[(table["objective"] == "closed-book") & table["trained"] & (table["lens"] == "tuned")]
    own = own[(own["document"] == "none") & (own["metric"] == "probability") & (own["layer"] == 4)]
    drawn = figure.data.query("series == 'closed-book' and trained and layer == 4").set_index("exposure")["value"]
    for weight in (1, 4, 16):
        wanted = own[(own["facts"] == "trained") & (own["weight"] == weight)]["value"].mean()
        assert drawn[f"{weight}×"] == pytest.approx(wanted)
    assert drawn["withheld"] == pytest.approx(own[own["facts"] == "withheld"]["value"].mean())
    assert drawn["16×"] > drawn["4×"] > drawn["1×"]
    assert "In closed book, facts asked 1× are read around state 3.6 (half at 4.0)" in figure.answer[0]
    assert not [row for row in rows_of(figure.panels[3]) if "centre" in row], "the control has no mark"


def test_no_interval_of_a_share_reaches_beyond_one(tmp_path) -> None:
    """Three seeds near 1 have a t interval that does."""
    given = Retrieved(seeds=(1, 2, 3), noise=0.02)
    given.hits = dict.fromkeys(given.hits, 0.985)
    given.right = dict.fromkeys(given.right, 0.985)
    run = retrieved.write_run(tmp_path, given, only=("retrieval_scores", "knowledge"))
    found = drawn_figures(run, "retrieval")
    for one in ("retrieval-scores", "knowledge-arms"):
        data = found[one].data.dropna(subset=["low", "high"])
        data = data[data["value"].between(0, 1)]  # noise puts some invented shares beyond
        assert len(data)
        assert (data["low"] >= 0).all()
        assert (data["high"] <= 1).all()


def test_readers_are_followed_over_updates(run, figures) -> None:
    figure, table = figures["retrieval-course"], run.tables["retrieval_course"]
    assert [panel.title for panel in figure.panels] == [
        "right answers, facts held out", "right answers, trained facts",
        "retrieval utility, trained facts", "log-likelihood, trained facts",
    ]  # fmt: skip
    own = table[(table["objective"] == LEARNED) & (table["metric"] == "p1") & (table["facts"] == "held out")]
    drawn = figure.data.query("series == @LEARNED and metric == 'p1' and facts == 'held out'").set_index("update")
    for update in (0, 250, 1000):
        values = own[own["update"] == update]["value"]
        assert drawn.loc[update, "value"] == pytest.approx(values.mean())
        assert drawn.loc[update, "low"] < values.mean() < drawn.loc[update, "high"]  # no range: an interval
    assert set(rows_of(figure.panels[2])[0]) >= {"series", "update", "value"}
    assert not rows_of(figure.panels[2], series="closed-book"), "it has no utility"
    assert "learned retriever 93% (half of the rise by update 250)" in figure.answer[0]


def test_what_retriever_and_reader_removed_adds_up(run, figures) -> None:
    figure, steps = figures["retrieval-learned"], run.tables["allocation_steps"]
    assert [panel.title for panel in figure.panels] == ["learned retriever"]
    drawn = figure.data.set_index(["part", "update"])["value"]
    by_seed = steps.groupby(["seed", "component", "end"])["value"].sum()
    last = int(steps["end"].max())
    for component, part in (("retriever", "retriever"), ("query", "attention"), ("embeddings", "embeddings")):
        sums = [-by_seed[seed][component].sum() for seed in (1, 2)]
        assert drawn[part, last] == pytest.approx(np.mean(sums))
        assert drawn[part, 0] == 0
        first = min(steps["end"])
        assert drawn[part, first] == pytest.approx(np.mean([-by_seed[seed][component][first] for seed in (1, 2)]))
    ends = figure.data[figure.data["update"] == last]
    assert ends["value"].sum() == pytest.approx(-steps["value"].sum() / 2)
    assert (ends["low"] <= ends["value"]).all()
    assert (ends["value"] <= ends["high"]).all()
    done = drawn["retriever"]
    half = int(done[done >= done[last] / 2].index.min())
    assert f"The retriever has made half of its contribution by update {half:,}." in figure.answer[0]


def test_models_without_passages_are_no_readers(tmp_path) -> None:
    """Their recordings are in the section on learning, and those of readers are not."""
    run = retrieved.write_run(tmp_path, Retrieved(seeds=(1,)), only=("allocation_steps", "evidence_heads"))
    steps = pd.DataFrame(run.tables["allocation_steps"])
    other = steps.assign(objective="masked-lm", model="masked-lm/seed-1", term="masked-lm")
    retrieved.write_table(run, "allocation_steps", pd.concat([steps, other]))
    figure = drawn_figures(run, "retrieval")["retrieval-learned"]
    assert set(figure.data["series"]) == {LEARNED}
    retrieved.write_table(run, "allocation_steps", other)
    assert list(drawn_figures(run, "retrieval")) == ["evidence-heads"]


def test_knock_outs_are_told_from_the_bottom(figures) -> None:
    figure = figures["evidence-upward"]
    assert [panel.title for panel in figure.panels] == [
        "right passage given", "right passage given about two entities", "learned retriever",
    ]  # fmt: skip
    assert set(figure.data["what"]) == set(UPWARD)
    assert "mask→evidence costs 90 points" in figure.answer[0]
    assert "– – random edges" in strings(figure.panels[0])


def test_heads_are_squares_of_layer_and_head(figures) -> None:
    figure = figures["evidence-heads"]
    assert "3 of 16 heads copy in a tenth" in figure.answer[0]
    assert "head 1.2 (layer.head)" in figure.answer[0]
    (square,) = rows_of(figure.panels[0], label="layer 1", place="2")
    assert square["value"] == pytest.approx(0.7, abs=0.01)
    assert "random document" in square["shown"]


def test_heads_that_copy_are_counted_in_each_seed(tmp_path) -> None:
    """In other places in each seed: of the means over seeds six would copy."""
    given = Retrieved(seeds=(1, 2))
    table = given.tables(["evidence_heads"])["evidence_heads"]
    moved = table.assign(head=(table["head"] + (table["seed"] == 2)) % 4)
    run = retrieved.write_run(tmp_path, given, only=("evidence_heads",))
    retrieved.write_table(run, "evidence_heads", moved)
    figure = drawn_figures(run, "retrieval")["evidence-heads"]
    assert all(
        "3 of 16 heads copy in a tenth of the questions or more, mean over seeds" in one for one in figure.answer
    )
    zero = moved.assign(value=moved["value"].where((moved["seed"] == 1) | (moved["layer"] != 2), 0.0))
    retrieved.write_table(run, "evidence_heads", zero)  # two of the three lie in layer 2
    assert "2 of 16 heads" in drawn_figures(run, "retrieval")["evidence-heads"].answer[0]


def test_figures_of_heads_and_edges_are_about_all_exposures(run, figures) -> None:
    """Rows of single exposures stand in the tables, with other numbers."""
    for name, table in (("evidence-ablation", "evidence_ablation"), ("evidence-heads", "evidence_heads")):
        rows, drawn = run.tables[table], figures[name].data
        assert set(rows["weight"]) == {-1, 1, 4, 16}
        own = rows[(rows["weight"] == -1) & (rows["objective"] == LEARNED) & rows["trained"]]
        kind = "trained" if name == "evidence-ablation" else "held out"
        own = own[(own["facts"] == kind) & (own["document"] == "gold") & own["metric"].isin(["p1", "copy"])]
        by = ["removed"] if name == "evidence-ablation" else ["layer", "head"]
        wanted = own.groupby(by)["value"].mean()
        shown = drawn[(drawn["series"] == LEARNED)]
        shown = shown[shown["document"] == "gold"] if "document" in shown else shown
        assert shown.set_index(by)["value"].sort_index().to_numpy() == pytest.approx(wanted.sort_index().to_numpy())


def test_another_index_stands_beside_the_first(figures) -> None:
    figure = figures["index-swap"]
    assert "changed facts: new object 85%" in figure.answer[1]
    assert set(figure.data["index"]) == {"as-trained", "edited"}
    both = {round(row["value"], 1) for row in rows_of(figure.panels[1], label="changed facts: old object")}
    assert both == {0.0, 1.0}  # with the edited index, and as a grey cross with the first one


def test_one_document_counts_where_an_index_is_swapped(tmp_path) -> None:
    given = Retrieved(seeds=(1,), arms=("closed-book", LEARNED))
    table = given.tables(["knowledge"])["knowledge"]
    found = table[(table["document"] == "own") & (table["objective"] == LEARNED)]
    run = retrieved.write_run(tmp_path, given, only=("retrieval_scores",))
    retrieved.write_table(run, "knowledge", pd.concat([table, found.assign(document="retrieved", value=0.123)]))
    data = drawn_figures(run, "retrieval")["index-swap"].data
    assert not (data["value"] == 0.123).any()
    new = data.query(f"series == '{LEARNED}' and index == 'edited' and label == 'changed facts: new object'")
    assert new["value"].item() == pytest.approx(0.85, abs=0.02)


def test_the_empty_passage_may_take_facts_instead(tmp_path) -> None:
    given = Retrieved(seeds=(1,))
    rows = given.tables(["retrieval_scores"])["retrieval_scores"]
    run = retrieved.write_run(tmp_path, given, only=("retrieval_scores",))
    more = drawn_figures(run, "retrieval")["null-passage"].answer
    assert any("the prior of the empty passage is 0.75" in text and "higher for language" in text for text in more)
    swapped = rows.assign(queries=rows["queries"].replace({"language": "facts", "facts": "language"}))
    retrieved.write_table(run, "retrieval_scores", swapped)
    less = drawn_figures(run, "retrieval")["null-passage"].answer
    assert any("the prior of the empty passage is 0.75" in text and "lower for language" in text for text in less)


def test_learning_is_of_all_updates_and_thinned(tmp_path, figures) -> None:
    figure = figures["retrieval-learning"]
    assert [panel.title for panel in figure.panels][:2] == ["reader term", "retriever term"]
    assert figure.data["update"].max() == 1000
    given = Retrieved(seeds=(1,))
    table = given.tables(["retrieval_learning"])["retrieval_learning"]
    own = table[table["objective"] == LEARNED]
    many = pd.concat([own.assign(update=own["update"] + 1000 * turn) for turn in range(10)])
    run = retrieved.write_run(tmp_path, given, only=("knowledge",))
    retrieved.write_table(run, "retrieval_learning", many)
    data = drawn_figures(run, "retrieval")["retrieval-learning"].data
    assert 100 < data[data["term"] == "reader term"]["update"].nunique() <= 122
    assert data["update"].max() == 10_000


def test_numbers_that_are_undefined_are_left_out(tmp_path) -> None:
    given = Retrieved(seeds=(1,), arms=("closed-book", "read-gold"))
    run = retrieved.write_run(tmp_path, given, only=("knowledge",))
    conflict = given.tables(["knowledge_conflict"])["knowledge_conflict"]
    nothing = conflict["objective"] == "read-gold"
    retrieved.write_table(run, "knowledge_conflict", conflict.assign(value=conflict["value"].mask(nothing)))
    figure = drawn_figures(run, "retrieval")["conflict"]
    assert set(figure.data["series"]) == {"closed-book"}
    lens = given.tables(["knowledge_lens"])["knowledge_lens"]
    retrieved.write_table(run, "knowledge_lens", lens[~lens["metric"].isin(["half", "centre"])])
    assert drawn_figures(run, "retrieval")["evidence-depth"].answer == ["No line gains enough to determine a depth."]


def test_text_of_passages_is_escaped(tmp_path) -> None:
    given = Retrieved(seeds=(1,))
    given.hostile = HOSTILE
    run = retrieved.write_run(tmp_path, given, only=("retrieval_examples",))
    page = write_report(run).read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert page.count("&lt;script&gt;alert(1)") >= 4


def test_examples_show_passages_probabilities_and_layers(figures, tmp_path) -> None:
    cards = figures["retrieval-examples"].payload["cards"]
    assert [card["model"] for card in cards] == ["closed book", "learned retriever"] * 2
    last = cards[-1]
    assert [one["prior"] for one in last["passages"]] == ["0.90", "0.07", "0.03"]
    assert [one["text"] for one in last["passages"]][-1] == "∅"
    assert [one["right"] for one in last["passages"][0]["layers"]] == [False, False, True, True, True]
    assert last["passages"][0]["gold"]
    assert not last["passages"][1]["gold"]
    alone = retrieved.write_run(tmp_path, Retrieved(seeds=(1,)), only=("retrieval_examples",))
    page = write_report(alone).read_text(encoding="utf-8")
    assert "ben roth works as a nurse" in page
    assert "(holds the fact)" in page


def test_all_readers_are_shown_with_the_same_questions(tmp_path) -> None:
    """Also where there are many of both: a closed book alone would fill the room."""
    run = retrieved.write_run(tmp_path, Retrieved(seeds=(1,)), only=("retrieval_examples",))
    table = pd.DataFrame(run.tables["retrieval_examples"])
    more = [table.assign(question=f"{number}: " + table["question"]) for number in range(9)]
    retrieved.write_table(run, "retrieval_examples", pd.concat(more, ignore_index=True))
    cards = drawn_figures(run, "retrieval")["retrieval-examples"].payload["cards"]
    asked = {
        label: [(card["question"], card["facts"]) for card in cards if card["model"] == label]
        for label in ("closed book", "learned retriever")
    }
    assert len(cards) == 24
    assert asked["closed book"] == asked["learned retriever"]
    assert [kind for _, kind in asked["closed book"]] == ["trained", "held out"] * 6


def test_the_card_tells_what_the_right_passage_adds(tmp_path):
    given = Retrieved(seeds=(1, 2), arms=("closed-book", "read-gold"))
    run = retrieved.write_run(tmp_path, given, only=("knowledge",))
    table = run.tables["knowledge"]
    retrieved.write_table(run, "knowledge", table[table["variant"] == ""])
    (card,) = [one for one in tell(run).screen.cards if one.figure == "knowledge-arms"]
    rows = table[
        (table["facts"] == "trained") & (table["weight"] == -1) & (table["metric"] == "p1") & table["trained"]
        & (table["reading"] == "raw") & (table["layer"] == -1) & (table["index"] == "as-trained")
        & (table["variant"] == "")
    ]  # fmt: skip
    told = dict(re.findall(r"(closed book|right passage given) (?:by )?([\d.]+)", card.sentence))
    for arm, label in (("read-gold", "right passage given"), ("closed-book", "closed book")):
        own = rows[rows["objective"] == arm].groupby("document")["value"].mean()
        assert float(told[label]) == pytest.approx(100 * abs(own["gold"] - own["none"]), abs=0.6), card.sentence


def test_answers_about_real_text_are_told_by_what_is_read(tmp_path) -> None:
    """A panel for each kind of question and passage that there is; the sentence has its numbers."""
    given = Retrieved(seeds=(1, 2))
    shares = {
        ("trained", "none"): 0.3,
        ("trained", "gold"): 0.7,
        ("held out", "none"): 0.1,
        ("held out", "gold"): 0.6,
        ("held out", "random"): 0.05,
    }
    rows = [
        given._row(keys, share if keys["trained"] else 0.0, 0.02, system=system, queries=queries, metric="em", k=0)
        for label, keys in given.models("closed-book", "read-gold")
        for (queries, system), share in shares.items()
        if label == "read-gold" or system != "gold"
    ]
    run = retrieved.write_run(tmp_path, given, only=("retrieval_learning",))
    retrieved.write_table(run, "retrieval_scores", pd.DataFrame(rows))
    figure = drawn_figures(run, "retrieval")["text-answers"]
    assert [panel.title for panel in figure.panels] == [
        "questions of training, no passage",
        "questions of training, the right passage",
        "new questions, no passage",
        "new questions, the right passage",
        "new questions, a random passage",
    ]
    assert_explained([figure], ())
    (gold,) = (str(one) for one in figure.answer if "new questions, the right passage" in str(one))
    assert re.search(r"(2[89]|3[0-2])% of questions of training, no passage", gold)
    assert re.search(r"(5[89]|6[0-2])% of new questions, the right passage", gold)
    data = figure.data[(figure.data["system"] == "gold") & figure.data["trained"]].query("queries == 'held out'")
    assert data["value"].tolist() == pytest.approx([0.6], abs=0.02)
    assert not any("Training also asks" in str(one) for one in figure.answer)


def test_answers_are_told_without_the_questions_that_training_asks_too(tmp_path) -> None:
    given = Retrieved(seeds=(1, 2), noise=1e-6)
    shares = {
        ("held out", "none"): 0.5,
        ("held out", "own"): 0.75,
        ("not leaked", "none"): 0.25,
        ("not leaked", "own"): 0.7,
    }
    rows = [
        {**given._row(keys, share, 0.02, system=system, queries=queries, metric="em", k=0),
         "count": 260 if queries == "not leaked" else 300}
        for label, keys in given.models("closed-book", "read-gold")
        for (queries, system), share in shares.items()
        if label == "read-gold" or system == "none"
    ]  # fmt: skip
    run = retrieved.write_run(tmp_path, given, only=("retrieval_learning",))
    retrieved.write_table(run, "retrieval_scores", pd.DataFrame(rows))
    figure = drawn_figures(run, "retrieval")["text-answers"]
    (told,) = (str(one) for one in figure.answer if "Training also asks" in str(one))
    assert told.startswith("Training also asks 40 of the 300 new questions. Right answers to the others: ")
    assert "25% (50% of all)" in told
    assert "70% (75% of all)" in told
