"""Examples of what is found and what layers say, against one forward pass for each question and passage."""

import numpy as np
import pandas as pd
import pytest
import torch
from retrieval.tiny_arms import ARMS, tiny_arm, tiny_world

from infoflow.evidence import RETRIEVAL_EXAMPLES, retrieval_examples
from infoflow.foundation import UserError


@pytest.fixture(scope="module", params=ARMS)
def arm(request):
    return tiny_arm(request.param)[1].eval()


def examples(arm, **options) -> pd.DataFrame:
    world, tokenizer, _ = tiny_world()
    return pd.DataFrame(retrieval_examples(arm, world, tokenizer, **options))


def asked(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [rows for _, rows in frame.groupby("question", sort=False)]


@torch.no_grad()
def by_hand(arm, row: dict) -> tuple[list[dict[str, float]], float]:
    """What each state says of every object, and log p(answer): one row, the tokens spelt out here."""
    world, tokenizer, _ = tiny_world()
    number = tokenizer.get_vocab()
    question = [number[word] for word in row["question"].split()]
    passage = [number[word] for word in row["passage"].split()]
    start, end, mask = number["[CLS]"], number["[SEP]"], number["[MASK]"]
    ids = [start, *question, end, *passage, end]
    segments = [0] * (len(question) + 2) + [1] * (len(passage) + 1)
    found = arm.reader(
        input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments]), output_hidden_states=True
    )
    places = [place for place, token in enumerate(ids) if token == mask]
    fact = next(
        one for one in world.facts
        if any(each.masked() == row["question"] for each in world.questions([one]))
    )  # fmt: skip
    choices = [world.words.object_words(fact.relation, n) for n in range(world.config.choices(fact.relation))]
    states = []
    for state in found.hidden_states:
        logs = arm.reader.cls(state)[0].log_softmax(dim=-1)
        sums = torch.tensor(
            [sum(float(logs[at, number[word]]) for at, word in zip(places, words, strict=True)) for words in choices]
        )
        shares = sums.softmax(dim=0).tolist()
        states.append({" ".join(words): share for words, share in zip(choices, shares, strict=True)})
    logs = found.logits[0].log_softmax(dim=-1)
    return states, sum(float(logs[at, number[word]]) for at, word in zip(places, row["answer"].split(), strict=True))


def test_states_say_what_one_forward_pass_says(arm):
    frame = examples(arm, facts=2, k=2, best=2)
    for rows in asked(frame):
        likely, prior, posterior = [], [], []
        for _, own in rows.groupby("rank"):
            states, log = by_hand(arm, own.iloc[0].to_dict())
            likely.append(log)
            prior.append(own["prior"].iloc[0])
            posterior.append(own["posterior"].iloc[0])
            assert set(own["layer"]) == set(range(len(states)))
            for layer, said in own.groupby("layer"):
                best = sorted(states[layer].values(), reverse=True)[:2]
                assert said.sort_values("place")["probability"].to_numpy() == pytest.approx(best, abs=1e-5)
                for one in said.to_dict("records"):
                    assert states[layer][one["object"]] == pytest.approx(one["probability"], abs=1e-5)
        joint = np.array(prior) * np.exp(likely)
        assert sum(prior) == pytest.approx(1)
        assert posterior == pytest.approx(joint / joint.sum(), abs=1e-5)
        assert prior == sorted(prior, reverse=True)


def test_the_empty_passage_is_one_of_them(arm):
    for rows in asked(examples(arm, facts=1)):
        empty = rows[rows["passage"] == ""]
        assert empty["rank"].nunique() == 1
        assert not empty["gold"].any()
        assert rows["rank"].nunique() == {"none": 1, "gold": 2, "random": 2}.get(arm.source, 4)


def test_the_right_passage_is_named():
    frame = examples(tiny_arm("read-gold")[1].eval(), facts=2)
    assert set(frame.loc[frame["passage"] != "", "gold"]) == {True}
    for row in frame[frame["gold"]].to_dict("records"):
        assert all(word in row["passage"] for word in row["answer"].split())
    random = examples(tiny_arm("read-random")[1].eval(), facts=2)
    assert not random["gold"].any()


def test_it_is_the_schemas_and_the_same_for_all_arms():
    frames = [examples(tiny_arm(name)[1].eval(), facts=2) for name in ("closed-book", "retrieve-bm25")]
    assert list(frames[0].columns) == RETRIEVAL_EXAMPLES.column_names
    assert list(frames[0]["question"].unique()) == list(frames[1]["question"].unique())
    assert set(frames[0]["facts"]) == {"trained", "changed", "held out"}
    assert len(examples(tiny_arm("closed-book")[1].eval(), facts=2, seed=1)) == len(frames[0])


def test_an_edited_index_has_other_answers():
    model = tiny_arm("read-gold")[1].eval()
    old, new = (examples(model, kinds=("changed",), facts=2, edited=edited) for edited in (False, True))
    assert list(old["question"].unique()) == list(new["question"].unique())
    assert (old["answer"].to_numpy() != new["answer"].to_numpy()).all()
    for row in new[new["gold"]].to_dict("records"):
        assert all(word in row["passage"] for word in row["answer"].split())


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"facts": 0}, "facts must be at least 1. Got 0"), ({"best": 0}, "best must be"), ({"k": 0}, "k must be"),
     ({"kinds": ()}, "There must be facts to ask about")],
)  # fmt: skip
def test_what_cannot_be_asked_is_refused(options, reason):
    with pytest.raises(UserError, match=reason):
        examples(tiny_arm("closed-book")[1].eval(), **options)
