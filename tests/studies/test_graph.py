"""The graph of a study: every stage behind what it needs, keyed by what it depends on, with tables that say of whom."""

import dataclasses
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from infoflow.foundation import UserError
from infoflow.results import KEYS, PAIR_KEYS, Recipe, RunFolder
from infoflow.studies import (
    AbstractStage,
    AnalysisPlan,
    Check,
    Compare,
    EnginePlan,
    Graph,
    MeasureModel,
    Run,
    StudyModels,
    StudyPlan,
    Train,
    graph,
    stage_of,
)
from infoflow.studies.stages import stages as stage_kinds
from infoflow.subjects.allocation.settings import DynamicsPlan
from infoflow.subjects.allocation.stages import CompareRecordings
from infoflow.subjects.pruning.settings import PruningPlan

pytestmark = pytest.mark.slow

NAMES = [column.name for column in KEYS]
NAMES_OF_PAIRS = [column.name for column in PAIR_KEYS]


def with_objectives(plan: StudyPlan, *objectives: str, **changes) -> StudyPlan:
    analysis = AnalysisPlan(tables=("task_scores", "model_distance"), untrained=False)
    return dataclasses.replace(plan, objectives=objectives, **{"analysis": analysis, **changes})


def compared(stages: Graph, trained: bool = True) -> list[frozenset[str]]:
    pairs = [(stage.first.subject, stage.second.subject) for stage in stages.of(Compare)]
    return [frozenset([a.name, b.name]) for a, b in pairs if a.trained is b.trained is trained]


@pytest.fixture
def whole(tiny_plan, tmp_path) -> Graph:
    """Stages of every kind."""
    pruning = PruningPlan(on=True, objectives=("translation", "masked-lm"), subset=(2,), scratch=True)
    plan = dataclasses.replace(tiny_plan, seeds=(0, 1), pruning=pruning, dynamics=DynamicsPlan(on=True))
    return graph(plan, tmp_path)


def test_stages_stand_behind_what_they_need(whole: Graph) -> None:
    kinds = Counter(stage.kind for stage in whole)
    assert kinds["train"] == kinds["record"] == 3 * 2
    assert kinds["measure"] == 3 * 2 * 2
    assert kinds["align"] == 2
    assert kinds["check"] == 1
    before: set[str] = set()
    for stage in whole:
        assert set(stage.needs) <= before, stage.label
        before.add(stage.key)
    assert len(before) == len(whole), "two stages have one key"
    assert [stage.label for stage in whole if not stage.needs] == [
        *(stage.label for stage in whole.of(Train)),
        *(stage.label for stage in whole.of(MeasureModel) if not stage.subject.trained),
    ]
    assert set(whole.stages[-1].needs) == before - {whole.stages[-1].key}


def test_each_stage_needs_its_own_models(whole: Graph) -> None:
    for stage in whole.of(MeasureModel):
        needed = [whole[key].recipe for key in stage.needs]
        assert needed == ([stage.subject.recipe] if stage.subject.trained else [])
    for stage in whole.of(Compare):
        assert [whole[key].subject for key in stage.needs] == [stage.first.subject, stage.second.subject]
    (recordings,) = whole.of(CompareRecordings)
    assert [whole[key].recipe for key in recordings.needs] == [stage.recipe for stage in whole.of(Train)]


def test_the_longest_training_comes_first(whole: Graph) -> None:
    costs = [stage.cost for stage in whole.of(Train)]
    assert costs == sorted(costs, reverse=True)
    assert whole.stages[0].label == "train translation/seed-0"


def test_costs_are_seconds_on_record_or_those_of_their_kind(tiny_run: Run, tiny_plan: StudyPlan, tmp_path) -> None:
    shutil.copytree(tiny_run.path / "work" / "stages", tmp_path / "work" / "stages")
    records = [record for record in tiny_run.folder.read()["stages"] if record["kind"] == "train"]
    assert len(records) == 3
    (lost,) = (stage for stage in tiny_run.stages.of(Train) if stage.recipe.objective.name == "masked-lm")
    (tmp_path / "work" / "stages" / f"{lost.key}.json").write_text("{")  # what a full disk left
    known = [record for record in records if record["label"] != lost.label]
    scale = median(record["seconds"] / record["estimate"] for record in known)
    stages = {stage.label: stage for stage in graph(dataclasses.replace(tiny_plan, seeds=(0, 1)), tmp_path)}
    for record in records:
        expected = record["seconds"] if record in known else scale * record["estimate"]
        assert stages[record["label"]].cost == pytest.approx(expected)
        assert stages[record["label"].replace("seed-0", "seed-1")].cost == pytest.approx(scale * record["estimate"])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Count(AbstractStage):
    """A stage that somebody adds: its own class, registered by one name."""

    kind = "count"
    named = "count {self.recipe.name}"
    models: StudyModels
    recipe: Recipe

    @classmethod
    def planned(cls, models, before):
        return [cls(models=models, recipe=one.recipe, needs=(one.key,)) for one in before if isinstance(one, Train)]

    def depends(self) -> list:
        return ["count", self.recipe.name]

    def is_done(self) -> bool:
        return False

    def run(self) -> dict:
        return {}


