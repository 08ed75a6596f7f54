"""What the explorer answers is what the library's own functions give."""

import numpy as np
import pytest
import torch
from asking import KINDS, SENTENCE, TRANSLATION, Asker, RefusedQuestion, heard, opened, question, responses, weights


def translation_of(kind):
    return TRANSLATION if kind == "translation" else None


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def model(models, kind):
    return models[kind]


def inputs_of(model, kind):
    from infoflow.heads import read_tokens, sentence_inputs

    return sentence_inputs(model, read_tokens(model, SENTENCE, translation_of(kind)))


def test_all_heads_are_sentence_attention_s(answers, model, kind):
    from infoflow.heads import sentence_attention

    head, arrays = opened(answers(kind).read(question(kind, want=["attention"])))
    expected = sentence_attention(model, SENTENCE, translation_of(kind))
    found = weights(head, arrays)
    for one in expected.kinds:
        for layer in one.layers:
            home = f"{one.stack}/{one.kind}/{layer.layer}"
            np.testing.assert_array_equal(found[one.stack, one.kind, layer.layer], layer.weights)
            np.testing.assert_array_equal(np.frombuffer(arrays[f"{home}/norms"], "<f4"), layer.value_norms.ravel())


def test_the_lens_is_logit_lens_at_every_position(answers, model, kind):
    from infoflow.representations import logit_lens

    lens = opened(answers(kind).read(question(kind, want=["lens"])))[0]["lens"]
    inputs = inputs_of(model, kind)
    readings = list(logit_lens(model, inputs["input_ids"], None, inputs.get("decoder_input_ids")))
    assert len(lens["layers"]) == len(readings[0].logits)
    for reading in readings:
        shares, ids = reading.logits.softmax(-1).topk(10)
        for position, row in enumerate(lens["layers"]):
            told = row[reading.layer]
            np.testing.assert_allclose([share for _, share in told], shares[position], rtol=2e-3)
            assert told[0][0] == int(ids[position, 0])
            assert str(told[0][0]) in lens["names"]


def test_the_lens_at_a_place_is_a_row_of_all(answers, kind):
    asked = answers(kind)
    every = opened(asked.read(question(kind, want=["lens"])))[0]["lens"]
    one = opened(asked.read(question(kind, want=["lens"], position=2)))[0]["lens"]
    assert one["positions"] == [2]
    for told, expected in zip(one["layers"][0], every["layers"][2], strict=True):
        assert [token for token, _ in told] == [token for token, _ in expected]
        np.testing.assert_allclose([s for _, s in told], [s for _, s in expected], rtol=2e-3)


@pytest.mark.parametrize("method", ["gradient-x-input", "attn-lrp", "voita", "alti", "rollout"])
def test_relevance_is_token_relevance_s(answers, model, kind, method):
    from infoflow.heads import relevance, token_relevance

    found = opened(answers(kind).read(question(kind, want=["relevance"], position=3, method=method)))[0]["relevance"]
    expected = token_relevance(model, inputs_of(model, kind), method, position=3)
    for stack, values in found["tokens"].items():
        np.testing.assert_allclose(values, expected[expected["stack"] == stack]["relevance"], rtol=1e-3, atol=1e-5)
    heads = relevance(model, inputs_of(model, kind), method, position=3, normalise=None)
    told = {(one["stack"], one["kind"], one["layer"]): one["heads"] for one in found["heads"]}
    for place, rows in heads.groupby(["stack", "kind", "layer"]):
        np.testing.assert_allclose(told[place], rows["relevance"], rtol=1e-3, atol=1e-5)


def test_relevance_of_a_difference_is_the_difference(answers, kind):
    asked = answers(kind)

    def tokens(**fields):
        answer = asked.read(question(kind, want=["relevance"], position=2, **fields))
        return np.concatenate(list(opened(answer)[0]["relevance"]["tokens"].values()))

    np.testing.assert_allclose(tokens(target=7, against=9), tokens(target=7) - tokens(target=9), rtol=1e-3, atol=2e-4)


