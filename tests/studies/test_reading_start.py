"""Readers that can read from the start: another world, one training, the same first weights in all arms of a seed."""

import dataclasses
import os
import signal

import numpy as np
import pytest
import torch
from studies.tiny_readers import plan_with
from support.undrawn import undrawn

from infoflow.corpus import fact_corpus, generate_facts
from infoflow.foundation import UserError
from infoflow.objectives import make_objective
from infoflow.retrieval import Library, Passages, RetrievalModel
from infoflow.studies import graph, study
from infoflow.subjects.retrieval.objectives import retrieval_model
from infoflow.subjects.retrieval.settings import EXCHANGES
from infoflow.subjects.retrieval.stages import MeasureArm, TrainArm, WarmReader, WarmRetriever
from infoflow.subjects.retrieval.training import fact_query_rows
from infoflow.training import TrainingData, TrainingInterrupted, build_models, train

pytestmark = pytest.mark.slow

ABLE = {"read_updates": 5}
EVERY = ["null-share", "cold", "pairs", "same-wording", "rag-sequence", "exchange"]


# -- the other world ---------------------------------------------------------------------------------------------------


def test_the_other_world_has_the_same_words_and_other_facts(tmp_path) -> None:
    plan = plan_with(**ABLE, entities=800, objects=16, world_seed=3)
    (stage,) = graph(plan, tmp_path).of(WarmReader)
    warmed = stage.model
    own, other = generate_facts(plan.retrieval.world(), 3), warmed.matter.world
    assert own.config == other.config
    assert own.tokenizer().get_vocab() == other.tokenizer().get_vocab()
    assert warmed.world_seed not in (3, 4), "sentences of the next one are kept from all models"
    by_name = [
        {(world.names[fact.entity], fact.relation): fact.object for fact in world.facts if fact.relation < 2}
        for world in (own, other)
    ]
    both = by_name[0].keys() & by_name[1].keys()
    alike = np.mean([by_name[0][one] == by_name[1][one] for one in both])
    assert len(both) > 1000  # relations of entities that are called alike
    assert alike == pytest.approx(1 / 16, abs=4 * np.sqrt(15 / 256 / len(both)))
    numbered = np.mean([one.object == two.object for one, two in zip(own.facts, other.facts, strict=True)
                        if one.relation < 2])  # fmt: skip
    assert numbered == pytest.approx(1 / 16, abs=4 * np.sqrt(15 / 256 / 1600))


# -- the weights -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """All arms of a seed and variants, with what they begin with."""
    folder = tmp_path_factory.mktemp("able")
    stages = graph(plan_with(**ABLE, variants=EVERY, seeds=[4]), folder)
    for stage in [*stages.of(WarmReader), *stages.of(WarmRetriever)]:
        stage.run()
    return stages


def test_it_is_read_gold_on_the_other_world(warmed, tmp_path) -> None:
    (stage,) = warmed.of(WarmReader)
    plan = stage.model.models.plan
    world = stage.model.matter.world
    tokenizer = world.tokenizer(64)
    library = Library(Passages.from_rows(world.passages()), tokenizer, 64)
    objective = make_objective("read-gold", k=2, null_share=0.1, refresh_every=3, freeze_retriever=1 / 3)
    vocabulary = stage.model.matter.vocabulary
    reader = build_models([make_objective("closed-book")], plan.model, vocabulary, seed=4)["closed-book"]
    data = TrainingData(source=fact_query_rows(world, tokenizer, library), vocabulary=vocabulary, tokenizer=tokenizer)
    config = dataclasses.replace(
        plan.training, updates=5, seed=4, learning_rate=1e-2, batch_sentences=12, batch_tokens=12 * 64,
        micro_tokens=12 * 64, label_smoothing=0.0, max_source_tokens=None, evaluate_every=0, save_every=0,
    )  # fmt: skip
    model = retrieval_model(objective, reader, library)
    before = {name: value.clone() for name, value in reader.state_dict().items()}
    train(objective, config, data, model, tmp_path)
    found, wanted = stage.model.load().state_dict(), model.reader.state_dict()
    assert all(torch.equal(value, wanted[name]) for name, value in found.items())
    assert not all(torch.equal(value, before[name]) for name, value in found.items())


def test_all_arms_of_a_seed_begin_with_it(warmed) -> None:
    (stage,) = warmed.of(WarmReader)
    reader = stage.model.load().state_dict()
    for train_arm in warmed.of(TrainArm):
        arm = train_arm.model
        if arm.variant in EXCHANGES:
            continue
        first = arm.first()
        if arm.writes:
            encoder = first.reader.encoder.state_dict()
            assert all(torch.equal(value, reader[f"bert.{name}"]) for name, value in encoder.items())
            assert "embeddings.word_embeddings.weight" in encoder
        else:
            assert all(torch.equal(value, reader[name]) for name, value in first.reader.state_dict().items()), arm.name
        if first.source in ("gold", "random", "bm25"):
            assert first.null_logit.item() == -2.0, "what weighs passages begins anew"


def test_retrievers_are_warmed_up_as_ever(warmed, tmp_path) -> None:
    plain = graph(plan_with(variants=EVERY, seeds=[4]), tmp_path)
    assert [one.key for one in plain.of(WarmRetriever)] == [one.key for one in warmed.of(WarmRetriever)]


