"""A study whose objectives read windows and pairs, and train more than what is measured."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from studies.test_documents import write_text
from support.undrawn import undrawn
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining

from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.studies import AnalysisPlan, CorpusPlan, StudyPlan, study
from infoflow.training import ModelConfig, TrainConfig

pytestmark = pytest.mark.slow

OBJECTIVES = ("masked-lm", "masked-lm-nsp", "masked-lm-sop", "spanbert", "electra", "bart", "distillation")


def plan(corpus: CorpusPlan, **settings) -> StudyPlan:
    return StudyPlan(
        objectives=settings.pop("objectives", OBJECTIVES),
        corpus=corpus,
        model=ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=48),
        training=TrainConfig(updates=4, warmup=1, batch_tokens=256),
        analysis=AnalysisPlan(tables=("task_scores", "head_confidence"), sentences=60, bleu_sentences=2),
        **settings,
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> CorpusPlan:
    name = write_text(tmp_path_factory.mktemp("text") / "text.txt")
    shares = {"validation": 0.15, "test": 0.2}
    return CorpusPlan(name=name, documents=True, lines="paragraphs", vocabulary=150, **shares)


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    with undrawn():
        return study(plan(corpus, text="windows"), tmp_path_factory.mktemp("run"), num_processes=1)


def test_every_objective_is_scored_by_all_that_it_asks(run) -> None:
    scores = run.tables["task_scores"]
    scores = scores[scores["trained"] & (scores["split"] == "test")]
    found = {name: set(own["metric"]) for name, own in scores.groupby("objective")}
    assert found.keys() == set(OBJECTIVES)
    assert "next-sentence accuracy" in found["masked-lm-nsp"]
    assert "sentence-order accuracy" in found["masked-lm-sop"]
    assert "replaced-token AUC" in found["electra"]
    assert {"loss of masked-lm", "loss of teacher", "loss of cosine"} <= found["distillation"]
    answers = scores[scores["metric"].str.contains("accuracy|AUC")]
    assert answers["value"].between(0, 1).all()
    assert (answers["low"] <= answers["value"]).all()
    assert (answers["value"] <= answers["high"]).all()


def test_what_is_published_is_a_plain_model(run) -> None:
    for name in ("masked-lm", "masked-lm-nsp", "masked-lm-sop", "spanbert", "distillation"):
        folder = run.path / "models" / name / "seed-0"
        model = AutoModelForMaskedLM.from_pretrained(folder)
        assert (folder / "rest.safetensors").exists() == (name != "masked-lm")
        assert model.config.num_hidden_layers == (1 if name == "distillation" else 2)
    folder = run.path / "models" / "electra" / "seed-0"
    assert type(AutoModelForPreTraining.from_pretrained(folder)).__name__ == "ElectraForPreTraining"


def test_the_generator_is_a_masked_lm_beside_the_discriminator(run) -> None:
    folder = run.path / "models" / "electra" / "seed-0"
    model = load_model(folder / "generator")
    assert type(model.module).__name__ == "ElectraForMaskedLM"
    assert model.tokenizer is not None
    found, rest = model.module.state_dict(), load_file(folder / "rest.safetensors")
    own = {name.removeprefix("generator."): value for name, value in rest.items() if name.startswith("generator.")}
    assert any(".layer." in name for name in own)
    assert all(torch.equal(found[name], value) for name, value in own.items())
    words = AutoModelForPreTraining.from_pretrained(folder).get_input_embeddings().weight
    assert torch.equal(model.module.get_input_embeddings().weight, words)


def test_windows_are_fewer_than_sentences_and_read_as_many_tokens(run, corpus, tmp_path) -> None:
    single = study(plan(corpus, objectives=("masked-lm",)), tmp_path / "sentences", num_processes=1)
    read = [one.tables["training_runs"].set_index("objective")["source_tokens"]["masked-lm"] for one in (run, single)]
    assert np.all(np.array(read) > 0)
    assert read[0] != read[1]  # another cut of the same text


def test_sentences_that_do_not_follow_each_other_are_refused(tmp_path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"The dog of {n} sees the cat.\n" for n in range(100)))
    for settings in ({"objectives": ("masked-lm-nsp",)}, {"objectives": ("bart",), "text": "windows"}):
        with pytest.raises(UserError, match="needs documents"):
            study(plan(CorpusPlan(name=str(path), vocabulary=60), **settings), tmp_path / "run", num_processes=1)
