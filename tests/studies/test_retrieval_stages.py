"""Readers with and without passages in a study: matched, resumed to the bit, tables of what they hold and find."""

import dataclasses
import os
import signal
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from studies import tiny_readers
from support.undrawn import undrawn
from transformers import AutoModelForSeq2SeqLM

from infoflow.corpus import FACT_LANGUAGE, FactConfig, fact_corpus, generate_facts, generate_grammar
from infoflow.evidence import EVIDENCE_TABLES, fact_inputs, later_answers
from infoflow.findings import FINDINGS, evaluate
from infoflow.foundation import UserError, hash64
from infoflow.models import load_model
from infoflow.objectives import Example
from infoflow.results import KEYS, RunFolder
from infoflow.retrieval import NULL, Candidates, Library, Passages, RetrievalModel, Retriever
from infoflow.studies import Run, StudyModels, StudyPlan, graph, study
from infoflow.subjects.retrieval.objectives import SOURCES
from infoflow.subjects.retrieval.settings import EXCHANGES, MEASURES, OF_VARIANTS, RetrievalPlan
from infoflow.subjects.retrieval.stages import (
    FollowArm,
    JoinArms,
    MeasureArm,
    RecordArm,
    SettleArm,
    TrainArm,
    WarmRetriever,
)
from infoflow.subjects.retrieval.stages._arm_measures import MEASURED, ArmInside, probed_language
from infoflow.subjects.retrieval.stages._arm_scores import ArmScores, unread_language
from infoflow.subjects.retrieval.stages._reading_matter import read_world, training_accuracy
from infoflow.subjects.retrieval.stages._retrieval_arms import ArmModel, arm_models
from infoflow.subjects.retrieval.training import fact_query_rows
from infoflow.training import TrainingHook, TrainingInterrupted

pytestmark = pytest.mark.slow

ARMS = ("closed-book", "read-random", "retrieve-learned")


def plan_with(**changes) -> StudyPlan:
    return tiny_readers.plan_with(**{"measures": ["scores", "heads"], **changes})


@pytest.fixture(scope="module")
def plan() -> StudyPlan:
    return plan_with()


@pytest.fixture(scope="module")
def read_run(built_once) -> Run:
    def build(folder):
        with undrawn():
            study(plan_with(arms=list(ARMS)), folder, num_processes=1)

    return Run.open(built_once("retrieval-study", build))