def test_a_closed_head_is_ablate_s(answers, model, kind):
    from infoflow.heads import ablate

    stack = model.anatomy.predicts.name
    asked = answers(kind)
    key = opened(asked.read(question(kind)))[0]["key"]
    for mode in ("zero", "mean"):
        changed = question(key=key, close={"heads": [[stack, "self", 1, 0]]}, mode=mode, want=["attention"])
        head, _ = opened(asked.change(changed))
        inputs = inputs_of(model, kind)
        with torch.no_grad():
            before = model.module(**inputs).logits[0].log_softmax(-1)
            with ablate(model, [(stack, "self", 1, 0)], mode):
                after = model.module(**inputs).logits[0].log_softmax(-1)
        expected = (before.exp() * (before - after)).sum(-1)
        np.testing.assert_allclose(head["changed"]["divergence"], expected, rtol=1e-2, atol=1e-6)
        assert max(head["changed"]["divergence"]) > 1e-5


def test_a_hidden_token_is_a_key_that_nobody_has(answers, model, kind):
    """Slowly: the softmax of scores without one column, layer after layer."""
    from infoflow.models import keys_stack, tap

    stack = model.anatomy.reads.name
    asked = answers(kind)
    key = opened(asked.read(question(kind)))[0]["key"]
    head, arrays = opened(asked.change(question(key=key, hide=[[stack, 2]], want=["attention"])))
    kept = {}

    def without(call):
        if keys_stack(call.stack, call.kind) != stack:
            kept[call.stack, call.kind, call.layer] = call.weights[0]
            return None
        weights = call.weights.clone()
        weights[..., 2] = 0
        weights = weights / weights.sum(-1, keepdim=True)
        kept[call.stack, call.kind, call.layer] = weights[0]
        return call.edited(weights=weights)

    with torch.no_grad(), tap(model, on_attention=without):
        model.module(**inputs_of(model, kind))
    for place, found in weights(head, arrays).items():
        expected = 255 * np.sqrt(kept[place].numpy())
        assert np.abs(found - expected).max() <= 0.51
        if place[:2] == (stack, "self"):
            assert (found[:, :, 2] == 0).all()
            assert (found.max(-1) > 0).all()


def test_a_closed_layer_passes_its_input_on(answers, model, kind):
    """From there on everything is as it is below the layer."""
    from infoflow.representations import logit_lens

    asked, stack = answers(kind), model.anatomy.predicts.name
    key = opened(asked.read(question(kind)))[0]["key"]
    closed = question(key=key, close={"layers": [[stack, 1]]}, want=["lens"])
    head = opened(asked.change(closed))[0]
    inputs = inputs_of(model, kind)
    readings = logit_lens(model, inputs["input_ids"], None, inputs.get("decoder_input_ids"))
    logs = {reading.layer: reading.logits.log_softmax(-1) for reading in readings}
    for position, layers in enumerate(head["lens"]["layers"]):
        assert layers[1] == layers[2] != layers[0]
        shares, ids = logs[1][position].exp().topk(10)
        np.testing.assert_allclose([share for _, share in layers[1]], shares, rtol=2e-3)
        assert layers[1][0][0] == int(ids[0])
    expected = (logs[2].exp() * (logs[2] - logs[1])).sum(-1)
    np.testing.assert_allclose(head["changed"]["divergence"], expected, rtol=1e-2, atol=1e-6)


def test_closing_nothing_changes_nothing_exactly(models, kind):
    nothing_kept = responses([models[kind]], most_bytes=0)
    first, arrays = opened(nothing_kept.read(heard(kind=kind, want=["attention"])))
    other = opened(nothing_kept.read(heard(kind=kind, text="the dog")))[0]
    assert other["key"] != first["key"]
    head, again = opened(nothing_kept.change(heard(key=first["key"], want=["attention"])))
    assert head["passes"] == 3  # it was forgotten, and is computed again
    assert head["key"] == first["key"]
    for name, data in arrays.items():
        assert again[name] == data
    assert all(np.frombuffer(data, np.int8).any() == False for name, data in again.items() if "difference" in name)  # noqa: E712
    assert set(head["changed"]["divergence"]) == {0.0}
    assert {value for rows in head["changed"]["distance"].values() for row in rows for value in row} == {0.0}


def test_differences_are_after_less_before(answers, kind):
    asked = answers(kind)
    first, before = opened(asked.read(question(kind, want=["attention"])))
    stack = next(iter(first["view"]["tokens"]))
    head, after = opened(asked.change(question(key=first["key"], hide=[[stack, 1]], want=["attention"])))
    one, two, steps = weights(first, before), weights(head, after), weights(head, after, "difference")
    for place, bytes_ in steps.items():
        signed = bytes_.view(np.int8) / 127.0
        expected = (two[place] / 255.0) ** 2 - (one[place] / 255.0) ** 2
        assert np.abs(np.sign(signed) * signed**2 - expected).max() < 0.01


