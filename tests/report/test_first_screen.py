"""The first screen: three cards chosen by rule, whether the models learned, what to trust, claims in one line."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from drawn import (
    MEASURES,
    Effects,
    ModelTables,
    Series,
    card_sentence,
    effects,
    failed_sentence,
    measured,
    opened,
    sections,
    spark,
    tell,
)
from synthetic_run import make_study, write_again
from test_lenses import rows as lens_rows
from whole_study import InMemory

from infoflow.findings import FINDINGS
from infoflow.objectives import OBJECTIVES
from infoflow.report import write_report
from infoflow.results import Estimate, RunFolder


@pytest.fixture(scope="module")
def tables(study):
    return ModelTables.of(study)


@pytest.fixture(scope="module")
def screen(story):
    return story.screen


def measure_of(figure, tables=None):
    """The measure of a card, among several of one figure that of which there is a table."""
    found = (measure for measure in MEASURES if measure.figure == figure)
    return next(one for one in found if tables is None or measured(one, tables) is not None)


def change(frame, series, seed, trained):
    """Last less first layer of one model: value and replicates."""
    own = frame[(frame["series"] == series) & (frame["seed"] == seed) & (frame["trained"] == trained)]
    first, last = (own[own["layer"] == layer].iloc[0] for layer in (own["layer"].min(), own["layer"].max()))
    return last["value"] - first["value"], np.asarray(last["replicates"]) - np.asarray(first["replicates"])


def test_effects_are_changes_beyond_the_untrained_model_s(tables):
    """Against means over seeds of plain differences."""
    measure = next(one for one in MEASURES if one.table == "mutual_information")
    frame = measured(measure, tables)
    told = effects(measure, frame)
    for series in ("causal-lm", "masked-lm", "translation"):
        trained = [change(frame, series, seed, True)[0] for seed in (1, 2, 3)]
        control = [change(frame, series, seed, False)[0] for seed in (1, 2, 3)]
        assert told.shown[series].value == pytest.approx(np.mean(trained))
        assert told.beyond[series].value == pytest.approx(np.mean(trained) - np.mean(control))
    a, b = told.pair
    assert told.difference.value == pytest.approx(told.shown[a].value - told.shown[b].value)
    assert told.difference_beyond.value == pytest.approx(told.beyond[a].value - told.beyond[b].value)


def test_cards_are_those_of_the_largest_effects_one_per_section(tables, screen, story):
    shown = {figure.id for figure in story.figures}
    strengths, sections = {}, {}
    for measure in MEASURES:
        frame = measured(measure, tables) if measure.figure in shown and not measure.fills else None
        if frame is not None:
            strengths[measure.figure] = effects(measure, frame).strength
            sections.setdefault(measure.section, []).append(measure.figure)
    best = {max(own, key=strengths.get) for own in sections.values()}
    rest = sorted(set(strengths) - best, key=lambda figure: -strengths[figure])
    wanted = sorted(best, key=lambda figure: -strengths[figure]) + rest
    wanted.sort(key=lambda figure: strengths[figure] < 1)  # what is clear comes first
    wanted = wanted[:3]
    assert {card.figure for card in screen.cards} == set(wanted)
    for card in screen.cards:
        measure = measure_of(card.figure, tables)
        told = effects(measure, measured(measure, tables))
        in_widths = [abs(one.value) / ((one.high - one.low) / 2) for one in (told.difference, told.difference_beyond)]
        assert card.strength == pytest.approx(min(in_widths))
    places = [[measure.figure for measure in MEASURES].index(card.figure) for card in screen.cards]
    assert places == sorted(places)


def test_a_card_says_what_each_model_does_with_the_plain_difference_and_the_control(screen, tables):
    card = next(card for card in screen.cards if card.figure in ("mi-input", "mi-output"))
    assert all(label in card.sentence for label in ("causal LM", "masked LM"))
    assert " to " in card.difference
    control = re.search(r"\); (−?[\d.]+) in the control$", card.difference)[1]
    assert card.clear
    measure = measure_of(card.figure, tables)
    told = effects(measure, measured(measure, tables))
    a, b = (told.shown[name].value for name in told.pair)
    assert float(control.replace("−", "-")) == pytest.approx(
        told.difference.value - told.difference_beyond.value, abs=0.006
    )
    number = re.search(r": (−?)([\d.]+) ", card.difference)
    assert float(number[2]) * (-1 if number[1] else 1) == pytest.approx(a - b, abs=0.006)


def test_a_model_that_has_not_learned_decides_no_card(tables):
    """Where two others are there, these two are compared, however far it lies from them."""
    for measure in MEASURES:
        frame = measured(measure, tables)
        told = None if frame is None else effects(measure, frame)
        if told is None or told.pair is None or len(told.shown) < 3:
            continue
        spoiled = told.pair[0]
        without = effects(measure, frame, {spoiled})
        assert spoiled not in without.pair
        assert without.shown == told.shown  # its line stays in the picture and the sentence
        assert without.strength <= told.strength
        assert effects(measure, frame, set(told.shown)).pair == told.pair


def test_untrained_models_that_end_apart_are_each_named():
    rows = [
        {"series": name, "group": group, "layer": layer, "value": at, "low": at, "high": at}
        for name, ends in (("a", (1.0, 0.0)), ("b", (0.9, 0.5)), ("c", (0.1, 0.51)))
        for group, at in zip(("trained", "untrained"), ends, strict=True)
        for layer in (0, 1)
    ]
    series = [Series(key=key, label=f"model {key}", slot=slot) for slot, key in enumerate("abc", 1)]
    picture = spark(pd.DataFrame(rows), series, set(), ("layer", "nats"), False, "a picture")
    assert picture.count(">untrained<") == 2


@pytest.mark.parametrize(
    ("values", "low", "high", "ends"),
    [((0.05, 0.95), -0.1, 1.2, ("0 %", "100 %")), ((0.3, 0.8), 0.2, 0.9, ("20 %", "90 %"))],
)
def test_an_axis_of_shares_does_not_leave_them(values, low, high, ends):
    """Of three seeds an interval may lie beyond what a share can be."""
    rows = [
        {"series": "a", "group": "trained", "layer": layer, "value": at, "low": low, "high": high}
        for layer, at in enumerate(values)
    ]
    picture = spark(pd.DataFrame(rows), [Series(key="a", label="a", slot=1)], set(), ("layer", "%"), True, "a picture")
    assert all(f">{end}<" in picture for end in ends)


def test_a_score_that_falls_short_by_its_interval_alone_is_told_with_it():
    scores = [(12.1, 10.1, 14.2), (6.4, 5.0, 8.0)]
    short = [dict(zip(("value", "low", "high"), one, strict=True), baseline=0.3) for one in scores]
    told = failed_sentence("Translation", OBJECTIVES["translation"].metrics[1], short, 3)
    assert told.endswith("in 2 of 3 seeds: BLEU 12.1 (10.1 to 14.2) and 6, needed above 10.3")


def screen_of(study, name, change):
    """The first screen of a run that has this table alone, changed."""
    return tell(InMemory(study.read(), {name: change(study.tables[name])})).screen


def same_everywhere(frame):
    """Every line's values become the first one's, with noise that is the same for all: no difference is left."""
    first = frame[frame["objective"] == frame["objective"].iloc[0]].set_index(["seed", "trained", "layer"])
    rows = [first.loc[(row.seed, row.trained, row.layer)] for row in frame.itertuples()]
    noise = np.random.default_rng(0).normal(size=(len(frame), 200))
    return frame.assign(
        value=[row["value"] for row in rows],
        replicates=[row["value"] + 0.5 * one for row, one in zip(rows, noise, strict=True)],
        low=[row["value"] - 1 for row in rows],
        high=[row["value"] + 1 for row in rows],
    )


def test_a_card_whose_interval_holds_zero_says_so(study):
    (card,) = screen_of(study, "identity_neighbours", same_everywhere).cards
    assert card.figure == "identity"
    assert not card.clear
    assert card.sentence.startswith("No difference seen between the models in the share of neighbours")


def test_a_control_that_does_not_change_at_all_is_said_in_words(study):
    def still(frame):
        return frame.assign(value=frame["value"].where(frame["trained"], 0.9))

    (card,) = screen_of(study, "identity_neighbours", still).cards
    assert card.difference.endswith("; none in the control")


def lenses(depth):
    """Readings of lenses: the decoder of translation has this depth, and masked LM agrees half as often."""
    for row in lens_rows():
        layer, factor = row["layer"], 1.0
        if row["objective"] == "translation":
            if depth <= layer < 6:
                continue
            layer = min(layer, depth)
        elif row["objective"] == "masked-lm" and row["metric"] == "agreement" and layer < 6:
            factor = 0.5
        scaled = {name: factor * np.asarray(row[name]) for name in ("value", "low", "high", "replicates")}
        yield {**row, **scaled, "layer": layer}


@pytest.mark.parametrize(
    ("depth", "opening"),
    [
        (6, "Layer 3 already has the model's final prediction "),
        (4, "The middle layer already has the model's final prediction "),
        (1, "Layer 3 already has the model's final prediction "),
    ],
)
def test_a_card_compares_lines_of_several_layers_and_gives_a_number_only_to_a_layer_of_all(study, depth, opening):
    """A decoder with an encoder may have fewer layers than the other models; below its top it may have one state."""
    (card,) = tell(InMemory(study.read(), {"lens": pd.DataFrame(lenses(depth))})).screen.cards
    assert card.sentence.startswith(opening)
    assert ("translation" in card.sentence) == (depth > 1)


def of_pair(shown, difference):
    return Effects(
        shown=shown, beyond=shown, control=0.0, pair=("a", "b"), difference=difference, difference_beyond=difference
    )


def test_a_difference_that_the_controls_explain_is_not_clear():
    plain, gone = (Estimate(value=at, low=at - 0.1, high=at + 0.1, seeds=3, count=9) for at in (1.0, -0.02))
    shown = {"a": plain, "b": gone}
    effect = Effects(shown=shown, beyond=shown, control=1.0, pair=("a", "b"), difference=plain, difference_beyond=gone)
    assert not effect.clear
    measure = next(one for one in MEASURES if one.unit == "nats")
    series = [Series(key=key, label=f"model {key}", slot=slot) for slot, key in enumerate("ab", 1)]
    frame = pd.DataFrame({"series": ["a", "b"] * 2, "trained": True, "layer": [0, 0, 1, 1]})
    told = card_sentence(measure, frame, effect, series)
    assert told.startswith("No difference seen between the models beyond that of their controls in ")


def test_what_does_not_change_comes_last_and_is_no_number():
    def told(value: float, half: float) -> Estimate:
        return Estimate(value=value, low=value - half, high=value + half, seeds=3, count=9)

    measure = next(one for one in MEASURES if one.percent and one.rises == "rise in {line} by")
    shown = {"a": told(0.001, 0.01), "b": told(0.9, 0.02)}
    effect = of_pair(shown, told(-0.899, 0.02))
    series = [Series(key=key, label=f"model {key}", slot=slot) for slot, key in enumerate(shown, 1)]
    frame = pd.DataFrame({"series": ["a", "b"] * 2, "trained": True, "layer": [0, 0, 1, 1]})
    told = card_sentence(measure, frame, effect, series)
    assert told.endswith("rise in model b by 90 points; no clear change in model a.")


def test_a_verb_is_said_once_where_all_do_the_same():
    def told(value: float) -> Estimate:
        return Estimate(value=value, low=value - 0.01, high=value + 0.01, seeds=3, count=9)

    measure = measure_of("layer-change")
    shown = {"a": told(0.1), "b": told(0.3), "c": told(-0.2)}
    effect = of_pair(shown, told(-0.2))
    series = [Series(key=key, label=f"model {key}", slot=slot) for slot, key in enumerate(shown, 1)]
    frame = pd.DataFrame({"series": list("abc") * 2, "trained": True, "layer": [0, 0, 0, 1, 1, 1]})
    assert card_sentence(measure, frame, effect, series).endswith(
        "rises in model a by 0.100; in model b by 0.300; falls in model c by 0.200."
    )


def test_what_is_not_told_apart_has_no_more_digits_than_its_interval():
    def told(value: float, half: float = 0.4) -> Estimate:
        return Estimate(value=value, low=value - half, high=value + half, seeds=1, count=9)

    measure = next(one for one in MEASURES if one.unit == "nats")
    series = [Series(key=key, label=f"model {key}", slot=slot) for slot, key in enumerate("ab", 1)]
    frame = pd.DataFrame({"series": ["a", "b"] * 2, "trained": True, "layer": [0, 0, 1, 1]})

    def said(first: float, second: float) -> str:
        shown = {"a": told(first), "b": told(second)}
        effect = of_pair(shown, told(first - second))
        return card_sentence(measure, frame, effect, series)

    assert said(0.0653, 0.2451).endswith(": 0.1 to 0.2 nats.")
    assert said(0.0653, 0.0751).endswith(": 0.1 nats.")


def test_an_effect_without_an_interval_has_no_strength(analysis):
    def bare(frame):
        return frame.assign(low=math.nan, high=math.nan).drop(columns="replicates")

    (card,) = screen_of(analysis, "identity_neighbours", bare).cards
    assert card.strength == 0
    assert not card.clear
    assert screen_of(analysis, "identity_neighbours", lambda frame: frame).cards[0].strength > 1


def test_an_analysis_has_cards_of_its_own_numbers_and_no_claims(analysis, analysis_report):
    story = tell(analysis)
    assert 1 <= len(story.screen.cards) <= 3
    assert story.screen.claims is None
    assert story.screen.learned is None
    page = analysis_report.read_text(encoding="utf-8")
    assert "Published claims" not in page
    assert all(card.question in page for card in story.screen.cards)


def scores(change_row):
    return lambda frame: pd.DataFrame([change_row(row) for row in frame.to_dict("records")])


def test_a_model_that_has_not_learned_is_named_first_and_grey(tmp_path):
    def spoil(row):
        bad = row["objective"] == "masked-lm" and row["metric"] == "loss"
        return row | ({"low": row["baseline"], "high": row["baseline"] + 1} if bad else {})

    run = make_study(tmp_path, tables=("identity_neighbours", "task_scores"))
    stored = run.tables.stored("task_scores")
    write_again(run, scores(spoil)(stored.frame), stored.schema)
    run = RunFolder(tmp_path)
    story = tell(run)
    scored = story.screen.learned
    assert scored.dull == {"masked-lm"}
    assert scored.failed == [text for text in scored.failed if text.startswith("masked LM has not learned its task")]
    slots = {series.key: series.slot for series in story.models.series}
    (card,) = story.screen.cards
    assert f'stroke="var(--series-{slots["masked-lm"]})"' not in card.picture
    assert f'stroke="var(--series-{slots["causal-lm"]})"' in card.picture
    page = write_report(run).read_text(encoding="utf-8")
    assert page.index("Read with care.") < page.index('class="cards"')
    assert '<b class="name dull">masked LM</b>' in page


def test_all_have_learned_where_their_scores_pass(study):
    def pass_all(row):
        ends = {"loss": (0.1, 0.2), "bleu": (40.0, 50.0)}.get(row["metric"], (row["low"], row["high"]))
        return row | {"low": ends[0], "high": ends[1], "value": sum(ends) / 2}

    scored = screen_of(study, "task_scores", scores(pass_all)).learned
    assert (scored.failed, scored.dull) == ([], frozenset())
    assert len(scored.passed) == 3


@pytest.mark.filterwarnings("ignore")  # of the table that the section on retrieval does not find whole
def test_readers_are_judged_by_their_own_training_queries(study):
    rows = []
    for row in study.tables["task_scores"].to_dict("records"):
        if row["metric"] == "loss" and row["trained"]:
            right, known = (0.06, 0.0) if row["objective"] == "masked-lm" else (0.38, 1.0)
            rows += [row | {"metric": "training_p1", "value": right, "baseline": 0.0625}]
            rows += [row | {"metric": "learned", "value": known, "baseline": 0.0}]
    scored = tell(InMemory(study.read(), {"retrieval_scores": pd.DataFrame(rows)})).screen.learned
    assert scored.dull == {"masked-lm"}
    assert scored.failed == ["masked LM has not learned to answer: 6% of its training queries (a guess: 6%)"]
    assert "causal LM 38% of its training queries (a guess: 6%)" in scored.passed


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"effect": -0.5, "low": -0.6, "high": -0.4}, "opposite"),
        ({"effect": 0.2, "low": 0.1, "high": 0.25}, "weaker"),
        ({"effect": 0.05, "low": 0.01, "high": 0.1}, "no more than the control"),
        ({"effect": 0.2, "low": 0.1, "high": 0.25, "reason": "Something: needed."}, "otherwise"),
        ({"effect": 0.5, "low": 0.4, "high": 0.6, "threshold": -0.3, "reason": "A: .5; needed < -0.3."}, "opposite"),
    ],
)
def test_how_a_claim_fails(study, changes, kind):
    found = study.tables["findings"]
    row = {"verdict": "fails", "reason": "A: 1; needed > 0.33.", "threshold": 0.33, "control": 0.08} | changes
    run = InMemory(study.read(), {"findings": found[found["id"] == "heads:V8"].assign(**row)})
    how = "" if kind == "otherwise" else f" (1 {kind})"
    assert tell(run).screen.claims.verdicts == f"✗ 1 fails{how}"


def test_the_claims_line_counts_and_names_the_most_surprising(tmp_path):
    run = make_study(tmp_path, tables=("findings",))
    stored = run.tables.stored("findings")
    base = stored.frame.iloc[0].to_dict()
    base |= {"threshold": 0.3, "control": 0.0, "unit": "nats", "reason": "A: 1; needed > 0.3."}
    rows = [
        base | {"id": "a:1", "claim": "One.", "verdict": "holds", "effect": 1.0, "low": 0.9, "high": 1.1},
        base | {"id": "a:2", "claim": "Two.", "verdict": "fails", "effect": 0.1, "low": 0.05, "high": 0.2},
        base | {"id": "a:3", "claim": "Three.", "verdict": "fails", "effect": -1.0, "low": -1.1, "high": -0.9},
        base | {"id": "a:4", "claim": "Four.", "verdict": "not testable here", "reason": "It needs 3 seeds of each."},
    ]
    write_again(run, pd.DataFrame(rows), stored.schema)
    run = RunFolder(tmp_path)
    told = tell(run).screen.claims
    page = re.sub(r"<[^>]+>", "", write_report(run).read_text(encoding="utf-8"))
    assert "✓ 1 holds and ✗ 2 fail (1 opposite and 1 weaker)" in page
    assert (told.tested, told.every, told.surprising_id) == (3, 4, "a:3")
    assert told.surprising.startswith("“Three” fails here (opposite): −1")
    assert told.reasons == [("need 3 seeds of each objective", 1)]
    assert "1 untested: 1 needs 3 seeds of each objective." in page
    distances = [base | {"claim": "Near.", "verdict": "fails", "effect": -0.021, "low": -0.024, "high": -0.018}]
    distances = [row | {"unit": "1 − PWCCA", "threshold": 0.0} for row in distances]
    screen = tell(InMemory(run.read(), {"findings": pd.DataFrame(distances)})).screen
    assert screen.claims.surprising.endswith(": −0.021 (1 − PWCCA), threshold 0")


def test_claims_are_grouped_by_question(report, story):
    page = report.read_text(encoding="utf-8")
    _, *groups = page[page.index('<section id="findings"') :].split('<div class="claim-group')
    groups[-1] = groups[-1].split("</section>")[0]
    ids = [re.findall(r'<li id="([^"]+)"', group) for group in groups]
    assert sorted(id for own in ids for id in own) == sorted(finding.id for finding in story.findings)
    shown = {figure.id: section.id for section in story.sections for figure in section.figures}
    verdicts = {finding.id: finding for finding in story.findings}
    sections = [re.search(r'claim-question"><a href="#([^"]+)">([^<]+)', group) for group in groups]
    titles = {section.id: section.title for section in story.sections}
    for own, named in zip(ids, sections, strict=True):
        for finding in (verdicts[id] for id in own if verdicts[id].verdict != "not testable here"):
            assert named is None or shown.get(finding.figure, named[1]) == named[1]
            assert named is None or titles[named[1]] == named[2]
    order = [list(titles).index(named[1]) for named in sections if named]
    assert len(order) >= 3
    assert order == sorted(order)


def test_every_claim_belongs_to_a_section():
    homes = {word for heading, _ in sections() for word in (heading.id, *heading.claims)}
    assert {claim.partition(":")[0] for claim in FINDINGS} <= homes


def test_scores_that_every_claim_reads_are_no_figure_of_it(study):
    found = study.tables["findings"].iloc[:1].assign(id="adaptation:A-1", tables="tuned_scores, task_scores")
    told = tell(InMemory(study.read(), {"findings": found, "task_scores": study.tables["task_scores"]}))
    assert "task-scores" in [figure.id for figure in told.figures]
    assert [row.figure for row in told.findings] == [""]


def test_one_seed_is_called_exploratory(tmp_path):
    run = make_study(tmp_path, seeds=(1,), objectives=("causal-lm", "masked-lm"))
    told = tell(run).screen
    assert told.badge == "one seed: exploratory"
    assert told.trust.startswith("One seed: bands cover the choice of sentences, not of initial weights")


def test_heads_open_with_roles_special_tokens_and_sharpness(analysis):
    places = {"stack": "encoder", "kind": "self", "layer": 2, "head": range(4)}
    scores = {"value": 0.7, "low": 0.6, "high": 0.8, "baseline": 0.1, "limit": 0.6, "count": 50}
    half = {"held_out": [0.75, 0.65, 0.7, 0.2], "held_out_low": 0.62, "held_out_high": 0.8}
    roles = pd.DataFrame({**places, "role": ["first token"] * 2 + ["det dependent→head"] * 2, **scores, **half})
    roles = roles.assign(holds=[True, True, True, False], chosen=True)
    confidence = analysis.tables["head_confidence"]
    surface = confidence.assign(statistic="special", baseline=0.1)  # confidence takes its place
    given = {"head_roles": roles, "head_confidence": confidence, "head_surface": surface}
    story = tell(InMemory(analysis.read(), given))
    first, special, sharp = story.screen.cards
    assert first.sentence == "3 of 4 heads hold a role: first token (2) and syntactic (1)."
    assert first.difference == "First token, layer 2 head 0: 0.75 (0.62 to 0.80); limit 0.6, control 0.1"
    assert special.question == "How much attention goes to special tokens?"
    (layer,) = confidence.groupby("layer")["value"].mean().nlargest(1).index
    assert f"largest in layer {layer} of bert-tiny, at " in special.sentence
    assert special.difference.endswith("; 10.0 % in the control")
    assert sharp.clear
    assert "infoflow prune" in story.screen.next.code
    assert not any(card.picked for card in story.screen.cards)
    assert "head_roles" not in {name for figure in story.figures for name in figure.tables}  # the card shows it
    assert [section.id for section in story.sections] == ["heads"]


def test_a_chip_is_a_claim_that_could_be_tested(report, story):
    page = report.read_text(encoding="utf-8")
    untested = [one for one in story.findings if one.verdict == "not testable here" and one.figure]
    assert untested
    chips = re.findall(r'<a class="chip [^"]*" href="#([^"]+)"', page)
    assert chips
    assert not {finding.id for finding in untested} & set(chips)


def test_a_section_opens_three_figures_those_with_tested_claims_first(story):
    assert all(len(section.shown) <= 3 for section in story.sections)
    section = next(section for section in story.sections if section.id == "knows")
    five = section.figures[:1] * 5
    five = [replace(figure, id=f"figure-{place}", findings=()) for place, figure in enumerate(five)]
    tested = replace(story.findings[0], figure="figure-4", verdict="holds")
    told = opened(replace(section, figures=five, open=()), None, [tested])
    assert [figure.id for figure in told.shown] == ["figure-0", "figure-1", "figure-4"]
    assert [figure.id for figure in told.further] == ["figure-2", "figure-3"]