def test_a_plan_that_searches_by_words_is_refused_at_once_without_bm25s(plan, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(UserError, match="A lexical index needs bm25s"):
        study(plan, tmp_path / "run", num_processes=1)
    assert not (tmp_path / "run").exists()


# -- which models ------------------------------------------------------------------------------------------------------


def test_every_arm_and_variant_is_one_model(tmp_path) -> None:
    models = StudyModels(plan_with(variants=list(OF_VARIANTS), seeds=[3, 4]), RunFolder(tmp_path))
    arms = arm_models(models)
    assert len({arm.key for arm in arms}) == len(arms)
    named = {(arm.arm, arm.variant) for arm in arms if arm.seed == 4}
    wanted = {(arm, "") for arm in SOURCES} | {
        (arm, variant) for variant, of in OF_VARIANTS.items() if variant != "exchange" for arm in of
    }
    assert named == wanted | {("retrieve-learned", variant) for variant in EXCHANGES}
    assert [arm.variant for arm in arms[:14]] == ["", "", "", "", "", "", "null-share"] * 2
    stages = graph(models.plan, tmp_path)
    assert len({stage.key for stage in stages}) == len(stages)
    order = {stage.key: place for place, stage in enumerate(stages)}
    assert all(order[need] < order[stage.key] for stage in stages for need in stage.needs)
    assert len(stages.of(WarmRetriever)) == 2  # one for each seed: queries of other words search the same passages


def test_arms_of_a_seed_begin_with_one_reader_and_ask_the_same(tmp_path, plan) -> None:
    models = StudyModels(plan, RunFolder(tmp_path))
    graph(plan, tmp_path)
    firsts = []
    for arm in arm_models(models):
        if arm.warm is not None:
            arm.warm.train()
        firsts.append((arm, arm.first()))
    states = [model.reader.state_dict() for _, model in firsts]
    assert all(torch.equal(one[name], states[0][name]) for one in states[1:] for name in one)
    batches = [arm.world.queries.batch(arm.objective, np.arange(20), ("x",), 0) for arm, _ in firsts]
    plain = [batch for (arm, _), batch in zip(firsts, batches, strict=True) if not arm.variant]
    assert all(torch.equal(one[name], plain[0][name]) for one in plain[1:] for name in one.tensors)
    towers = [model.retriever.state_dict() for _, model in firsts if model.retriever is not None]
    assert len(towers) == 2
    assert all(torch.equal(value, towers[1][name]) for name, value in towers[0].items())


def test_variants_differ_in_what_their_name_says() -> None:
    asked = RetrievalPlan(variants=tuple(OF_VARIANTS), stale_refresh=1500)
    plain = asked.objective("retrieve-learned")
    changes = {
        "stale": {"refresh_every": 1500},
        "random-token": {"masking": "random-token"},
        "random-span": {"masking": "random-span"},
        "token-level": {"level": "token"},
        "exchange-both": {"freeze_retriever": 0.0},
    }
    for variant, change in changes.items():
        assert asked.objective("retrieve-learned", variant) == dataclasses.replace(plain, **change)
    assert asked.objective("retrieve-learned", "cold") == plain
    assert asked.objective("closed-book", "null-share").null_share_only
    assert asked.world("same-wording").wording == "same"
    assert asked.world("pairs").passages == "pairs"
    assert asked.world("stale") == asked.world()


def test_settings_that_change_no_weights_change_no_key(tmp_path, plan) -> None:
    def keys(**changes):
        return [arm.key for arm in arm_models(StudyModels(plan_with(**changes), RunFolder(tmp_path)))]

    before = keys()
    assert keys(measures=["knowledge"], save_every=50, variants=["null-share"], repeat=True) == before
    assert not set(keys(learning_rate=2e-2)) & set(before)
    assert not set(keys(entities=13)) & set(before)
    searched = [arm.arm for arm, one in zip(arm_models(StudyModels(plan, RunFolder(tmp_path))), before, strict=True)
                if one not in keys(warm_updates=5)]  # fmt: skip
    assert searched == ["retrieve-frozen", "retrieve-learned"]


# -- training ----------------------------------------------------------------------------------------------------------


def test_parts_are_exchanged_as_the_variant_says(tmp_path) -> None:
    plan = plan_with(arms=["retrieve-learned"], variants=["exchange"])
    stages = graph(plan, tmp_path)
    for stage in [*stages.of(WarmRetriever), *stages.of(TrainArm)]:
        stage.run()
    arms = {stage.model.variant: stage.model for stage in stages.of(TrainArm)}
    trained, begun = arms[""].load(), arms[""].first()
    for variant in EXCHANGES:
        model = arms[variant].first()
        for part, taken in (("reader", "reader"), ("retriever", "retriever")):
            source = trained if variant in ("exchange-both", f"exchange-{taken}") else begun
            found, wanted = getattr(model, part).state_dict(), getattr(source, part).state_dict()
            assert all(torch.equal(value, wanted[name]) for name, value in found.items()), (variant, part)
        assert arms[variant].facts()["updates"] == 2


@pytest.mark.parametrize("name", ["retrieve-learned", "closed-book"])
def test_an_interrupted_arm_ends_with_the_same_weights(name, tmp_path, monkeypatch) -> None:
    plan = plan_with(arms=[name], variants=[])
    whole, cut = graph(plan, tmp_path / "whole"), graph(plan, tmp_path / "cut")
    for stage in [*whole.of(WarmRetriever), *whole.of(TrainArm)]:
        stage.run()
    for stage in cut.of(WarmRetriever):
        stage.run()
    begin = TrainingHook.on_step_end

    def stop(self, step):
        if step.update == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return begin(self, step)

    (stage,) = cut.of(TrainArm)
    with monkeypatch.context() as patched:
        patched.setattr(TrainingHook, "on_step_end", stop)
        with pytest.raises(TrainingInterrupted):
            stage.run()
    assert not stage.is_done()
    stage.run()
    (same,) = whole.of(TrainArm)
    for file in ("model.safetensors", "rest.safetensors"):
        paths = [one.model.weights / file for one in (stage, same)]
        assert [path.exists() for path in paths] in ([True, True], [False, False])
        assert not paths[0].exists() or paths[0].read_bytes() == paths[1].read_bytes()
    settled = [one.of(SettleArm)[0] for one in (cut, whole)]
    assert [one.run() for one in settled] == [{}, {}]
    learned = [one.tables()["retrieval_learning"] for one in settled]
    assert pd.DataFrame(learned[0]).equals(pd.DataFrame(learned[1]))
    assert learned[0]["update"].tolist() == list(range(1, 7))


def test_a_training_that_learned_nothing_is_repeated_at_half_the_rate(tmp_path) -> None:
    stages = graph(plan_with(arms=["closed-book"], variants=["null-share"], repeat=True), tmp_path)
    first = stages.of(TrainArm)
    assert not any(stage.is_done() for stage in stages.of(SettleArm))
    assert all(stage.estimate < 0.01 for stage in stages.of(SettleArm))
    for stage in first:
        stage.run()
    assert not first[0].model.facts()["learned"]  # six updates are not enough
    for stage, once in zip(stages.of(SettleArm), first, strict=True):
        assert not stage.is_done()
        assert stage.estimate == once.estimate  # it is known now that all of it is done again
        facts = stage.run()
        assert stage.estimate < once.estimate / 100
        assert facts["learning_rate"] == 0.005
        assert stage.is_done()
        runs = stage.tables()["retrieval_runs"]
        assert runs["learning_rate"].tolist() == [0.005]
        scores = stage.tables()["retrieval_scores"].set_index("metric")
        assert scores.loc["learned", "value"] == float(facts["learned"])
        assert scores.loc["training_p1", "baseline"] == 0.25
        assert load_model(stage.model.published).digest == load_model(stage.counts.weights).digest


# -- loss changes ------------------------------------------------------------------------------------------------------

RECORDING = {"allocation_tokens": 200, "allocation_every": 1, "arms": ["retrieve-learned"], "freeze_retriever": 0.3}


def untimed(frame: pd.DataFrame) -> pd.DataFrame:
    """Without what a clock says."""
    return pd.DataFrame(frame[frame["statistic"] != "seconds"] if "statistic" in frame else frame).reset_index(
        drop=True
    )


def run_all(stages) -> None:
    for stage in [*stages.of(WarmRetriever), *stages.of(TrainArm), *stages.of(SettleArm), *stages.of(RecordArm)]:
        stage.run()


def test_loss_changes_are_recorded_while_an_arm_trains_or_afterwards(tmp_path) -> None:
    plain, asked = plan_with(**{**RECORDING, "allocation_tokens": 0}, variants=[]), plan_with(**RECORDING, variants=[])
    first, later = tmp_path / "first", tmp_path / "later"
    at_once = graph(asked, first)
    (stage,) = at_once.of(RecordArm)
    assert not stage.is_done()
    assert stage.estimate < 0.01, "the training is to record itself"
    for one in [*at_once.of(WarmRetriever), *at_once.of(TrainArm), *at_once.of(SettleArm)]:
        one.run()
    assert stage.is_done()

    without = graph(plain, later)
    assert not without.of(RecordArm)
    run_all(without)
    afterwards = graph(asked, later)
    assert all(one.is_done() for one in afterwards.of(TrainArm)), "nothing is trained again for its weights"
    (again,) = afterwards.of(RecordArm)
    assert not again.is_done()
    assert again.estimate > 0.01
    again.run()
    assert again.is_done()
    assert again.run() == {}
    found, wanted = again.tables(), stage.tables()
    assert set(found) == set(wanted) == {f"allocation_{name}" for name in ALLOCATED}
    for name, frame in wanted.items():
        assert untimed(found[name]).equals(untimed(frame)), name
        stage.schemas()[name].conform(pd.DataFrame(frame))
    weights = [one.of(TrainArm)[0].model.weights / "model.safetensors" for one in (at_once, afterwards)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert not list((later / "work").glob("reading-again/*/*"))


ALLOCATED = ("windows", "steps", "groups", "heads", "hurting", "reliability")


def test_only_plain_arms_are_recorded_and_settings_change_no_weights(tmp_path) -> None:
    asked = {**RECORDING, "arms": list(SOURCES)}
    stages = graph(plan_with(**asked, variants=list(OF_VARIANTS)), tmp_path)
    assert [stage.model.arm for stage in stages.of(RecordArm)] == list(SOURCES)
    assert {stage.model.variant for stage in stages.of(RecordArm)} == {""}

    def keys(**changes):
        stages = graph(plan_with(**{**asked, **changes}, variants=[]), tmp_path / "keys")
        return [[stage.key for stage in stages.of(kind)] for kind in (TrainArm, RecordArm)]

    before = keys()
    for name in ("allocation_tokens", "allocation_every", "allocation_negatives"):
        after = keys(**{name: 7})
        assert after[0] == before[0], name
        assert not set(after[1]) & set(before[1]), name


# -- while they learn --------------------------------------------------------------------------------------------------

FOLLOWING = {"checkpoints": 3, "arms": ["closed-book", "retrieve-bm25", "retrieve-learned"], "updates": 12}


@pytest.fixture(scope="module")
def followed(built_once):
    def build(folder):
        stages = graph(plan_with(**FOLLOWING, variants=["null-share"]), folder)
        run_all(stages)
        for stage in [*stages.of(FollowArm), *stages.of(JoinArms)]:
            stage.run()

    folder = built_once("followed-arms", build)
    return graph(plan_with(**FOLLOWING, variants=["null-share"]), folder)


def test_more_checkpoints_than_updates_are_refused() -> None:
    with pytest.raises(UserError, match=r"checkpoints must be at most retrieval\.updates\. Got 7 and 6"):
        plan_with(checkpoints=7)


def test_too_few_tokens_for_the_parts_of_a_recording_are_told(tmp_path) -> None:
    stages = graph(plan_with(**{**RECORDING, "allocation_tokens": 1}, variants=[]), tmp_path)
    stages.of(WarmRetriever)[0].run()
    with pytest.raises(UserError, match=r"fewer than its 4 parts\. Ask for more tokens"):
        stages.of(TrainArm)[0].run()


def test_arms_are_followed_at_the_updates_that_were_kept(followed) -> None:
    stages = followed.of(FollowArm)
    assert [stage.model.arm for stage in stages] == FOLLOWING["arms"]
    for stage in stages:
        assert stage.is_done()
        course = stage.tables()["retrieval_course"]
        stage.schemas()["retrieval_course"].conform(pd.DataFrame(course))
        assert sorted(set(course["update"])) == [0, 4, 8, 12]
        assert set(course["facts"]) == {"trained", "held out"}
        metrics = {"p1", "log_likelihood"} | ({"utility"} if stage.model.arm != "closed-book" else set())
        assert set(course["metric"]) == metrics
        assert len(course) == 4 * 2 * len(metrics)
        p1 = course[course["metric"] == "p1"]
        assert p1["value"].between(0, 1).all()
        assert (p1["low"] >= 0).all()
        assert (p1["high"] <= 1).all()


def test_the_last_kept_update_is_the_trained_model_and_the_first_one_is_not_trained(followed) -> None:
    for stage in followed.of(FollowArm):
        arm = stage.counts
        for update, trained in ((0, False), (12, True)):
            kept, wanted = arm.load(update=update).state_dict(), arm.load(trained=trained).state_dict()
            assert all(torch.equal(kept[name], value) for name, value in wanted.items())


def test_what_is_said_of_a_kept_update_is_what_the_loss_says(followed) -> None:
    """Log-likelihood and utility by the arm's own functions, question by question."""
    arm = next(stage.counts for stage in followed.of(FollowArm) if stage.model.arm == "retrieve-learned")
    course = next(stage.tables()["retrieval_course"] for stage in followed.of(FollowArm) if stage.counts.arm == arm.arm)
    own = course[(course["update"] == 8) & (course["facts"] == "held out")].set_index("metric")["value"]
    model, world = arm.load(update=8), arm.world.world
    asked = fact_inputs(world, arm.world.tokenizer, world.of_kind("held out"), "none", limit=64)
    likely, gain, right = [], [], []
    with torch.no_grad():
        for row in range(len(asked)):
            places = asked.masks[row][asked.masks[row] >= 0]
            real = (asked.attention_mask[row] == 1) & (asked.token_type_ids[row] == 0)
            ids = torch.from_numpy(asked.input_ids[row][real])[None]
            vector = model.retriever.queries(ids)[0]
            scores = vector @ model.passage_library.dense.vectors.T
            best = sorted(range(len(scores)), key=lambda id: (-float(scores[id]), id))[:2]
            prior = model.logits(
                ids, None, Candidates(np.array([[*best, NULL]]), np.ones((1, 3), bool), np.zeros((1, 3)))
            )
            prior = prior[0].double().softmax(dim=0)
            sums = []
            for choice in asked.candidates[row]:
                if (choice < 0).all():
                    continue
                labels = torch.full_like(ids, -100)
                labels[0, places] = torch.from_numpy(choice[: len(places)])
                one = Candidates(np.array([[*best, NULL]]), np.ones((1, 3), bool), np.zeros((1, 3)))
                sums.append(model.log_likelihoods(ids, None, labels, one)[0][0].double().sum(dim=1))
            told = torch.stack([(prior * one.exp()).sum().log() for one in sums])
            answer = int(asked.answers[row])
            likely.append(float(told[answer]))
            gain.append(float(told[answer] - sums[answer][-1]))
            right.append(float(told.argmax() == answer))
    assert own["log_likelihood"] == pytest.approx(np.mean(likely), rel=1e-4)
    assert own["utility"] == pytest.approx(np.mean(gain), rel=1e-3, abs=1e-5)
    assert own["p1"] == pytest.approx(np.mean(right))


def test_a_seeds_arms_say_together_what_tells_later_answers(followed) -> None:
    (stage,) = followed.of(JoinArms)
    assert stage.is_done()
    rows = stage.tables()["retrieval_scores"]
    assert set(rows["metric"]) <= {"later_by_utility", "later_by_likelihood"}
    assert (rows["objective"] == "retrieve-learned").all()
    courses = pd.concat([one.tables()["retrieval_course"] for one in followed.of(FollowArm)])
    assert rows["value"].tolist() == later_answers(courses)["value"].tolist()
    frames = [rows.assign(seed=seed, model=f"retrieve-learned/seed-{seed}") for seed in range(3)]  # claims need three
    found = evaluate({"retrieval_scores": pd.concat(frames)}, [FINDINGS["retrieval:R-13"]]).iloc[0]
    value = rows.set_index("metric")["value"]
    assert found["verdict"] in ("holds", "fails", "undetermined"), found["reason"]
    assert found["effect"] == pytest.approx(value["later_by_utility"] - value["later_by_likelihood"], abs=1e-6)


def test_arms_that_were_trained_before_are_followed_after_a_second_training(followed, tmp_path) -> None:
    only = {**FOLLOWING, "arms": ["retrieve-bm25"]}
    without = graph(plan_with(**{**only, "checkpoints": 0}, variants=[]), tmp_path)
    run_all(without)
    assert not without.of(FollowArm)
    stages = graph(plan_with(**only, variants=[]), tmp_path)
    (stage,) = stages.of(FollowArm)
    assert not stages.of(JoinArms)
    assert all(one.is_done() for one in stages.of(TrainArm))
    assert not stage.is_done()
    stage.run()
    assert stage.is_done()
    (other,) = (one for one in followed.of(FollowArm) if one.model.arm == "retrieve-bm25")
    found, wanted = (pd.DataFrame(one.tables()["retrieval_course"]) for one in (stage, other))
    assert found.equals(wanted)


# -- the whole study ---------------------------------------------------------------------------------------------------


def test_every_arm_has_its_rows(read_run) -> None:
    runs = read_run.tables["retrieval_runs"]
    assert list(runs.columns[: len(KEYS)]) == [column.name for column in KEYS]
    named = set(zip(runs["objective"], runs["variant"], strict=True))
    assert named == {(name, "") for name in ARMS} | {("closed-book", "null-share")}
    assert (runs["updates"] == 6).all()
    for name in ARMS:
        folder = read_run.path / "models" / name / "seed-0"
        assert type(load_model(folder).module).__name__ == "BertForMaskedLM"
        assert (folder / "retriever").is_dir() == (name == "retrieve-learned")
    assert isinstance(Retriever.from_pretrained(folder / "retriever"), Retriever)
    heads = read_run.tables["evidence_heads"]
    assert set(heads["objective"]) == set(ARMS)
    assert set(heads["variant"]) == {""}  # of variants only what they find and know
    untrained = heads[~heads["trained"]].astype({"replicates": str})
    plain = untrained.drop(columns=[column.name for column in KEYS])
    by_model = [frame.reset_index(drop=True) for _, frame in plain.groupby(untrained["model"])]
    assert len(by_model) == len(ARMS)
    assert all(pd.DataFrame(frame).equals(pd.DataFrame(by_model[0])) for frame in by_model[1:])  # one reader
    assert not read_run.failures


def test_probed_sentences_are_of_words_that_readers_know_and_of_no_training_text() -> None:
    world = generate_facts(FactConfig(entities=64), seed=3)
    tokenizer, probed = world.tokenizer(), probed_language(world)
    texts = list(probed.column("text"))
    assert not any(tokenizer.unk_token_id in row for row in tokenizer(texts)["input_ids"])
    num_language = list(fact_corpus(world).column("label")).count(None)
    trained = {tuple(words) for words in world.language_sentences(num_language)}
    assert not trained & set(map(tuple, probed.column("words")))
    assert len(set(texts)) == len(texts) > 1000
    every = generate_grammar(1200, hash64("probed-language") % 2**31, FACT_LANGUAGE).column("words")
    assert trained & set(map(tuple, every)), "short sentences come again by chance"
    before = generate_facts(FactConfig(entities=24), seed=5)  # that readers were warmed up on
    read = set(fact_corpus(before).column("text"))
    assert not set(probed_language(world, before).column("text")) & read
    assert set(texts) & read


def test_no_sentence_whose_loss_is_told_stands_in_the_training_text() -> None:
    world, unread = (read_world(FactConfig(entities=24), seed, 64) for seed in (3, 4))
    written = fact_corpus(unread.world)
    texts, labels = list(written.column("text")), list(written.column("label"))
    chosen = unread_language(world, unread).tolist()
    assert {labels[row] for row in chosen} == {None}
    trained = set(fact_corpus(world.world).column("text"))
    assert not trained & {texts[row] for row in chosen}
    language = [row for row, label in enumerate(labels) if label is None]
    assert any(texts[row] in trained for row in language), "short sentences come again by chance"
    assert len(chosen) == min(400, sum(texts[row] not in trained for row in language))


@pytest.fixture
def few_questions(monkeypatch) -> None:
    """Fewer facts, dates and sentences for what asks or ablates many times."""
    folder = "infoflow.subjects.retrieval.stages"
    for name, value in {"_PROBED": 150, "_HEAVY": 12, "_LIGHT": 8}.items():
        monkeypatch.setattr(f"{folder}._arm_measures.{name}", value)
    for name, value in {"_PASSAGES": (2,), "_MOST_DECODED": 6}.items():
        monkeypatch.setattr(f"{folder}._arm_scores.{name}", value)


def test_every_measure_has_its_table_and_encodes_an_arms_passages_once(tmp_path, monkeypatch, few_questions) -> None:
    """Once as edited and once as it began beside that; every table is that of indexes built for each set of facts."""
    stages = graph(plan_with(arms=["retrieve-learned"], variants=[], measures=list(MEASURES)), tmp_path)
    for stage in [*stages.of(WarmRetriever), *stages.of(TrainArm), *stages.of(SettleArm)]:
        stage.run()
    trained, untrained = stages.of(MeasureArm)
    assert (trained.trained, untrained.trained) == (True, False)
    assert not trained.is_done()
    encoded, embed, inside = [], Library.embed, ArmInside(trained.counts, True)

    def counted(library, tower):
        encoded.append((library.passages.digest, tower))
        return embed(library, tower)

    monkeypatch.setattr(Library, "embed", counted)
    monkeypatch.setattr("infoflow.subjects.retrieval.stages._examine_readers.ArmInside", lambda *of: inside)
    trained.run()
    assert trained.is_done()
    assert not trained.failures()
    world, own = trained.counts.world.world, inside.model.retriever.passages
    passages, edited = (Passages.from_rows(world.passages(which)).digest for which in (False, True))
    assert sorted(digest for digest, tower in encoded if tower is own) == sorted([passages, edited])
    assert [digest for digest, tower in encoded if tower is not own] == [passages]
    tables = trained.tables()
    probed = {"probe_trees", "probe_scores"}
    assert set(tables) == {*(schema.name for schema in EVIDENCE_TABLES), "retrieval_scores", *probed}
    assert set(tables["probe_trees"]["structure"]) == {"distance", "depth"}
    assert set(tables["probe_scores"]["task"]) == {"parent"}
    for name, table in tables.items():
        conformed = trained.schemas()[name].conform(pd.DataFrame(table))
        assert len(conformed), name
        assert set(table["objective"]) == {"retrieve-learned"}
    assert_asked(tables, {"trained": True, "changed": True, "held out": False, "withheld": False}, "retrieved")
    known = tables["knowledge"]
    assert {"none", "gold", "random", "conflict", "own"} <= set(known["document"])
    assert {"raw", "elicited"} <= set(known["reading"])
    assert {"as-trained", "edited"} <= set(known["index"])

    monkeypatch.setattr(ArmInside, "own_library", None)
    monkeypatch.setattr(ArmInside, "edited_library", None)
    anew = ArmInside(trained.counts, True)
    assert len(anew.model.passage_library) == len(inside.model.passage_library)
    searching = ["scores", "knowledge", "lens", "flow", "heads", "ablation", "examples"]
    for one in [*searching, "ranking"]:
        before, schema = len(encoded), trained.schemas()[MEASURED[one].schema.name]
        again = pd.DataFrame(MEASURED[one].of(anew)).assign(**trained.columns())
        assert_same(schema.conform(again), schema.conform(pd.DataFrame(tables[schema.name])))
        assert (len(encoded) > before) == (one in searching), one


def test_an_arm_before_training_retrieves_nothing(tmp_path, few_questions) -> None:
    plan = plan_with(arms=["retrieve-learned"], variants=[], measures=["lens", "heads"])
    stages = graph(plan, tmp_path)
    stages.of(WarmRetriever)[0].run()
    untrained = stages.of(MeasureArm)[1]
    assert not untrained.trained
    untrained.run()
    assert not untrained.failures()
    before = untrained.tables()
    assert "retrieved" not in {*before["knowledge_lens"]["document"], *before["evidence_heads"]["document"]}


def assert_same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    """To the bit."""
    plain = one.columns.drop("replicates", errors="ignore")
    assert one[plain].equals(other[plain])
    if "replicates" in one:
        assert np.array_equal(*(np.concatenate([*table["replicates"]]) for table in (one, other)), equal_nan=True)


def assert_asked(tables, exposed: dict[str, bool], found: str) -> None:
    """Which kinds of facts, exposures and documents the tables about layers, heads and edges have."""
    names = ("knowledge_lens", "evidence_flow", "evidence_heads", "evidence_ablation")
    for name in names:
        table = tables[name]
        assert set(table["facts"]) == set(exposed), name
        for facts, weighed in exposed.items():
            weights = set(table[table["facts"] == facts]["weight"])
            assert -1 in weights, (name, facts)
            assert weights - {-1} <= {1, 2}, (name, facts)
            assert bool(weights - {-1}) == weighed, (name, facts)
        assert {"gold", "none", "random", "conflict", found} == set(table["document"]), name
        withheld = table[table["facts"] == "withheld"]
        assert not set(withheld["document"]) & {"gold", "conflict"}, "they stand nowhere"
    flow = tables["evidence_flow"]
    assert set(flow[flow["document"].isin(["random", "conflict", found])]["method"]) == {"knock-out"}
    assert "tracing every mention" in set(flow["method"])
    ranking = tables["attention_ranking"]
    assert set(ranking["facts"]) == {"all", "trained", "changed", "held out"}
    assert ranking[ranking["facts"] == "all"]["metric"].tolist() == ["spearman", "hit"]
    known = tables["knowledge"]
    without = known[known["reading"] == "without-ffn"]
    assert set(without["document"]) == {"none", "gold"}
    assert set(without["facts"]) == set(exposed)
    entered = tables["knowledge_lens"]
    assert set(entered[entered["metric"] == "centre"]["document"]) == {"gold", "none", found}


def test_scores_of_what_is_found_and_made_of_it(read_run) -> None:
    scores = read_run.tables["retrieval_scores"]
    learned = scores[(scores["objective"] == "retrieve-learned") & (scores["variant"] == "")]
    systems = {"own", "own, first index", "own, edited index", "bm25", "frozen", "random", "oracle"}
    assert set(learned["system"]) == systems
    queries = {"facts", "held out", "changed and later", "dates", "language", "trained"}
    asked = read_world(plan_with().retrieval.world(), plan_with().retrieval.world_seed, 64).world
    exposed = asked.of_kind("trained", "changed")
    queries |= {f"{fact.kind} facts" for fact in exposed}
    assert set(learned["queries"]) == queries | {f"{fact.kind} facts, weight {fact.weight}" for fact in exposed}
    metrics = {"hit", "recall", "mrr", "collapse", "null_prior", "prior_entropy", "utility", "utility_marginal"}
    metrics |= {"log_likelihood", "p1", "posterior_entropy_1", "posterior_entropy_2", "loss", "learned", "training_p1"}
    metrics |= {"nothing_found"}
    assert set(learned["metric"]) == metrics
    closed = scores[scores["objective"] == "closed-book"]
    assert set(closed["metric"]) == {"loss", "learned", "training_p1"}
    untrained = learned[~learned["trained"] & (learned["metric"] == "hit") & (learned["k"] == 1)]
    own = untrained.set_index(["queries", "system"])["value"]
    assert own["facts", "own"] == own["facts", "frozen"] == own["facts", "own, first index"]


def test_what_is_found_is_told_by_exposure_too(tmp_path) -> None:
    """Beside a loop over the questions about each kind of facts."""
    arm = next(one for one in arm_models(StudyModels(plan_with(), RunFolder(tmp_path))) if one.arm == "retrieve-bm25")
    scores = ArmScores(arm.load(trained=False), arm.objective, arm.world, arm.world, None)
    table = scores.table()
    asked, facts = scores._masked(arm.world.world.of_kind("trained", "changed", "held out"))
    first = scores._reading.ranked(asked, scores._library)[:, 0]
    likely = scores._reading.marginal(scores._reading.read(asked))
    groups: dict[str, list[int]] = {}
    for row, fact in enumerate(facts):
        groups.setdefault("facts", []).append(row)
        if fact.kind != "held out":
            for name in (f"{fact.kind} facts", f"{fact.kind} facts, weight {fact.weight}"):
                groups.setdefault(name, []).append(row)
    assert {"trained facts, weight 1", "trained facts, weight 2", "changed facts"} <= set(groups)
    others = {"held out", "changed and later", "language", "dates"}
    assert set(table["queries"]) - others == set(groups)
    for name, rows in groups.items():
        own = table[(table["queries"] == name) & (table["system"] == "own")].set_index(["metric", "k"])
        assert own.loc[("hit", 1), "count"] == len(rows)
        right = [first[row] == arm.world.world.gold(facts[row]) for row in rows]
        assert own.loc[("hit", 1), "value"] == pytest.approx(np.mean(right))
        assert own.loc[("log_likelihood", 0), "value"] == pytest.approx(likely[rows].mean())


def test_readers_that_write_are_trained_scored_and_published(read_run, tmp_path, few_questions) -> None:
    """Variants alone: their plain arm is in the whole study."""
    variants = ["rag-sequence", "rag-token"]
    plan = plan_with(arms=["retrieve-learned"], variants=variants, measures=["scores", "knowledge", "heads"])
    stages = graph(plan, tmp_path)
    for stage in stages.of(WarmRetriever):
        stage.run()
    for variant, fast in zip(variants, ({"exact_match", "exact_match_fast"}, {"exact_match"}), strict=True):
        kinds = (TrainArm, SettleArm, MeasureArm)
        own = [stage for kind in kinds for stage in stages.of(kind) if stage.model.variant == variant]
        for stage in own:
            stage.run()
        measured, untrained = own[2:]
        assert [*measured.failures(), *untrained.failures()] == []
        tables = measured.tables()
        assert set(tables) == {"retrieval_scores", "knowledge"}  # of variants only what they find and know
        scores, asked = tables["retrieval_scores"], tables["knowledge"]
        assert {"hit", "p1", "loss", "posterior_entropy_2"} <= set(scores["metric"])
        assert {one for one in scores["metric"] if one.startswith("exact_match")} == fast
        assert set(asked["reading"]) == {"raw"}
        assert {"none", "gold", "own"} <= set(asked["document"])
        folder = RunFolder(tmp_path).models / f"retrieve-learned+{variant}" / "seed-0"
        assert AutoModelForSeq2SeqLM.from_pretrained(folder).config.is_encoder_decoder
        assert Retriever.from_pretrained(folder / "retriever")
    plain = read_run.tables["retrieval_scores"]
    assert not {one for one in plain["metric"] if one.startswith("exact_match")}


# -- scores against their definitions ----------------------------------------------------------------------------------


def test_the_accuracy_of_training_is_that_of_the_marginal(tmp_path) -> None:
    """Query by query and candidate by candidate, without padding."""
    stages = graph(plan_with(arms=["retrieve-learned"], variants=[], updates=60), tmp_path)
    for stage in [*stages.of(WarmRetriever), *stages.of(TrainArm)]:
        stage.run()
    arm = stages.of(TrainArm)[0].model
    model, data = arm.load(), arm.world.queries
    found = training_accuracy(model, arm.objective, data, 0.25)
    right = [_right(arm, model, example) for example in map(data.source.example, range(len(data.source.lengths)))]
    right = [one for one in right if one is not None]
    chosen = np.linspace(0, len(right) - 1, min(512, len(right))).astype(int)
    assert found.asked.sum() == len(chosen)
    assert found.value == pytest.approx(np.mean(np.array(right)[chosen]), abs=2e-3)


def test_without_queries_of_one_mask_all_words_of_an_answer_must_be_right(tmp_path) -> None:
    """In a world of dates alone, beside a loop over queries, passages and masks."""
    stages = graph(plan_with(arms=["read-gold"], variants=[], relations=2, updates=300), tmp_path)
    for stage in stages.of(TrainArm):
        stage.run()
    arm = stages.of(TrainArm)[0].model
    model, data = arm.load(), arm.world.queries
    found = training_accuracy(model, arm.objective, data, arm.matter.chance)
    examples = map(data.source.example, range(len(data.source.lengths)))
    right = [_all_right(arm, model, example) for example in examples if len(example.labels["spans"])]
    chosen = np.linspace(0, len(right) - 1, min(512, len(right))).astype(int)
    assert 0 < np.mean(right) < 1
    assert (found.asked.sum(), found.chance) == (len(chosen), 1 / 144)
    assert found.value == pytest.approx(np.mean(np.array(right)[chosen]), abs=2e-3)
    assert found.learned == (found.value > 1 / 144 + 0.05)


@torch.no_grad()
def _all_right(arm: ArmModel, model: RetrievalModel, example: Example) -> bool:
    """Whether every word of a date is the most probable one, the right passage and none weighed as the model does."""
    x = torch.tensor(example.text)
    (start, end), gold = example.labels["spans"][0], int(example.labels["gold"])
    answer, x[start:end] = x[start:end].clone(), arm.world.vocabulary.mask
    assert len(answer) == 2
    both = Candidates(np.array([[gold, NULL]]), np.ones((1, 2), bool), np.zeros((1, 2)))
    prior = model.logits(x[None], None, both).softmax(dim=1)[0]
    total = torch.zeros(2, len(arm.world.tokenizer))
    for weight, id in zip(prior, (gold, NULL), strict=True):
        body = torch.from_numpy(model.passage_library.body(id))
        segments = torch.tensor([0] * len(x) + [1] * (len(body) + 1))
        logits = model.reader(torch.cat([x, body, x[-1:]])[None], token_type_ids=segments[None]).logits[0]
        total += weight * logits[start:end].softmax(dim=-1)
    return bool((total.argmax(dim=-1) == answer).all())


@torch.no_grad()
def _right(arm: ArmModel, model: RetrievalModel, example: Example) -> bool | None:
    """Whether a query is answered rightly; None: it has not one mask."""
    spans = example.labels["spans"]
    if int(example.labels["gold"]) == NULL or len(spans) != 1 or spans[0, 1] - spans[0, 0] != 1:
        return None
    x = torch.tensor(example.text)
    place, answer = int(spans[0, 0]), int(x[spans[0, 0]])
    x[place] = arm.world.vocabulary.mask
    query = model.retriever.queries(x[None])[0]
    scores = {}
    for id in [*range(arm.world.world.num_passages()), NULL]:
        tokens, segments = (torch.from_numpy(part)[None] for part in model.passage_library.encoded(id))
        vector = model.retriever.passages(tokens, token_type_ids=segments)[0]
        scores[id] = float(query @ vector) / len(query) ** 0.5
    best = sorted((id for id in scores if id != NULL), key=lambda id: -scores[id])[:2]
    prior = torch.tensor([scores[id] for id in [*best, NULL]]).softmax(dim=0)
    total = 0
    for weight, id in zip(prior, [*best, NULL], strict=True):
        body = torch.from_numpy(model.passage_library.body(id))
        tokens = torch.cat([x, body, x[-1:]])
        segments = torch.tensor([0] * len(x) + [1] * (len(body) + 1))
        logits = model.reader(tokens[None], token_type_ids=segments[None]).logits[0, place]
        total = total + weight * logits.softmax(dim=0)
    return int(total.argmax()) == answer


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"arms": ["closed-book"], "variants": ["cold"]},
            r"retrieval.variants must modify one of retrieval.arms: cold",
        ),
        ({"relations": 5}, r"retrieval.relations must be even"),
        ({"exposures": [0, 1]}, r"retrieval.exposures must lie in 1..1,024"),
        ({"refresh_every": 0}, r"retrieval.refresh_every must be a whole number from 1, or −1 for never. Got 0"),
        ({"arms": ["read-gold", "read-gold"]}, r"retrieval.arms must be a list of different values"),
        ({"retriever_width": 7}, r"retrieval.retriever_width must be a multiple of model.heads.*7 and 2 heads. Try 6"),
        ({"learning_rate": 10, "measures": ["colour"]}, r"retrieval.measures"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message) -> None:
    with pytest.raises(UserError, match=message):
        plan_with(**changes)