def test_one_that_was_interrupted_ends_with_the_same_weights(warmed, tmp_path, monkeypatch) -> None:
    (whole,), (cut,) = (stages.of(WarmReader) for stages in (warmed, graph(plan_with(**ABLE, seeds=[4]), tmp_path)))
    read, calls = RetrievalModel.log_likelihoods, []

    def stop(self, *given):
        calls.append(given)
        if len(calls) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return read(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(RetrievalModel, "log_likelihoods", stop)
        with pytest.raises(TrainingInterrupted):
            cut.run()
    assert not cut.is_done()
    facts = cut.run()
    assert cut.is_done()
    weights = [(one.model.folder / "model" / "model.safetensors").read_bytes() for one in (whole, cut)]
    assert weights[0] == weights[1]
    assert facts["updates"] == 5
    assert 0 <= facts["reads"] <= 1
    assert not (cut.model.folder / "checkpoints").exists()


# -- the graph ---------------------------------------------------------------------------------------------------------


def test_plans_that_do_not_ask_for_it_stay_as_they_are(tmp_path) -> None:
    silent, off = graph(plan_with(variants=EVERY), tmp_path), graph(plan_with(variants=EVERY, read_updates=0), tmp_path)
    assert [stage.key for stage in silent] == [stage.key for stage in off]
    assert not silent.of(WarmReader)
    assert all(stage.model.warmed is None for stage in silent.of(TrainArm))


def test_every_arm_depends_on_it_and_nothing_else_does(tmp_path) -> None:
    asked = {"variants": ["null-share", "rag-sequence", "exchange"], "seeds": [1, 2]}
    plain = graph(plan_with(**asked), tmp_path)
    able, longer = (graph(plan_with(**asked, read_updates=updates), tmp_path) for updates in (5, 6))
    stages = able.of(WarmReader)
    assert [stage.model.seed for stage in stages] == [1, 2]
    assert all(stage.estimate == pytest.approx(3.0 * 5 / 2) for stage in stages)  # in trainings of the study's models
    keys = {stage.model.seed: stage.key for stage in stages}
    order = [stage.key for stage in able]
    for stage in able.of(TrainArm):
        assert (keys[stage.model.seed] in stage.needs) == (stage.model.variant not in EXCHANGES)
        assert all(order.index(need) < order.index(stage.key) for need in stage.needs)
    for name in ("key", "reader_key", "first_key"):
        found = [{getattr(one.model, name) for one in part.of(TrainArm)} for part in (plain, able, longer)]
        assert not found[0] & found[1]
        assert not found[1] & found[2]
    readers = ("warm-reader", "read", "settle", "examine", "check")
    others = [[one.key for one in part if one.kind not in readers] for part in (plain, able)]
    assert others[0] == others[1]


def test_real_text_has_no_other_world() -> None:
    with pytest.raises(UserError, match=r"read_updates must be 0 with retrieval\.corpus.*Got 5"):
        plan_with(**ABLE, corpus="train.jsonl", variants=[], measures=["scores"])


# -- a whole study -----------------------------------------------------------------------------------------------------


def test_a_study_tells_that_readers_came_able_to_read(tmp_path) -> None:
    spoken = {"language": 0.4, "world_seed": 5}  # so that a sentence of the other world comes again
    asked = {"arms": ["closed-book", "read-gold"], "variants": [], "measures": ["scores", "knowledge"]}
    plan = plan_with(**ABLE, **spoken, **asked)
    with undrawn():
        run = study(plan, tmp_path, num_processes=1)
    scores, knowledge = run.tables["retrieval_scores"], run.tables["knowledge"]
    told = scores[scores["metric"] == "read_updates"]
    assert set(told["objective"]) == {"closed-book", "read-gold"}
    assert set(told["value"]) == {5.0}
    before = knowledge[~knowledge["trained"] & (knowledge["document"] == "gold") & (knowledge["layer"] == -1)]
    each = [own["value"].to_numpy() for _, own in before.groupby("objective")]
    assert len(each) == 2
    assert np.array_equal(each[0], each[1]), "before training all arms are one reader"
    assert [stage.kind for stage in graph(plan, tmp_path).missing()] == ["check"]
    (first, *_) = (one for one in graph(plan, tmp_path).of(MeasureArm) if not one.trained)
    own, unread = (fact_corpus(generate_facts(plan.retrieval.world(), seed)) for seed in (5, 6))
    before = fact_corpus(first.model.warmed.matter.world)
    written = zip(unread.column("text"), unread.column("label"), strict=True)
    language = [text for text, label in written if label is None and text not in {*own.column("text")}]
    unseen = [text for text in language if text not in {*before.column("text")}]
    assert 0 < len(unseen) < len(language) < 400, "a short sentence comes again by chance"
    assert set(scores.loc[scores["queries"] == "language", "count"]) == {len(unseen)}, "what none has read before"
    assert torch.equal(
        first.model.load(trained=False).reader.state_dict()["cls.predictions.bias"],
        first.model.warmed.load().state_dict()["cls.predictions.bias"],
    )