def test_a_strip_is_each_token_hidden(answers, kind, model):
    asked, stack = answers(kind), model.anatomy.reads.name
    head = opened(asked.read(question(kind, want=["attention"])))[0]
    key = head["key"]
    rows = asked.lines(question(key=key, want=["influence"]))
    assert len(rows) == sum(map(len, head["view"]["tokens"].values()))
    for row in (rows[1], rows[3]):
        changed = opened(asked.change(question(key=key, hide=[[row["stack"], row["token"]]])))[0]["changed"]
        kept = [value for value in changed["divergence"] if value is not None]
        assert row["divergence"] == pytest.approx(sum(kept) / len(kept), rel=1e-2, abs=1e-6)
        for name, layers in row["moved"].items():
            for told, expected in zip(layers, changed["distance"][name], strict=True):
                for token, (value, other) in enumerate(zip(told, expected, strict=True)):
                    if (name, token) == (row["stack"], row["token"]) or other is None:
                        assert value is None
                    else:
                        assert value == pytest.approx(other, rel=2e-2, abs=1e-5)
    assert stack in {row["stack"] for row in rows}


def test_a_sweep_is_each_head_closed(answers, kind, model):
    asked = answers(kind)
    key = opened(asked.read(question(kind)))[0]["key"]
    for mode in ("zero", "mean"):
        rows = asked.lines(question(key=key, sweep="heads", mode=mode))
        assert len(rows) == sum(one.num_heads for one in model.anatomy.attentions())
        for row in rows[:: max(1, len(rows) // 3)]:
            place = [row["stack"], row["kind"], row["layer"], row["head"]]
            changed = opened(asked.change(question(key=key, close={"heads": [place]}, mode=mode)))[0]["changed"]
            divergence = changed["divergence"]
            assert row["divergence"] == pytest.approx(sum(divergence) / len(divergence), rel=2e-2, abs=1e-6)


@pytest.mark.parametrize("kind", ["masked", "causal", "translation"])
def test_the_route_is_that_of_the_library_and_knows_of_changes(answers, kind, model):
    find_route = pytest.importorskip("infoflow.routes").find_route
    asked, stack = answers(kind), model.anatomy.predicts.name
    head, _ = opened(asked.read(question(kind, want=["attention", "route"])))
    stacks, key = list(head["view"]["tokens"]), head["key"]

    def agree(found, model):
        shares = {tuple(edge[:6]): edge[6] / 1000 for edge in found["edges"]}
        routes = [find_route(model, SENTENCE, translation_of(kind), position=at, threshold=0.02) for at in range(6)]
        edges = [edge for one in routes for edge in one.edges.itertuples()]
        for edge in edges:
            row = found["rows"][edge.stack].index([edge.layer, edge.sublayer])
            part = ["head", "feed-forward", "residual"].index(edge.part)
            place = (stacks.index(edge.stack), row, part, max(edge.head, 0), edge.token, edge.source)
            assert shares[place] == pytest.approx(edge.importance, abs=6e-4)
        return {edge.part for edge in edges}

    assert agree(head["route"], model) == {"head", "feed-forward", "residual"}
    closed = {"heads": [[stack, "self", 0, 1]]}
    agree(opened(asked.change(question(key=key, close=closed, want=["route"])))[0]["route"], without_head(model, stack))
    change = {"hide": [[stack, 2]], "close": {"layers": [[stack, 1]]}}
    found = opened(asked.change(question(key=key, want=["route"], **change)))[0]["route"]
    edges = [edge for edge in found["edges"] if edge[0] == stacks.index(stack)]
    within = [edge for edge in edges if found["rows"][stack][edge[1]][1] == "self"]
    assert not any(edge[5] == 2 and edge[4] != 2 for edge in within)
    top = [edge for edge in edges if found["rows"][stack][edge[1]][0] == 1]
    assert top
    assert all(edge[2] == 2 and edge[6] == 1000 for edge in top)  # residual connections alone


def without_head(model, stack):
    """The model whose first output projection has no weights for head 1."""
    import copy
    from dataclasses import replace

    from infoflow.models import load_model

    other = load_model(copy.deepcopy(model.module), tokenizer=model.tokenizer)
    place = (stack, "self", 0)
    attention = next(one for one in other.anatomy.attentions() if (one.stack, one.kind, one.layer) == place)
    weight = other.module.get_submodule(attention.output_projection).weight
    with torch.no_grad():
        columns = slice(attention.head_dim, 2 * attention.head_dim)
        (weight if attention.transposed else weight.mT)[columns] = 0
    return replace(other, target_tokenizer=model.target_tokenizer)


def test_a_part_is_swapped_in_the_model_as_it_was_changed(answers, kind, model):
    pytest.importorskip("infoflow.patching")
    asked, stack = answers(kind), model.anatomy.reads.name
    key = opened(asked.read(question(kind)))[0]["key"]
    closed = opened(asked.change(question(key=key, close={"heads": [[stack, "self", 0, 1]]})))[0]["key"]
    choices = {"other": "the old dog sees the dog", "part": "heads"}
    whole, without = (
        opened(asked.read(question(key=one, want=["swap"], choices=choices)))[0]["swap"] for one in (key, closed)
    )
    assert {name: whole[name] for name in choices} == choices
    first = [
        next(row for row in one["grids"][0]["rows"] if row["layer"] == 0)["effects"][1] for one in (whole, without)
    ]
    assert first[0] != 0
    assert first[1] == 0
    assert whole["metrics"] != without["metrics"]


def test_a_first_causal_token_that_sees_nothing_is_left_out(answers):
    asked = answers("causal")
    key = opened(asked.read(question("causal")))[0]["key"]
    changed = opened(asked.change(question(key=key, hide=[["decoder", 0], ["decoder", 1], ["decoder", 3]])))[0][
        "changed"
    ]
    assert changed["blind"] == {"decoder": [0, 1]}
    assert [index for index, value in enumerate(changed["divergence"]) if value is None] == [0, 1]


def test_what_is_forgotten_is_computed_anew(models):
    asked = responses([models["masked"]], most_bytes=1)
    first = opened(asked.read(heard(want=["attention"])))
    assert opened(asked.read(heard(text="a dog sleeps")))[0]["passes"] == 2
    again = opened(asked.read(heard(key=first[0]["key"], want=["attention"])))
    assert again[0]["passes"] == 3
    assert again[1] == first[1]


def test_memory_is_bounded(models):
    asked = responses([models["masked"]], most_bytes=1 << 20)
    for number in range(40):
        asked.read(heard(text=f"the cat {'old ' * (number % 30)} {number}", want=["attention"]))
    assert sum(one.num_bytes for one in asked.readings._kept.values()) <= 1 << 20


@pytest.mark.parametrize("kind", ["masked", "causal", "translation"])
def test_blanks(answers, models, kind):
    model, asked = models[kind], answers(kind)
    text = "the old ___ sees the ___" if kind == "masked" else SENTENCE
    found = asked.blank(question(kind, text=text))
    blanks = found["blanks"]
    stack = model.anatomy.predicts.name
    if kind == "masked":
        assert [found["tokens"][stack][place] for place in blanks["positions"]] == [model.tokenizer.mask_token] * 2
    else:
        assert len(blanks["positions"]) == 1
        assert found["tokens"][stack][blanks["positions"][0]] in ("dog", "chien") or len(found["tokens"][stack]) > 1
    shares = [share for _, share in blanks["layers"][0][-1]]
    assert shares == sorted(shares, reverse=True)
    assert len(blanks["layers"][0]) == 3


def test_blanks_of_both_sentences_of_a_pair(answers, models):
    found = answers("masked").blank(question(text="the ___ cat", pair="a [MASK]"))
    tokens, mask = found["tokens"]["encoder"], models["masked"].tokenizer.mask_token
    assert [tokens[place] for place in found["blanks"]["positions"]] == [mask, mask]
    assert found["blanks"]["positions"][1] == len(tokens) - 2


def test_a_pair_is_the_offline_page_s(answers, models):
    from infoflow.heads import sentence_attention

    asked = answers("masked")
    head, arrays = opened(asked.read(question(pair="a dog sleeps", want=["attention"])))
    seen = sentence_attention(models["masked"], SENTENCE, pair="a dog sleeps")
    assert [token.get("segment") for token in head["view"]["tokens"]["encoder"]][-4:] == [1, 1, 1, 1]
    told = weights(head, arrays)
    for layer in seen.kinds[0].layers:
        assert (told["encoder", "self", layer.layer] == layer.weights).all()
    alone, _ = opened(asked.read(question(want=["attention"])))
    assert alone["key"] != head["key"]


def test_a_model_without_pairs_reads_the_first_sentence(answers):
    head, _ = opened(answers("causal").read(question("causal", pair="a dog sleeps", want=["attention"])))
    assert "segment" not in head["view"]["tokens"]["decoder"][-1]


def test_a_translation_begins_from_its_start_token(answers, models):
    found = answers("translation").blank(question("masked"))
    assert found["blanks"]["positions"] == [0]
    assert len(found["tokens"]["decoder"]) == 1


def test_a_model_without_head_says_so(models, explorers):
    from transformers import BertConfig, BertModel

    from infoflow.models import load_model

    tokenizer = models["masked"].tokenizer
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    model = load_model(BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)), tokenizer=tokenizer)
    asked = Asker(explorers(model))
    head, _ = opened(asked.read(question(want=["attention", "lens", "relevance"], position=2)))
    assert "no language-model head" in head["lens"]["reason"]
    assert head["relevance"]["method"] == "alti"
    assert not head["view"]["predicts"]
    changed = opened(asked.change(question(key=head["key"], hide=[["encoder", 2]])))[0]["changed"]
    assert "divergence" not in changed
    assert changed["distance"]["encoder"][-1][3] > 0
    assert len(asked.lines(question(key=head["key"], sweep="heads"))) == 8
    with pytest.raises(RefusedQuestion, match=r"422.*no language-model head"):
        asked.blank(question(text="the ___"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hide": [["encoder", 99]]}, "reads 9 tokens|reads .* tokens, counted from 0"),
        ({"hide": [["decoder", 0]]}, "no such stack"),
        ({"close": {"heads": [["encoder", "self", 0, 99]]}}, "heads must be heads of"),
        ({"close": {"layers": [["encoder", 7]]}}, "no such layer"),
        ({"mode": "resample", "close": {"heads": [["encoder", "self", 0, 0]]}}, "mode must be"),
        ({"hide": [["encoder", i] for i in range(8)]}, "At least one token|counted from 0"),
    ],
)
def test_a_change_must_fit(answers, fields, message):
    asked = answers("masked")
    key = opened(asked.read(question()))[0]["key"]
    with pytest.raises(RefusedQuestion, match=f"422: .*({message})"):
        asked.change(question(key=key, **fields))