def test_one_second_training_records_an_arm_and_keeps_its_checkpoints(tmp_path, monkeypatch) -> None:
    only = {**RECORDING, "checkpoints": 3, "arms": ["retrieve-bm25"]}
    without = graph(plan_with(**{**only, "checkpoints": 0, "allocation_tokens": 0}, variants=[]), tmp_path)
    run_all(without)
    stages = graph(plan_with(**only, variants=[]), tmp_path)
    (recorded,), (followed_after,) = stages.of(RecordArm), stages.of(FollowArm)
    assert followed_after.needs == (recorded.key,), "no other process may train the arm meanwhile"
    trainings, train_again = [], ArmModel.train_again

    def counted(arm, folder, *recorders) -> None:
        trainings.append(arm.name)
        train_again(arm, folder, *recorders)

    monkeypatch.setattr(ArmModel, "train_again", counted)
    for stage in (recorded, followed_after):
        assert not stage.is_done()
        stage.run()
        assert stage.is_done()
    assert trainings == ["retrieve-bm25/seed-0"]


@pytest.mark.parametrize("positions", [15, 20, 64])
def test_every_query_of_a_world_fits_its_reader(positions):
    """With a [SEP] behind; those of facts are never cut, and where all fit nothing is."""
    own = read_world(FactConfig(entities=24), 0, positions)
    whole = fact_query_rows(own.world, own.world.tokenizer(512), own.passage_library()).lengths
    np.testing.assert_array_equal(own.query_rows.lengths, np.minimum(whole, positions - 1))
    facts = [label is not None for label in fact_corpus(own.world).column("label")]
    assert max(whole[np.array(facts)]) == 14


def test_a_reader_that_no_question_fits_is_refused():
    with pytest.raises(UserError, match=r"model\.positions must be at least 15 .* Got 14"):
        StudyPlan.from_json({**tiny_readers.PLAN, "model": {**tiny_readers.PLAN["model"], "positions": 14}})
