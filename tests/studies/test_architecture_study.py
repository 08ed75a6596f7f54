"""Studies of many objectives on other families than BERT, with recorded loss changes; one of two languages on T5."""

import numpy as np
import pytest
from studies.test_documents import write_text
from support.undrawn import undrawn
from transformers import T5ForConditionalGeneration

from infoflow.models import load_model
from infoflow.studies import AnalysisPlan, CorpusPlan, StudyPlan, study
from infoflow.subjects.allocation.settings import DynamicsPlan
from infoflow.training import ModelConfig, TrainConfig

pytestmark = pytest.mark.slow

ENCODERS = ("masked-lm", "masked-lm-nsp", "masked-lm-sop", "spanbert", "electra", "distillation")
SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=48)
TRAINING = TrainConfig(updates=4, warmup=1, batch_tokens=256)
EXPECTED = {"albert": set(ENCODERS), "longformer": set(ENCODERS), "gpt2": {"causal-lm", "bilm"}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    name = write_text(tmp_path_factory.mktemp("text") / "text.txt")
    shares = {"validation": 0.15, "test": 0.2}
    plan = StudyPlan(
        objectives=(*ENCODERS, "causal-lm", "bilm"),
        architectures=tuple(EXPECTED),
        corpus=CorpusPlan(name=name, documents=True, lines="paragraphs", vocabulary=150, **shares),
        model=SHAPE,
        training=TRAINING,
        analysis=AnalysisPlan(tables=("task_scores", "head_confidence"), sentences=60, untrained=False),
        dynamics=DynamicsPlan(on=True, tokens=300, held_out_tokens=200, parts=2, windows=2),
    )
    with undrawn():
        return study(plan, tmp_path_factory.mktemp("run"), num_processes=1)


def test_each_family_is_trained_on_all_that_it_can_be(run) -> None:
    scores = run.tables["task_scores"]
    for table in (scores[scores["trained"]], run.tables["match"]):
        found = {family: set(own["objective"]) for family, own in table.groupby("architecture")}
        assert found == EXPECTED


@pytest.mark.parametrize("family", EXPECTED)
def test_every_model_is_measured_and_loaded(run, family) -> None:
    heads = run.tables["head_confidence"]
    heads = heads[heads["architecture"] == family]
    assert set(heads["objective"]) == EXPECTED[family]
    assert np.isfinite(heads["value"]).all()
    for name in EXPECTED[family]:
        model = load_model(run.path / "models" / f"{name}-on-{family}" / "seed-0")
        assert model.module.config.model_type == family
        assert len(model.anatomy.stacks[0].layers) == (1 if name == "distillation" else 2)


def test_loss_changes_of_every_model_add_up(run) -> None:
    learned = run.tables["allocation_groups"]
    assert {(one.objective, one.architecture) for one in learned.itertuples()} == {
        (name, family) for family, names in EXPECTED.items() for name in names
    }


def test_t5_translates_where_both_languages_are_of_one_vocabulary(tmp_path) -> None:
    plan = StudyPlan(
        objectives=("translation", "deshuffling"),
        architectures=("bert", "t5"),
        corpus=CorpusPlan(name="grammar:300", vocabulary=160, test=0.3, validation=0.1, joint_vocabulary=True),
        model=SHAPE,
        training=TRAINING,
        analysis=AnalysisPlan(tables=("task_scores",), sentences=60, bleu_sentences=4),
    )
    done = study(plan, tmp_path / "run", num_processes=1)
    scores = done.tables["task_scores"]
    bleu = scores[(scores["metric"] == "bleu") & scores["trained"]]
    assert set(bleu["architecture"]) == {"bert", "t5"}
    folder = done.path / "models" / "translation-on-t5" / "seed-0"
    assert T5ForConditionalGeneration.from_pretrained(folder).config.vocab_size == 160
    model = load_model(folder)
    sides = [one.convert_ids_to_tokens(range(160)) for one in (model.tokenizer, model.target_tokenizer)]
    assert sides[0] == sides[1]