def test_a_stage_is_added_by_its_name_alone(tiny_run: Run, tiny_plan: StudyPlan, monkeypatch) -> None:
    before = [stage.key for stage in tiny_run.stages]
    monkeypatch.setattr("infoflow.studies._graph.stage_kinds", lambda: [*stage_kinds(), Count])
    stages = graph(tiny_plan, tiny_run.folder)
    assert [stage.key for stage in stages][: len(before) - 1] == before[:-1]
    counts = stages.of(Count)
    assert [stage.needs for stage in counts] == [(stage.key,) for stage in stages.of(Train)]
    assert {stage.key for stage in counts} < set(stages.stages[-1].needs)  # what is checked comes after
    assert counts[0].cost == 60 * 0.05  # none of its kind is on record


def test_records_tell_wall_and_cpu_seconds(tiny_run: Run) -> None:
    records = tiny_run.stages.records()
    assert records == tiny_run.folder.read()["stages"]
    training = [record for record in records if record["kind"] == "train"]
    assert len(training) == 3
    for record in training:
        cores = record["threads"] + 1  # reading and saving run beside
        assert 0 < record["cpu_seconds"] <= cores * record["seconds"] + 0.1


def test_nothing_but_the_check_is_missing_of_a_finished_study(tiny_run: Run, grown_run: Run) -> None:
    for run in (tiny_run, grown_run):
        assert [type(stage) for stage in run.stages.missing()] == [Check]


def test_a_changed_plan_redoes_only_what_changed(tiny_run: Run, tiny_plan: StudyPlan) -> None:
    def missing(**changes) -> list[str]:
        stages = graph(dataclasses.replace(tiny_plan, **changes), tiny_run.folder)
        return [stage.label for stage in stages.missing()]

    assert missing() == ["check findings"]
    assert missing(engine=EnginePlan(threads=2)) == ["check findings"]
    analysis = dataclasses.replace(tiny_plan.analysis, lens_steps=5)
    labels = missing(analysis=analysis)
    assert Counter(label.split()[0] for label in labels) == {"measure": 6, "check": 1}
    labels = missing(alignment=dataclasses.replace(tiny_plan.alignment, held_out=50))
    assert labels == ["align masked-lm/seed-0 to translation/seed-0", "check findings"]
    labels = missing(seeds=(0, 1))
    assert {label for label in labels if label.startswith("train")} == {
        f"train {objective}/seed-1" for objective in tiny_plan.objectives
    }
    assert not any(label.startswith("align") and "seed-0" in label for label in labels)
    faster = dataclasses.replace(tiny_plan.training, learning_rate=1e-3)
    kept = [stage for stage in tiny_run.stages.of(Compare) if not stage.first.subject.trained]
    assert len(kept) == 3  # how models begin does not depend on how they are trained
    assert len(missing(training=faster)) == len(tiny_run.stages) - len(kept)