def test_hooks_are_gone_after_errors_and_changes(models, explorers, kind):
    model = models[kind]
    inputs, hooks = inputs_of(model, kind), hooks_of(model)
    with torch.no_grad():
        before = model.module(**inputs).logits
    explorer = explorers(model)
    asked = Asker(explorer)
    key = opened(asked.read(question(kind)))[0]["key"]
    stack = model.anatomy.predicts.name
    asked.change(question(key=key, hide=[[stack, 1]], close={"layers": [[stack, 0]], "heads": [[stack, "self", 1, 1]]}))
    leave_after_a_line(explorer, question(key=key, sweep="heads"))
    failing = model.module.register_forward_hook(_fails)
    with pytest.raises(RefusedQuestion, match=r"500: .*RuntimeError"):
        asked.change(question(key=key, hide=[[stack, 2]], close={"heads": [[stack, "self", 0, 0]]}))
    failing.remove()
    assert hooks_of(model) == hooks
    with torch.no_grad():
        assert torch.equal(model.module(**inputs).logits, before)


def leave_after_a_line(explorer, sent):
    """Asks over the network, and is gone when the first line has come."""
    import json
    from http.client import HTTPConnection

    explorer.start()
    link = HTTPConnection("127.0.0.1", explorer.port, timeout=20)
    link.request("GET", explorer.address.partition(str(explorer.port))[2])
    entered = link.getresponse()
    cookie = entered.headers["set-cookie"].partition(";")[0]
    entered.read()
    link.request("POST", "/api/read", json.dumps(sent), {"content-type": "application/json", "cookie": cookie})
    answer = link.getresponse()
    assert answer.status == 200
    assert "divergence" in json.loads(answer.readline())
    link.close()


def hooks_of(model):
    return [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in model.module.modules()]


def _fails(*_):
    raise RuntimeError("on purpose")
