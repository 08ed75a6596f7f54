"""A study of masked LM, biLM and skip-gram: trained beside each other, measured where there is something to measure."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from infoflow.models import StaticVectors, load_model
from infoflow.studies import AnalysisPlan, CorpusPlan, StudyPlan, study
from infoflow.subjects.allocation.settings import DynamicsPlan
from infoflow.training import ModelConfig, TrainConfig

pytestmark = pytest.mark.slow

OBJECTIVES = ("masked-lm", "bilm", "skip-gram")
TABLES = ("task_scores", "word_neighbours", "head_confidence", "model_distance")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    plan = StudyPlan(
        objectives=OBJECTIVES,
        corpus=CorpusPlan(name="grammar:400", vocabulary=150, validation=0.1, test=0.3),
        model=ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=48),
        training=TrainConfig(updates=8, warmup=1, batch_tokens=256),
        analysis=AnalysisPlan(tables=TABLES, sentences=60, distance_occurrences=200),
        dynamics=DynamicsPlan(on=True, tokens=200, held_out_tokens=0, parts=2),
    )
    return study(plan, tmp_path_factory.mktemp("run"), num_processes=1)


def of(frame, objective: str):
    return frame[(frame["objective"] == objective) & frame["trained"]]


def test_each_is_scored_by_what_it_asks(run) -> None:
    scores = run.tables["task_scores"]
    metrics = {name: set(of(scores, name)["metric"]) for name in OBJECTIVES}
    assert {"loss", "loss of forward", "loss of backward"} <= metrics["bilm"]
    assert {"loss", "pair AUC"} <= metrics["skip-gram"]
    auc = of(scores, "skip-gram").query("metric == 'pair AUC'")
    assert auc["value"].between(0, 1).all()
    assert auc["baseline"].eq(0.5).all()
    both = of(scores, "bilm").query("split == 'test'").set_index("metric")
    parts = both.loc[["loss of forward", "loss of backward"]]
    assert both.loc["loss", "value"] == pytest.approx(parts["value"].mean())
    assert both.loc["loss", "baseline"] == pytest.approx(parts["baseline"].mean())


def test_a_guess_by_frequencies_knows_the_begin_of_a_text_as_well_as_its_end(run) -> None:
    """A uniform guess over 150 subwords is the worst that a guess by frequencies can be."""
    both = of(run.tables["task_scores"], "bilm").set_index("metric")
    assert (both.loc[["loss of forward", "loss of backward"], "baseline"] < 5.02).all()


def test_loss_changes_are_allocated_by_term_and_for_all(run) -> None:
    groups = run.tables["allocation_groups"]
    assert set(groups["objective"]) == set(OBJECTIVES)
    embedded = of(groups, "skip-gram")
    assert set(embedded["component"]) <= {"embeddings", "head", "other"}


def test_what_has_no_layers_has_static_neighbours_alone(run) -> None:
    for name in ("head_confidence", "model_distance"):
        table = run.tables[name]
        columns = [column for column in table if column.startswith("objective")]
        assert {value for column in columns for value in table[column]} == {"masked-lm", "bilm"}
    words = run.tables["word_neighbours"]
    layers = {name: set(of(words, name)["layer"]) for name in OBJECTIVES}
    assert layers == {"masked-lm": {0, 1, 2}, "bilm": {0, 1, 2}, "skip-gram": {0}}
    asked = {name: frozenset(of(words, name)["word"]) for name in OBJECTIVES}
    assert len(set(asked.values())) == 1
    assert not words["trained"].all()  # and so has its untrained control


def test_what_is_published_is_loaded_again(run) -> None:
    folder = run.path / "models"
    forward = AutoModelForCausalLM.from_pretrained(folder / "bilm" / "seed-0")
    assert forward.config.is_decoder
    rest = load_file(folder / "bilm" / "seed-0" / "rest.safetensors")
    assert all(name.startswith("backwards.") for name in rest)
    static = load_model(folder / "skip-gram" / "seed-0")
    assert isinstance(static.module, StaticVectors)
    assert static.tokenizer is not None
    assert static.max_tokens == 48
    assert static.anatomy.num_parameters() == sum(p.numel() for p in static.module.parameters())
    again = StaticVectors.from_pretrained(folder / "skip-gram" / "seed-0")
    assert torch.equal(static.module.input_embeddings.weight, again.input_embeddings.weight)


def test_the_report_shows_the_words(run) -> None:
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert 'id="static-contextual"' in page
    assert "One vector for a word, or one for each sentence?" in page


@pytest.fixture(scope="module")
def without_attention(tmp_path_factory):
    plan = StudyPlan(
        objectives=("bilm",),
        architectures=("bert", "elmo"),
        corpus=CorpusPlan(name="grammar:400", vocabulary=150, validation=0.1, test=0.3),
        model=ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=48),
        training=TrainConfig(updates=4, warmup=1, batch_tokens=256),
        analysis=AnalysisPlan(
            tables=("task_scores", "head_confidence", "identity_neighbours", "lens", "word_neighbours"),
            sentences=60,
            neighbours=5,
            neighbour_occurrences=200,
            lens_steps=2,
        ),
    )
    return study(plan, tmp_path_factory.mktemp("elmo"), num_processes=1)


def test_elmo_has_tables_of_states_and_none_of_heads(without_attention) -> None:
    tables = without_attention.tables
    families = {name: set(tables[name]["architecture"]) for name in tables if "architecture" in tables[name]}
    assert families["head_confidence"] == families["lens"] == {"bert"}
    assert families["task_scores"] == families["identity_neighbours"] == {"bert", "elmo"}
    words = tables["word_neighbours"]
    assert set(words.loc[words["architecture"] == "elmo", "layer"]) == {0, 1, 2}
    elmo = load_model(without_attention.path / "models" / "bilm-on-elmo" / "seed-0")
    assert type(elmo.module).__name__ == "Elmo"
    assert elmo.anatomy.lacks() == "its layers have no attention, so it has no heads"