def test_a_damaged_comparison_needs_its_samples_again(grown_run: Run, tmp_path) -> None:
    shutil.copytree(grown_run.path, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    stage = run.stages.of(Compare)[0]
    path = run.path / "work" / "compared" / stage.part / "model_distance.parquet"
    path.write_bytes(path.read_bytes()[:300])
    assert [one.label for one in run.stages.missing()] == [
        f"measure {stage.first.subject.label}",
        f"measure {stage.second.subject.label}",
        stage.label,
        "check findings",
    ]


def test_pairs_differ_in_the_objective_or_in_the_seed(tiny_plan: StudyPlan, tmp_path) -> None:
    plan = with_objectives(tiny_plan, "causal-lm", "masked-lm", "translation", seeds=(0, 1, 2))
    pairs = compared(graph(plan, tmp_path))
    assert len(set(pairs)) == len(pairs) == 3 * 3 + 3 * 3
    for pair in pairs:
        (objective, seed), (other, another) = (name.split("/") for name in pair)
        assert (objective == other) != (seed == another)


def test_a_variant_is_compared_with_its_objective_and_its_own_seeds_only(tiny_plan: StudyPlan, tmp_path) -> None:
    objectives = ("causal-lm", "causal-lm+token-dropout", "masked-lm")
    analysis = AnalysisPlan(tables=("model_distance",))
    stages = graph(with_objectives(tiny_plan, *objectives, seeds=(0, 1), analysis=analysis), tmp_path)
    untrained = {stage.subject.name for stage in stages.of(MeasureModel) if not stage.subject.trained}
    assert untrained == {f"{name}/seed-{seed}" for name in ("causal-lm", "masked-lm") for seed in (0, 1)}
    expected = [frozenset([f"{name}/seed-0", f"{name}/seed-1"]) for name in objectives]
    for other in objectives[1:]:
        expected += [frozenset([f"causal-lm/seed-{seed}", f"{other}/seed-{seed}"]) for seed in (0, 1)]
    assert Counter(compared(stages)) == Counter(expected)


@pytest.mark.parametrize(("models", "seeds"), [(2, 1), (3, 2), (5, 4)])
def test_neighbours_are_as_many_as_models(tiny_plan: StudyPlan, tmp_path, models: int, seeds: int) -> None:
    names = ["causal-lm", "causal-lm+token-dropout", "masked-lm", "translation", "translation+token-dropout"]
    several = with_objectives(tiny_plan, *names[:models], seeds=tuple(range(seeds)), pairs=("neighbours",))
    pairs = compared(graph(several, tmp_path))
    across = sum(
        "+" not in first + second or first.split("+")[0] == second.split("+")[0]
        for first, second in pairwise(names[:models])
    )
    assert len(pairs) == across * seeds + models * (seeds - 1) <= 2 * models * seeds


def test_pairs_are_named(tiny_plan: StudyPlan, tmp_path) -> None:
    def pairs(*rules: str) -> set[frozenset[str]]:
        plan = with_objectives(tiny_plan, "causal-lm", "masked-lm", "translation", seeds=(0, 1), pairs=rules)
        return set(compared(graph(plan, tmp_path)))

    def of_each_seed(first: str, second: str) -> set[frozenset[str]]:
        return {frozenset([f"{first}/seed-{seed}", f"{second}/seed-{seed}"]) for seed in (0, 1)}

    two = of_each_seed("causal-lm", "translation")
    assert pairs("causal-lm|translation") == pairs("translation|causal-lm") == two
    seeds = {frozenset(["masked-lm/seed-0", "masked-lm/seed-1"])}
    assert pairs("masked-lm|masked-lm") == seeds
    assert pairs("causal-lm|translation", "masked-lm|masked-lm") == two | seeds
    assert pairs() == set()


@pytest.mark.parametrize("pair", ["masked-lm", "masked-lm|nothing", "all", "masked-lm|causal-lm|translation", ""])
def test_an_unknown_pair_is_refused(pair: str) -> None:
    with pytest.raises(
        UserError, match=r'pairs must be among objectives, neighbours, or two .* "NAME\|NAME"'
    ) as caught:
        StudyPlan.from_json({"pairs": [pair]})
    assert f'Got "{pair}"' in str(caught.value)


def test_one_word_is_a_list_of_one_pair() -> None:
    assert StudyPlan.from_json({"pairs": "neighbours"}).pairs == ("neighbours",)


def test_tables_of_stages_say_of_whom_they_are(tiny_run: Run) -> None:
    rows: Counter[str] = Counter()
    for stage in tiny_run.stages:
        schemas = stage.schemas()
        for name, frame in stage.tables().items():
            keys = NAMES_OF_PAIRS if isinstance(stage, Compare) else NAMES
            assert set(keys) <= set(frame.columns), (stage.label, name)
            assert len(frame[keys].drop_duplicates()) == min(1, len(frame)), (stage.label, name)
            schemas[name].conform(frame)
            rows[name] += len(frame)
    whole = {name: len(tiny_run.tables[name]) for name in tiny_run.tables if name != "findings"}
    assert rows == whole, "the tables of the run are those of its stages"


def test_a_run_finds_its_stages(tiny_run: Run) -> None:
    stages = tiny_run.stages
    assert [stage.key for stage in stages] == [stage.key for stage in graph(tiny_run_plan(tiny_run), tiny_run.path)]
    for stage in stages:
        assert stages[stage.key] is stage
        found = stage_of(str(tiny_run.path), stage.key)
        assert (type(found), found.label, found.needs) == (type(stage), stage.label, stage.needs)
    with pytest.raises(UserError, match=r"has no stage 123: it has changed\. Run the same command again"):
        stage_of(str(tiny_run.path), "123")


def tiny_run_plan(run: Run) -> StudyPlan:
    return StudyPlan.from_json(run.folder.read()["plan"])


def test_a_run_that_is_no_study_has_no_stages(tmp_path: Path) -> None:
    run = Run.open(_made(tmp_path / "other"))
    with pytest.raises(UserError, match="is not a study: only a study has stages"):
        _ = run.stages


def _made(folder: Path) -> Path:
    RunFolder(folder).update(kind="analyze")
    return folder


def test_stages_have_the_threads_of_the_plan(tiny_plan: StudyPlan, tmp_path) -> None:
    plan = dataclasses.replace(tiny_plan, engine=EnginePlan(threads=3), dynamics=DynamicsPlan(on=True))
    for stage in graph(plan, tmp_path):
        light = not stage.runs_models
        assert stage.threads == (1 if light else 3), stage.label
        assert stage.resources == {}
    with pytest.raises(UserError, match=r"engine\.threads must be a whole number from 1"):
        StudyPlan.from_json({"engine": {"threads": 0}})
