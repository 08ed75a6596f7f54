"""A study that goes on in a domain and is tuned: which models, which tables, what is done once."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from support.undrawn import undrawn

from infoflow.adaptation import INSIDE, make_task
from infoflow.corpus import generate_grammar
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.results import KEYS
from infoflow.studies import Run, StudyPlan, graph, study
from infoflow.subjects.adaptation.settings import TunePlan
from infoflow.subjects.adaptation.stages import InsideTuned, Specialise, StudyTasks, Tune

pytestmark = pytest.mark.slow

TASK = {
    "name": "grammar-agreement",
    "size": 60,
    "seeds": [0, 1],
    "learning_rates": [1e-3],
    "epochs": 1,
    "max_length": 48,
}
PLAN = {
    "objectives": ["masked-lm"],
    "corpus": {"name": "grammar:500", "vocabulary": 150, "test": 0.3, "validation": 0.1},
    "model": {"width": 16, "layers": 2, "heads": 2, "feedforward": 32},
    "training": {"updates": 6, "batch_tokens": 256},
    "analysis": {"tables": ["head_confidence"], "sentences": 60},
    "alignment": {"on": False},
    "domain": {"corpus": "grammar:900", "phases": ["domain", "task"], "extend_vocabulary": 10, "vocabulary": 140},
    "tune": [TASK],
}


@pytest.fixture(scope="module")
def tuned_run(built_once) -> Run:
    def build(folder):
        with undrawn():
            study(StudyPlan.from_json(PLAN), folder, num_processes=1)

    return Run.open(built_once("tuned-study", build))


def test_every_way_of_tuning_has_its_rows(tuned_run) -> None:
    scores = tuned_run.tables["tuned_scores"]
    assert list(scores.columns[: len(KEYS)]) == [column.name for column in KEYS]
    main = scores[scores["main"] & (scores["part"] == "test")]
    ways = main[["trained", "strategy", "method", "examples", "control"]].drop_duplicates()
    found = {tuple(row) for row in ways.itertuples(index=False)}
    wanted = {
        (True, strategy, method, 42, "")
        for strategy in ("as-is", "continued", "task-texts", "scratch")
        for method in ("full", "frozen")
    }
    wanted |= {(False, "as-is", "full", 42, ""), (True, "as-is", "full", 42, "shuffled-labels")}
    assert found == wanted
    assert len(main) == 2 * len(wanted)
    assert set(main["tuning_seed"]) == {0, 1}
    assert (main["low"] <= main["value"]).all()
    answers = tuned_run.tables["task_answers"]
    assert set(answers["task"]) == {"grammar-agreement"}
    per_model = answers.groupby(["trained", "strategy", "method", "examples", "control", "tuning_seed"])["example"]
    assert per_model.apply(list).map(tuple).nunique() == 1  # the same ones of every model


def test_the_inside_is_seen_of_full_tuning(tuned_run) -> None:
    for name in {*INSIDE, "tuning_allocation"}:
        table = tuned_run.tables[name]
        assert list(table.columns[: len(KEYS)]) == [column.name for column in KEYS], name
        assert set(table["task"]) == {"grammar-agreement"}, name
        assert set(table["trained"]) == {True, False}, name
        assert set(table["control"]) == ({"", "shuffled-labels"} if name == "tuning_change" else {""}), name
        assert table.loc[table["control"] != "", "trained"].all(), name
        assert set(zip(table["method"], table["examples"], table["strategy"], strict=True)) == {("full", 42, "as-is")}


def test_the_domain_is_predicted_word_by_word(tuned_run) -> None:
    losses = tuned_run.tables["domain_loss"]
    assert set(zip(losses["strategy"], losses["text"], strict=True)) == {
        (strategy, text) for strategy in ("as-is", "continued", "scratch") for text in ("domain", "general")
    }
    assert losses.groupby("text")["count"].nunique().max() == 1  # words, not tokens: the same for all vocabularies
    leaks = tuned_run.tables["task_leakage"]
    assert set(leaks["within"]) == {"pretraining", "domain", "train"}


def test_specialised_models_begin_from_what_is_named(tuned_run) -> None:
    stages = tuned_run.stages
    assert [stage.label.removeprefix("specialise masked-lm/seed-0, ") for stage in stages.of(Specialise)] == [
        "continued",
        "continued on grammar-agreement",
        "scratch",
    ]
    facts = {
        stage.model.name: json.loads((stage.model.folder / "model" / "training.json").read_text())
        for stage in stages.of(Specialise)
    }
    general, task, scratch = facts.values()
    first, second, third = stages.of(Specialise)
    published = tuned_run.path / "models" / "masked-lm" / "seed-0"
    assert general["key"]["parent"] == load_model(published).digest
    assert task["key"]["parent"] == first.model.load().digest
    assert "parent" not in scratch["key"]
    assert (general["updates"], task["updates"], scratch["updates"]) == (2, 2, 8)
    assert second.needs == (first.key,)
    assert first.model.load().module.config.vocab_size == 160
    assert third.model.load().module.config.vocab_size == 140
    pretrained = [stage.tuned for stage in stages.of(Tune) if stage.tuned.special is not None]
    after = {one.strategy: one.special.task and one.special.task.name for one in pretrained}
    assert after == {"continued": None, "task-texts": "grammar-agreement", "scratch": None}


def test_what_is_not_looked_at_is_removed(tuned_run) -> None:
    work = tuned_run.path / "work"
    kept = sorted(path.parent.name for path in work.glob("tuning/*/*/*/task.json"))
    assert kept == []
    assert len(list(work.glob("tuning/*/*/*/seed-*/task.json"))) == 6  # trained, untrained, shuffled
    assert not list(work.glob("tuning-features/*"))
    inside = next(stage for stage in tuned_run.stages.of(Tune) if stage.tuned.inside)
    assert load_model(next(inside.tuned.folder.glob("*/*/seed-0"))).module.config.num_labels == 2


def test_a_domain_may_lack_the_translations_that_the_study_has(tmp_path) -> None:
    """A plain text beside a parallel corpus: its words are predicted by the general model too."""
    (tmp_path / "domain.txt").write_text("\n".join(generate_grammar(300, seed=7).column("text")) + "\n")
    domain = {**PLAN["domain"], "corpus": str(tmp_path / "domain.txt"), "phases": ["domain"]}
    with undrawn():
        run = study(StudyPlan.from_json({**PLAN, "domain": domain, "tune": []}), tmp_path / "run", num_processes=1)
    losses = run.tables["domain_loss"]
    assert set(zip(losses["strategy"], losses["text"], strict=True)) == {
        (strategy, text) for strategy in ("as-is", "continued", "scratch") for text in ("domain", "general")
    }


def test_models_that_do_not_fit_a_task_are_left_out(tmp_path, capsys) -> None:
    values = {
        **PLAN,
        "objectives": ["masked-lm", "causal-lm", "skip-gram", "translation", "span-corruption"],
        "domain": {},
        "tune": [{"name": name, "size": 40} for name in ("grammar-tags", "grammar-span", "grammar-summary")],
    }
    found, methods = {}, {}
    for stage in graph(StudyPlan.from_json(values), tmp_path / "run").of(Tune):
        found.setdefault(stage.tuned.entry.name, set()).add(stage.tuned.subject.recipe.objective.name)
        methods.setdefault(stage.tuned.entry.name, set()).add(stage.tuned.method)
    assert found == {
        "grammar-tags": {"masked-lm", "causal-lm", "translation", "span-corruption"},
        "grammar-span": {"masked-lm", "translation", "span-corruption"},
        "grammar-summary": {"causal-lm", "translation", "span-corruption"},
    }
    assert methods["grammar-tags"] == {"full", "frozen"}
    assert methods["grammar-summary"] == {"full"}  # no head for frozen features to train


def test_a_text_to_write_needs_more_than_frozen_features(tmp_path) -> None:
    task = {"name": "grammar-summary", "size": 40, "methods": ["frozen"]}
    values = {**PLAN, "objectives": ["causal-lm"], "domain": {}, "tune": [task]}
    with pytest.raises(UserError, match=r"tune\.methods of grammar-summary must contain full, top, decay or lora"):
        graph(StudyPlan.from_json(values), tmp_path / "run")


def test_untrained_models_are_tuned_once_for_all_objectives_that_begin_alike(tmp_path) -> None:
    values = {**PLAN, "objectives": ["prefix-lm", "span-corruption"], "domain": {}, "tune": [TASK]}
    stages = graph(StudyPlan.from_json(values), tmp_path / "run").of(Tune)
    controls = [stage for stage in stages if not stage.tuned.subject.trained]
    assert len({stage.key for stage in controls}) == len(controls) == 2
    assert len({stage.tuned.key for stage in controls}) == 1
    frozen = [stage for stage in stages if stage.tuned.method == "frozen"]
    assert [stage.last for stage in frozen] == [True, True]


def test_models_of_one_layout_are_the_same_before_training(tmp_path) -> None:
    """Bit for bit, whatever their objectives hide or let decoders write; who tunes them second waits."""
    objectives = ["masked-lm", "bart", "span-corruption", "translation", "causal-lm"]
    values = {**PLAN, "objectives": objectives, "domain": {}, "tune": [TASK]}
    found = {}
    stages = graph(StudyPlan.from_json(values), tmp_path / "run").of(Tune)
    for stage in stages:
        if not stage.tuned.subject.trained:
            found.setdefault(stage.tuned.key, []).append(stage)
    alike = [[stage.tuned.subject.recipe.objective.label for stage in group] for group in found.values()]
    assert sorted(map(sorted, alike)) == [["bart", "span-corruption"], ["causal-lm"], ["masked-lm"], ["translation"]]
    for first, *others in found.values():
        weights = first.tuned.load().module.state_dict()
        for other in others:
            assert other.again
            assert first.key in other.needs
            assert first.cost > 10 * other.cost
            torch.testing.assert_close(other.tuned.load().module.state_dict(), weights, rtol=0, atol=0)
    assert not any(group[0].again for group in found.values())


def test_the_inside_of_named_objectives(tmp_path) -> None:
    """Untrained models that several objectives share stay for the one whose inside is looked at; others do not."""
    objectives = ["prefix-lm", "span-corruption", "masked-lm"]
    values = {**PLAN, "objectives": objectives, "domain": {}, "tune": [{**TASK, "inside_objectives": objectives[:1]}]}
    stages = graph(StudyPlan.from_json(values), tmp_path / "run")
    looked_at = {_whose(stage.tuned) for stage in stages.of(InsideTuned)}
    assert looked_at == {("prefix-lm", True), ("prefix-lm", False)}
    whole = [stage.tuned for stage in stages.of(Tune) if (stage.tuned.method, stage.tuned.control) == ("full", "")]
    assert {_whose(one) for one in whole if one.stays} == {*looked_at, ("span-corruption", False)}


def test_what_an_encoder_decoder_forgets_is_seen_though_its_encoder_alone_is_tuned(tmp_path) -> None:
    asked = {**TASK, "seeds": [0], "methods": ["full"], "controls": []}
    values = {**PLAN, "objectives": ["translation", "bart"], "domain": {}, "tune": [asked]}
    with undrawn():
        run = study(StudyPlan.from_json(values), tmp_path / "run", num_processes=1)
    swaps, heads = run.tables["layer_swaps"], run.tables["tuning_heads"]
    for objective in ("translation", "bart"):
        of_loss = swaps[(swaps["objective"] == objective) & (swaps["quantity"] == "pretraining-loss")]
        assert of_loss["value"].notna().all()
        assert set(of_loss["rewound"]) == {"none", "lower", "upper", "one", "all"}
        assert heads.loc[heads["objective"] == objective, "cost_before"].notna().all()


def test_a_prefix_language_model_is_tuned_to_write_as_it_was_trained(tmp_path) -> None:
    objectives = ["prefix-lm-decoder", "causal-lm"]
    asked = [{**TASK, "name": "grammar-summary", "methods": ["full"], "seeds": [0], "inside": False}, TASK]
    values = {**PLAN, "objectives": objectives, "domain": {}, "tune": asked}
    stages = graph(StudyPlan.from_json(values), tmp_path / "run").of(Tune)
    controls = [stage for stage in stages if not stage.tuned.subject.trained]
    keys = {name: {stage.tuned.key for stage in controls if stage.tuned.entry.name == name} for name in _names(stages)}
    assert {name: len(found) for name, found in keys.items()} == {"grammar-summary": 2, "grammar-agreement": 1}
    for stage in controls[:2]:
        stage.run()
        assert stage.is_done()


def _names(stages) -> list[str]:
    return list(dict.fromkeys(stage.tuned.entry.name for stage in stages))


def _whose(tuned) -> tuple[str, bool]:
    return tuned.subject.recipe.objective.label, tuned.subject.trained


def test_tasks_that_are_asked_in_words(tmp_path) -> None:
    """Are for models that write, and models are chosen by exact match."""
    values = {**PLAN, "objectives": ["masked-lm", "span-corruption"], "domain": {}, "tune": [{**TASK, "as_text": True}]}
    stages = graph(StudyPlan.from_json(values), tmp_path / "run").of(Tune)
    assert {stage.tuned.subject.recipe.objective.name for stage in stages} == {"span-corruption"}
    tuned = stages[0].tuned
    data = tuned.models.own(StudyTasks).data(tuned.entry)
    assert (data.shape, make_task(data).main) == ("generation", "exact_match")
    assert set(data.train.column("translation")) == {"good", "bad"}


def test_frozen_features_may_have_rates_of_their_own() -> None:
    asked = TunePlan(name="grammar-tags", learning_rates=(1e-4,), frozen_rates=(1e-2, 3e-3))
    assert asked.config("full", 0, "", "cpu").rates == (1e-4,)
    assert asked.config("frozen", 0, "", "cpu").rates == (1e-2, 3e-3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"tune": [{"name": "grammar-tags", "inside_objectives": ["bart"]}]},
            r"tune\[0\].inside_objectives must be among .*bart",
        ),
        ({"tune": [{"name": "grammar-tags", "patience": 2}]}, r"tune.patience must be 0 if .*Got 2"),
        ({"tune": [{"name": "x"}]}, r"tune.name must be a built-in task \(grammar-tags.*Got \"x\""),
        ({"tune": [{"name": "grammar-tags", "test": "a"}]}, r"tune.test must go with tune.train\. Got \"a\""),
        (
            {"tune": [{"name": "grammar-tags"}] * 2},
            r"Tables \[\[tune\]\] must have unique names\. Got \"grammar-tags\"",
        ),
        ({"tune": [{"name": "grammar-tags", "objectives": ["bart"]}]}, r"tune\[0\].objectives must be among .*bart"),
        ({"tune": [{"name": "grammar-tags", "columns": ["text"]}]}, r"must be written \"text=COLUMN\"\. Got \"text\""),
        ({"tune": {"name": "grammar-tags"}}, r"tune must be a list of at most 1,000 tables, each written \[\[tune\]\]"),
        (
            {"tune": [{"name": "grammar-tags", "epoch": 1}]},
            r"no setting tune\[0\].epoch. Did you mean tune\[0\].epochs\?",
        ),
        ({"domain": {"phases": ["task", "domain"]}}, r"domain.phases must be in order"),
        ({"domain": {"phases": ["task"]}}, r"domain.phases must contain \"domain\" if there is no task"),
        (
            {"objectives": ["electra"], "domain": {"corpus": "grammar", "extend_vocabulary": 5}},
            r"domain.extend_vocabulary must be 0 unless all objectives train a single model\. Got electra",
        ),
    ],
)
def test_tables_that_make_no_sense(values, message) -> None:
    with pytest.raises(UserError, match=message):
        StudyPlan.from_json(values)


def test_a_plan_with_tables_comes_back_from_json() -> None:
    plan = StudyPlan.from_json(PLAN)
    assert StudyPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.tune[0] == TunePlan(**{name: _tuple(value) for name, value in TASK.items()})
    assert dataclasses.replace(plan, tune=()).tune == ()
    numbered = TunePlan(name="x", train="a.tsv", columns=("text=1", "label=Class"))
    assert numbered.named_columns == {"text": "1", "label": "Class"}
    assert np.isclose(plan.tune[0].config("full", 20, "", "cpu").rates, 1e-3).all()


def _tuple(value):
    return tuple(value) if isinstance(value, list) else value
