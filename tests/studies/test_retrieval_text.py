"""Readers of real text: what a study of them measures, beside an explicit loop; what does not go together."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from support.undrawn import undrawn

from infoflow.foundation import UserError
from infoflow.models import exact_match, token_f1
from infoflow.results import RETRIEVAL_SCORES, RunFolder
from infoflow.retrieval import NULL, answer_scores, question_blocks, retrieval_scores
from infoflow.studies import Run, StudyModels, StudyPlan, study
from infoflow.subjects.retrieval.settings import RetrievalPlan
from infoflow.subjects.retrieval.stages._arm_measures import ArmInside
from infoflow.subjects.retrieval.stages._question_reading import QuestionReading, TextScores
from infoflow.subjects.retrieval.stages._reading_matter import ReadText
from infoflow.subjects.retrieval.stages._retrieval_arms import arm_models

GIVEN = ["ada", "ben", "eva", "ida", "max", "tom", "ute", "zoe"]
TOWNS, JOBS = ["oslo", "rome", "bonn", "kyiv"], ["baker", "nurse", "night guard"]
ARMS = ["closed-book", "read-gold", "retrieve-bm25", "retrieve-learned"]


def write_questions(path, names, start):
    rows = []
    for place, name in enumerate(names):
        town, job = TOWNS[(place + start) % 4], JOBS[(place + start) % 3]
        text = f"{name} lives in {town} and works as a {job} ."
        rows.append({"text": text, "question": f"where does {name} live ?", "answers": [town, f"in {town}"]})
        rows.append({"text": text, "question": f"what does {name} work as ?", "answers": [job]})
    path.write_text("\n".join(map(json.dumps, rows)))


@pytest.fixture(scope="module")
def plan(tmp_path_factory) -> StudyPlan:
    folder = tmp_path_factory.mktemp("questions")
    names = [f"{one} {two}" for one in GIVEN for two in ("lund", "roth", "vogt")]
    write_questions(folder / "train.jsonl", names[:18], 0)
    write_questions(folder / "test.jsonl", names[18:], 1)
    leaked = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()[:2]]
    leaked = [{**one, "question": one["question"].upper().replace(" ?", "?")} for one in leaked]
    with (folder / "test.jsonl").open("a") as file:
        file.writelines(f"\n{json.dumps(one)}" for one in leaked)
    return StudyPlan.from_json(
        {
            "objectives": ["masked-lm"],
            "corpus": {"name": "grammar:300", "vocabulary": 150, "test": 0.3, "validation": 0.1},
            "model": {"width": 16, "layers": 2, "heads": 2, "feedforward": 32, "dropout": 0.0, "positions": 48},
            "training": {"updates": 2, "batch_tokens": 256, "device": "cpu"},
            "analysis": {"tables": ["task_scores"], "untrained": False},
            "alignment": {"on": False},
            "retrieval": {
                "on": True,
                "corpus": str(folder / "train.jsonl"),
                "test": str(folder / "test.jsonl"),
                "arms": ARMS,
                "variants": [],
                "updates": 40,
                "queries": 12,
                "warm_updates": 4,
                "save_every": 20,
                "refresh_every": 10,
                "vector_width": 8,
                "learning_rate": 1e-2,
                "repeat": False,
            },
        }
    )


@pytest.fixture(scope="module")
def run(plan, tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("text") / "run"
    with undrawn():
        study(plan, folder, num_processes=1)
    return Run.open(folder)


@pytest.mark.slow
def test_every_arm_tells_what_it_answers_and_finds(run, plan):
    scores = run.tables["retrieval_scores"]
    answers = scores[scores["metric"].isin(["em", "f1"]) & scores["trained"]]
    documents = {name: set(rows["system"]) for name, rows in answers.groupby("objective")}
    assert documents.pop("closed-book") == {"none", "gold", "random"}
    assert all(found == {"none", "gold", "random", "own"} for found in documents.values())
    assert set(answers["queries"]) == {"trained", "held out", "not leaked"}
    hits = scores[(scores["metric"] == "hit") & (scores["k"] == 1) & scores["trained"]]
    assert set(hits["system"]) == {"own", "bm25", "frozen", "oracle", "random"}
    words = hits[(hits["system"] == "bm25") & (hits["queries"] == "held out")]
    assert (words["value"] > 0.5).all()  # names decide
    matter = arm_models(StudyModels(plan, RunFolder(run.path)))[0].matter
    said = [one.answers[0] for one in matter.parts["train"]]
    assert set(run.tables["retrieval_runs"]["chance"]) == {max(map(said.count, said)) / len(said)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["retrieve-bm25", "retrieve-learned"])
def test_answers_are_those_of_an_explicit_loop(run, plan, name):
    """Passages one at a time, the query and the passage put together by hand, in float64."""
    models = StudyModels(plan, RunFolder(run.path))
    arm = next(one for one in arm_models(models) if one.arm == name)
    inside = ArmInside(arm, True)
    scores = TextScores(inside.model, arm.objective, arm.matter, None)
    _, (given, _) = scores._parts()
    asked = given.masked
    library, tokenizer = inside.model.passage_library, arm.matter.tokenizer
    none = np.zeros(len(given.texts), dtype=bool)
    choice = inside.model.choose(
        asked.ids, asked.mask, arm.objective.k, asked.gold, np.zeros(len(none), dtype=np.int64), [()] * len(none), none
    )
    with torch.no_grad():
        logits = inside.model.logits(asked.ids, asked.mask, choice).double()
    reader = inside.model.reader.double()
    em, f1, gains = [], [], []
    for row, answers in enumerate(given.answers):
        query = asked.ids[row][asked.mask[row].bool()].tolist()
        there = choice.there[row]
        prior = logits[row][torch.from_numpy(there)].softmax(dim=0)
        mixed, without, joint = 0.0, None, []
        places = [place for place, token in enumerate(query) if token == tokenizer.mask_token_id]
        for weight, id in zip(prior, choice.ids[row][there], strict=True):
            body = [] if id == NULL else library.body(int(id)).tolist()
            ids = torch.tensor([[*query, *body, tokenizer.sep_token_id]])
            segments = torch.tensor([[0] * len(query) + [1] * (len(body) + 1)])
            with torch.no_grad():
                words = reader(input_ids=ids, token_type_ids=segments).logits[0, places].softmax(dim=-1)
            mixed = mixed + weight * words
            targets = asked.labels[row][asked.labels[row] != -100]
            own = words[range(len(places)), targets].log().sum()
            without = own if id == NULL else without
            joint.append(weight.log() + own)
        said = tokenizer.decode(mixed.argmax(dim=-1)).strip()
        em.append(exact_match(said, answers))
        f1.append(token_f1(said, answers))
        gains.append(float(torch.logsumexp(torch.stack(joint), dim=0) - without))
    inside.model.reader.float()
    table = run.tables["retrieval_scores"]
    table = table[(table["objective"] == name) & table["trained"] & (table["system"] == "own")]
    unread = [text == text.lower() for text in given.texts]  # those that training asks are in capitals
    assert unread.count(False) == 2
    for queries, kept in (("held out", [True] * len(em)), ("not leaked", unread)):
        own = table[table["queries"] == queries].set_index("metric")
        assert set(own["count"].drop("collapse")) == {sum(kept)}
        assert own.loc["em", "value"] == pytest.approx(np.mean(np.array(em)[kept]))
        assert own.loc["f1", "value"] == pytest.approx(np.mean(np.array(f1)[kept]))
        assert own.loc["utility_marginal", "value"] == pytest.approx(np.mean(np.array(gains)[kept]), abs=1e-4)


@pytest.mark.slow
def test_questions_that_training_asks_are_counted_and_shown(run, plan):
    told = run.tables["query_leakage"]
    assert told[["questions", "leaked"]].drop_duplicates().to_numpy().tolist() == [[14, 2]]
    assert told["question"].tolist() == ["WHERE DOES ADA LUND LIVE?", "WHAT DOES ADA LUND WORK AS?"]
    assert told["query"].tolist() == ["where does ada lund live ?", "what does ada lund work as ?"]
    arm = arm_models(StudyModels(plan, RunFolder(run.path)))[0]
    matter = ReadText({**arm.matter.parts, "test": arm.matter.parts["test"].select(range(12))}, 150, 48, 3)
    assert matter.leakage.leaked == ()
    assert matter.leakage.table().to_dict("records") == [{"questions": 12, "leaked": 0, "question": "", "query": ""}]
    scores = TextScores(ArmInside(arm, True).model, arm.objective, matter, None)
    assert [list(groups) for _, groups in scores._parts()] == [["trained"], ["held out"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["closed-book", "retrieve-learned"])
def test_questions_are_read_once_for_all_groups_that_they_are_in(run, plan, name, monkeypatch):
    """Beside reading those that are not leaked by themselves."""
    models = StudyModels(plan, RunFolder(run.path))
    arm = next(one for one in arm_models(models) if one.arm == name)
    model, first = (arm.load(trained) for trained in (True, False))
    scores = TextScores(model, arm.objective, arm.matter, first if name == "retrieve-learned" else None)
    read, told = [], QuestionReading.read

    def counted(reading, asked):
        read.append(len(asked.ids))
        return told(reading, asked)

    monkeypatch.setattr(QuestionReading, "read", counted)
    table = scores.table()
    assert read == [len(arm.matter.questions[part].texts) for part in ("trained", "held out")]
    assert arm.matter.leakage.leaked == (12, 13)
    given = scores._questions(arm.matter.questions["held out"], np.arange(12))
    model.passage_library = library = scores._library
    reading = QuestionReading(model, arm.objective)
    documents = [one for one in ("none", "gold", "random", "own") if (name, one) != ("closed-book", "own")]
    parts = [
        answer_scores(scores._said(given.masked, one), given.answers, given.texts, one, "not leaked")
        for one in documents
    ]
    made = reading.made(
        "not leaked", reading.read(given.masked), question_blocks(given.texts), arm.matter.vocabulary.size
    )
    parts.append(RETRIEVAL_SCORES.conform(pd.DataFrame(list(made))))
    if name == "retrieve-learned":
        ranked = reading.systems(given.masked, library, first)
        assert list(ranked) == ["own", "bm25", "frozen"]
        relevant = [[gold] for gold in given.masked.gold.tolist()]
        parts.append(retrieval_scores(ranked, relevant, given.texts, len(library), (1, 2, 5, 20), "not leaked"))
    alone = pd.concat(parts, ignore_index=True)
    own = table[table["queries"] == "not leaked"].reset_index(drop=True)
    keys = ["system", "metric", "k", "count"]
    assert own[keys].equals(alone[keys])
    counted_ones = own["metric"].isin(["em", "f1", "hit", "recall", "mrr", "collapse", "nothing_found"])
    for rows, limit in ((counted_ones, 0), (~counted_ones, 1e-6)):  # of log-likelihoods a batch may round otherwise
        for column in ("value", "low", "high", "baseline"):
            np.testing.assert_allclose(own.loc[rows, column], alone.loc[rows, column], rtol=limit)
        ours, theirs = (np.stack([*frame.loc[rows, "replicates"]]) for frame in (own, alone))
        np.testing.assert_allclose(ours, theirs, rtol=limit)


@pytest.mark.slow
def test_what_is_told_of_a_reader_does_not_depend_on_the_size_of_batches(run, plan, monkeypatch):
    models = StudyModels(plan, RunFolder(run.path))
    arm = next(one for one in arm_models(models) if one.arm == "read-gold")
    scores = TextScores(ArmInside(arm, True).model, arm.objective, arm.matter, None)
    whole = scores.table()
    monkeypatch.setattr("infoflow.subjects.retrieval.stages._question_reading._BATCH", 5)
    np.testing.assert_allclose(scores.table()["value"], whole["value"], atol=1e-5)


def test_the_tokenizer_has_not_seen_the_test_questions(plan, tmp_path):
    """A word of questions alone is a token of its own where training asks them, and pieces where the test does."""
    parts = arm_models(StudyModels(plan, RunFolder(tmp_path)))[0].matter.parts

    def with_word(*named):
        asked = {name: [f"whereabouts {one}" for one in parts[name].column("question")] for name in named}
        return ReadText(
            {**parts, **{name: parts[name].with_column("question", asked[name]) for name in named}}, 400, 48, 3
        )

    plain = with_word()
    assert {one.text for one in parts["test"]} <= set(plain._texts)  # the index has their passages
    tested = with_word("test")
    assert tested.parts["test"][0].question.startswith("whereabouts")
    assert tested.tokenizer.get_vocab() == plain.tokenizer.get_vocab()
    assert len(tested.tokenizer.tokenize("whereabouts")) > 1
    assert with_word("train").tokenizer.tokenize("whereabouts") == ["▁whereabouts"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"corpus": "a.json", "variants": ("pairs",)}, "must not contain pairs with retrieval.corpus"),
        ({"corpus": "a.json", "measures": ("lens",)}, "must contain scores with retrieval.corpus"),
        ({"corpus": "a.json", "checkpoints": 3}, "must be 0 with retrieval.corpus"),
        ({"test": "a.json"}, "must go with retrieval.corpus"),
    ],
)
def test_what_only_a_generated_world_has_is_refused(settings, message):
    with pytest.raises(UserError, match=message):
        RetrievalPlan(**settings)
