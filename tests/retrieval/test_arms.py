"""The arms: what they share, what they read, and that gradients are those of the marginal written out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from retrieval.tiny_arms import (
    ARMS,
    marginal_by_hand,
    tiny_arm,
    tiny_config,
    tiny_data,
    tiny_library,
    tiny_rows,
    tiny_world,
)
from transformers import AutoModelForMaskedLM

from infoflow.foundation import UserError, stream
from infoflow.objectives import UNSUPERVISED, Example, Noise, make_objective
from infoflow.retrieval import NULL, Library, Passages
from infoflow.subjects.retrieval.objectives import retrieval_model
from infoflow.subjects.retrieval.training import IndexRefresh
from infoflow.training import evaluate, train

ROWS = np.arange(0, 60, 4)
MASK = tiny_world()[2].mask


def batch_of(objective, rows=ROWS):
    return tiny_data().batch(objective, rows, ("test",), 0)


def arm(name, dtype=torch.float64, **options):
    objective, model = tiny_arm(name, **options)
    return objective, model.to(dtype).eval()


def filled_in(reader, tokens, segments, answer):
    """log p of each word behind a mask, all of them hidden."""
    logits = reader(input_ids=tokens[None], token_type_ids=segments[None]).logits[0].log_softmax(dim=-1)
    places = (tokens == MASK).nonzero()[:, 0]
    return torch.stack([logits[place, word] for place, word in zip(places, answer, strict=True)])


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize("level", ["sequence", "token"])
def test_loss_and_every_gradient_are_those_of_the_definition(name, level):
    options = {"retriever_options": {"shared": False}} if name == "retrieve-learned" else {}
    objective, model = arm(name, level=level, null_share=0.3, **options)
    if model.passage_library is None:
        model.passage_library = tiny_library()
    batch = batch_of(objective, ROWS[:5])
    assert batch["null_only"].any()
    term = objective.loss(model, batch, batch.noise)[objective.name]
    gradients = torch.autograd.grad(term.total, parameters := trained(model), allow_unused=True)
    wanted = marginal_by_hand(objective, model, batch, filled_in)
    torch.testing.assert_close(term.total, wanted, rtol=1e-6, atol=1e-6)
    others = torch.autograd.grad(wanted, parameters, allow_unused=True)
    for found, other in zip(gradients, others, strict=True):
        assert (found is None) == (other is None)
        if found is not None:
            torch.testing.assert_close(found, other, rtol=1e-4, atol=1e-6)
    if name == "retrieve-learned":
        loss = objective.loss(model, batch, batch.noise)[name].total
        towers = [model.retriever.queries.norm.weight, model.retriever.passages.norm.weight]
        assert all(float(one.abs().sum()) > 0 for one in torch.autograd.grad(loss, towers))


@pytest.mark.parametrize("name", ["retrieve-frozen", "retrieve-learned"])
def test_half_precision_finds_the_same_passages(name):
    objective, model = arm(name, torch.float32)
    batch = batch_of(objective)
    asked = (batch.input_ids, batch.attention_mask, 2, batch["gold"].numpy(), batch["draw"].numpy())
    asked = (*asked, [[]] * len(batch), np.zeros(len(batch), dtype=bool))
    whole = model.choose(*asked)
    vectors, model.passage_library.dense = model.passage_library.dense.vectors, None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model.choose(*asked)
        assert torch.equal(model.passage_library.dense.vectors, vectors)
        assert torch.isfinite(objective.loss(model, batch, batch.noise)[name].total)
    assert (half.ids == whole.ids).all()
    assert (half.scores == whole.scores).all()


def trained(model):
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


@pytest.mark.parametrize("name", ARMS)
@torch.no_grad()
def test_padding_and_the_size_of_batches_change_no_loss(name):
    objective, model = arm(name)
    together = objective.loss(model, batch := batch_of(objective), batch.noise)[name]
    alone = [objective.loss(model, one, one.noise)[name] for one in (batch_of(objective, ROWS[[n]]) for n in range(15))]
    torch.testing.assert_close(together.total, sum(one.total for one in alone), rtol=1e-6, atol=1e-6)
    assert together.count == sum(one.count for one in alone) == objective.counts(batch)[name]


def test_all_arms_ask_the_same_and_start_from_the_same_reader():
    batches, readers = [], []
    for name in ARMS:
        objective, model = tiny_arm(name)
        batches.append(batch_of(objective))
        readers.append(objective.exported(model).state_dict())
    for batch in batches[1:]:
        assert all(torch.equal(batch[field], batches[0][field]) for field in batches[0].tensors)
    for reader in readers[1:]:
        assert all(torch.equal(reader[key], value) for key, value in readers[0].items())


def test_the_object_is_masked_and_nothing_else():
    world, tokenizer, vocabulary = tiny_world()
    batch = batch_of(make_objective("read-gold"), np.arange(40))
    for row in range(40):
        masked = batch.labels[row] != UNSUPERVISED
        assert (batch.input_ids[row][masked] == vocabulary.mask).all()
        gold = int(batch["gold"][row])
        if gold != NULL:
            facts = [world.facts[number] for number in world.passages()[gold]["facts"]]
            assert tokenizer.decode(batch.labels[row][masked]) in [world.answer(fact) for fact in facts]
        else:  # a sentence of the language
            assert masked.sum() == 1


@pytest.mark.parametrize("masking", ["random-token", "random-span"])
def test_controls_mask_as_many_tokens(masking):
    salient, control = (batch_of(make_objective("closed-book", masking=one)) for one in ("salient", masking))
    counts = [(batch.labels != UNSUPERVISED).sum(dim=1) for batch in (salient, control)]
    assert torch.equal(*counts)
    assert not torch.equal(salient.labels, control.labels)


def test_the_control_of_null_readings_trains_on_the_same_queries_as_the_other_arms_read_without():
    other, control = make_objective("read-gold"), make_objective("closed-book", null_share_only=True)
    rows = np.arange(200)
    batch, kept = batch_of(other, rows), batch_of(control, rows)
    asked = (kept.labels != UNSUPERVISED).any(dim=1)
    assert torch.equal(asked, batch["null_only"])
    assert 0.02 < asked.float().mean() < 0.25
    _, model = tiny_arm("closed-book")
    assert control.loss(model, kept, kept.noise)["closed-book"].count == control.counts(kept)["closed-book"]
    nothing = batch_of(control, rows[~asked.numpy()][:3])
    term = control.loss(model, nothing, nothing.noise)["closed-book"]
    assert term.count == 0
    assert term.total.item() == 0
    term.total.backward()


def chosen(name, gold, draws, exclude):
    _, model = tiny_arm(name)
    _, tokenizer, _ = tiny_world()
    num = len(gold)
    ids = torch.tensor([[tokenizer.cls_token_id, tokenizer.sep_token_id]] * num)
    arrays = np.array(gold), np.array(draws)
    return model.choose(ids, None, 1, *arrays, exclude, np.zeros(num, dtype=bool))


def test_a_random_passage_is_drawn_among_those_that_are_not_excluded():
    num = len(tiny_library())
    draws = list(range(3 * num))
    for gold, out in ((2, [0, 5, num - 1]), (-1, [1, 2]), (4, [4]), (3, [])):
        choice = chosen("read-random", [gold] * len(draws), draws, [out] * len(draws))
        allowed = [id for id in range(num) if id not in {gold, *out}]
        assert choice.ids[:, 0].tolist() == [allowed[draw % len(allowed)] for draw in draws]
    for gold, out in ((-1, list(range(num))), (0, list(range(1, num)))):
        assert chosen("read-random", [gold], [7], [out]).there.tolist() == [[False, True]]


def test_an_excluded_right_passage_is_not_read():
    choice = chosen("read-gold", [2, 2, -1], [0, 0, 0], [[2, 3], [3], [3]])
    assert choice.ids.tolist() == [[-1, -1], [2, -1], [-1, -1]]
    assert choice.there.tolist() == [[False, True], [True, True], [False, True]]


def test_an_excluded_passage_is_never_read():
    objective, model = tiny_arm("retrieve-bm25")
    batch = batch_of(objective)
    arguments = (batch.input_ids, batch.attention_mask, 2, batch["gold"].numpy(), batch["draw"].numpy())
    nothing = np.zeros(len(batch), dtype=bool)
    free = model.choose(*arguments, [[]] * len(batch), nothing)
    first = [[int(id)] for id in free.ids[:, 0]]
    without = model.choose(*arguments, first, nothing)
    assert not (without.ids[:, :-1] == free.ids[:, :1])[free.ids[:, 0] != NULL].any()


def test_fewer_passages_than_asked_for_are_masked():
    objective, model = arm("retrieve-learned", k=1000)
    batch = batch_of(objective, ROWS[:3])
    with pytest.warns(UserWarning, match="requests 1000 passages"):
        term = objective.loss(model, batch, batch.noise)["retrieve-learned"]
    assert torch.isfinite(term.total)
    term.total.backward()
    assert all(torch.isfinite(one.grad).all() for one in trained(model) if one.grad is not None)


def test_special_tokens_in_a_passage_are_ordinary_text():
    _, tokenizer, vocabulary = tiny_world()
    library = Library(Passages.from_rows(["the [MASK] is [SEP] known [PAD]"]), tokenizer)
    special = set(vocabulary.special) - {tokenizer.unk_token_id}
    assert not special & set(library.body(0).tolist())
    assert library.num_specials == 3


def test_a_long_passage_is_cut_to_what_the_reader_holds():
    objective, model = arm("read-gold")
    _, tokenizer, _ = tiny_world()
    model.passage_library = Library(Passages.from_rows(["the of is " * 100] * len(tiny_library())), tokenizer)
    batch = batch_of(objective)
    assert torch.isfinite(objective.loss(model, batch, batch.noise)["read-gold"].total)
    assert len(model.passage_library.encoded(0)[0]) == 128


# -- training ----------------------------------------------------------------------------------------------------------


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize(("name", "options"), [("retrieve-learned", {"refresh_every": 3, "lag": 1}), ("read-gold", {})])
def test_an_interrupted_run_ends_with_the_same_weights(name, options, tmp_path):
    options = {**options, "freeze_retriever": 0.25} if options else {}
    objective, whole = tiny_arm(name, **options)
    hook = IndexRefresh(whole)
    train(objective, tiny_config(), tiny_data(), whole, tmp_path / "whole", hooks=[hook])

    class Stop(Exception):
        pass

    class StopAt(IndexRefresh):
        def on_step_begin(self, step):
            if step.update == 6:
                raise Stop
            super().on_step_begin(step)

    _, model = tiny_arm(name, **options)
    with pytest.raises(Stop):
        train(objective, tiny_config(), tiny_data(), model, tmp_path / "cut", hooks=[StopAt(model)])
    _, model = tiny_arm(name, **options)
    resumed = IndexRefresh(model)
    train(objective, tiny_config(), tiny_data(), model, tmp_path / "cut", hooks=[resumed])
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in whole.state_dict().items())
    assert resumed.table.equals(hook.table)


def test_the_index_is_refreshed_on_time_from_the_weights_of_before(tmp_path):
    options = {"refresh_every": 4, "lag": 2, "freeze_retriever": 0.0}
    objective, model = tiny_arm("retrieve-learned", **options)
    seen = {}

    class Watch(IndexRefresh):
        def on_step_begin(self, step):
            seen[step.update, "before"] = weights(step.module.retriever)
            super().on_step_begin(step)
            seen[step.update, "vectors"] = step.module.passage_library.dense.vectors.clone()

    hook = Watch(model)
    train(objective, tiny_config(updates=9, micro_tokens=1000), tiny_data(), model, tmp_path / "run", hooks=[hook])
    assert hook.table["age"].tolist() == [0, 1, 2, 3, 2, 3, 4, 5, 2]
    assert hook.table["overlap"].notna().tolist() == [False] * 4 + [True, False, False, False, True]
    model.retriever.load_state_dict(seen[3, "before"])
    torch.testing.assert_close(seen[5, "vectors"], model.passage_library.embed(model.retriever.passages).vectors)
    assert torch.equal(seen[5, "vectors"], seen[8, "vectors"])
    assert not torch.equal(seen[4, "vectors"], seen[5, "vectors"])


def test_the_retriever_stays_while_it_is_frozen(tmp_path):
    objective, model = tiny_arm("retrieve-learned", freeze_retriever=1.0)
    before = weights(model.retriever)
    train(
        objective,
        tiny_config(updates=3, micro_tokens=1000),
        tiny_data(),
        model,
        tmp_path / "a",
        hooks=[IndexRefresh(model)],
    )
    assert all(torch.equal(value, before[key]) for key, value in weights(model.retriever).items())
    objective, model = tiny_arm("retrieve-learned", freeze_retriever=0.0)
    train(
        objective,
        tiny_config(updates=3, micro_tokens=1000),
        tiny_data(),
        model,
        tmp_path / "b",
        hooks=[IndexRefresh(model)],
    )
    assert not all(torch.equal(value, before[key]) for key, value in weights(model.retriever).items())


def test_the_recorded_terms_make_up_the_loss():
    objective, model = arm("retrieve-bm25", null_share=0.0)
    model.record = []
    rows = [row for row in range(60) if tiny_rows().example(row).labels["gold"] != NULL]
    batch = batch_of(objective, np.array(rows[:10]))
    loss = objective.loss(model, batch, batch.noise)["retrieve-bm25"].total.item()
    (record,) = model.record
    assert record["queries"] == 10
    assert record["reader term"] - record["retriever term"] == pytest.approx(-loss, rel=1e-6)


def test_the_reader_is_saved_as_a_plain_masked_lm(tmp_path):
    objective, model = tiny_arm("retrieve-learned")
    result = train(objective, tiny_config(updates=2), tiny_data(), model, tmp_path / "run", hooks=[IndexRefresh(model)])
    loaded = AutoModelForMaskedLM.from_pretrained(result.model)
    assert all(torch.equal(value, model.reader.state_dict()[key]) for key, value in loaded.state_dict().items())


def test_reading_the_right_passage_is_learned(tmp_path):
    """A few hundred updates teach the tiny reader which objects a relation has; the loss falls far below chance."""
    objective, model = tiny_arm("read-gold")
    before = evaluate(objective, model, tiny_data()).loss
    train(
        objective, tiny_config(updates=40, batch_sentences=24, micro_tokens=4000), tiny_data(), model, tmp_path / "run"
    )
    assert evaluate(objective, model, tiny_data()).loss < before - 2


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_told():
    objective, model = tiny_arm("read-gold")
    batch = batch_of(objective)
    with pytest.raises(UserError, match="label_smoothing"):
        objective.loss(model, batch, Noise(), label_smoothing=0.1)
    with pytest.raises(UserError, match="RetrievalModel"):
        objective.loss(model.reader, batch, Noise())
    with pytest.raises(UserError, match="library"):
        retrieval_model(objective, model.reader)
    with pytest.raises(UserError, match="retriever"):
        retrieval_model(make_objective("retrieve-learned"), model.reader, tiny_library())

    with pytest.raises(UserError, match="plain sentence"):
        objective.corrupt(Example(texts=(np.array([2, 7, 3]),)), stream("x"), tiny_world()[2])


@pytest.mark.parametrize("name", ARMS)
def test_a_vocabulary_without_a_mask_is_refused_under_the_arms_own_name(name):
    maskless = replace(tiny_world()[2], mask=None)
    with pytest.raises(UserError, match=f"^{name} needs a mask token"):
        make_objective(name).corrupt(tiny_rows().example(0), stream("x"), maskless)
