"""Routes against a plain loop over tokens, heads and sources, in families that build their blocks in different ways."""

import numpy as np
import pytest
import torch
import transformers as t
from support import tiny_heads as tiny

import infoflow
from infoflow import analyze, view
from infoflow.cli import run
from infoflow.corpus import Corpus, generate_grammar
from infoflow.flow import PassOptions, measure
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.routes import RouteImportance, find_route, part_importance

SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 50}
GROUPED = {**SIZE, "num_key_value_heads": 2}
SHORT = {"vocab_size": 50, "n_embd": 32, "n_layer": 2, "n_head": 4}
BOTH = {"vocab_size": 50, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
BOTH |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
OPT = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48}
OPT |= {"word_embed_proj_dim": 32}
T5 = {"vocab_size": 50, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}

FAMILIES = {
    "pre-norm": lambda: t.GPT2LMHeadModel(t.GPT2Config(**SHORT)),
    "post-norm": lambda: t.BertForMaskedLM(t.BertConfig(**SIZE)),
    "grouped heads": lambda: t.LlamaForCausalLM(t.LlamaConfig(**GROUPED)),
    "norms around each part": lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**GROUPED, head_dim=8)),
    "norms behind each part": lambda: t.Olmo2ForCausalLM(t.Olmo2Config(**SIZE)),
    "norms of queries and keys": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**GROUPED, head_dim=8)),
    "parts times a number": lambda: t.GraniteForCausalLM(t.GraniteConfig(**GROUPED, residual_multiplier=0.22)),
    "parallel blocks, two norms": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**SIZE)),
    "parallel blocks, one norm": lambda: t.GPTJForCausalLM(t.GPTJConfig(**SHORT, rotary_dim=4)),
    "parallel blocks, added in place": lambda: t.FalconForCausalLM(
        t.FalconConfig(vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
    ),
    "flattened tokens": lambda: t.OPTForCausalLM(t.OPTConfig(**OPT)),
    "flattened tokens, post-norm": lambda: t.OPTForCausalLM(t.OPTConfig(**OPT, do_layer_norm_before=False)),
    "shared layers": lambda: t.AlbertForMaskedLM(t.AlbertConfig(**SIZE, embedding_size=16)),
    "its own attention": lambda: t.DebertaV2ForMaskedLM(
        t.DebertaV2Config(**SIZE, relative_attention=True, pos_att_type=["p2c", "c2p"], max_relative_positions=20)
    ),
    "experts": lambda: t.MixtralForCausalLM(t.MixtralConfig(**GROUPED, num_local_experts=4)),
    "learned sinks": lambda: t.GptOssForCausalLM(t.GptOssConfig(**GROUPED, head_dim=8, num_local_experts=4)),
    "position bias, encoder and decoder": lambda: t.T5ForConditionalGeneration(
        t.T5Config(**T5, decoder_start_token_id=0)
    ),
    "post-norm, encoder and decoder": lambda: t.BartForConditionalGeneration(t.BartConfig(**BOTH)),
    "pre-norm, encoder and decoder": lambda: t.MBartForConditionalGeneration(t.MBartConfig(**BOTH)),
}
IDS = [5, 9, 12, 7, 30, 41]


def model_of(family, seed=0):
    """Random weights, large enough that all parts matter; norms and biases are random too."""
    torch.manual_seed(seed)
    module = FAMILIES[family]().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(3 * parameter + (0.3 * torch.randn_like(parameter) if parameter.dim() == 1 else 0))
    return load_model(module, None, "cpu")


def route_of(model, position=-1, threshold=0.0, ids=IDS):
    two = len(model.anatomy.stacks) > 1
    return find_route(model, ids, ids[1:] if two else None, position=position, threshold=threshold)


@pytest.mark.parametrize("family", FAMILIES)
def test_all_edges_into_a_node_add_up_to_its_state(family):
    """At threshold 0 the route of the last token is the whole graph below it."""
    model = model_of(family)
    edges = route_of(model).edges
    sums = edges.groupby(["stack", "layer", "sublayer", "token"])["importance"].sum()
    assert sums.to_numpy() == pytest.approx(1, abs=1e-5)
    for (stack, kind), heads in model.anatomy.head_numbers().items():
        own = edges[(edges["stack"] == stack) & (edges["sublayer"] == kind) & (edges["layer"] == 0)]
        size = len(IDS) if stack != "decoder" or len(model.anatomy.stacks) == 1 else own["token"].nunique()
        keys = len(IDS) if kind == "cross" else size
        pairs = size * (size + 1) // 2 if model.anatomy.stack(stack).causal and kind == "self" else size * keys
        assert (own["part"] == "head").sum() == heads[0] * pairs
        assert (own["part"] == "residual").sum() == size


def importances(parts, whole):
    """One state, part by part."""
    near = [max(0.0, float(whole.abs().sum() - (whole - part).abs().sum())) for part in parts]
    return np.array(near) / sum(near)


def norm_of_part(part, state, norm):
    """LayerNorm as a linear map of a part of `state`."""
    deviation = ((state - state.mean()) ** 2).mean().add(norm.eps).sqrt()
    return (part - part.mean()) / deviation * norm.weight


def attention_parts(weights, values, output, bias):
    """Parts of one query: `weights` (head, key), `values` (key, head, width), `output` (head, width, model width)."""
    heads, keys = weights.shape
    parts = [weights[h, j] * (values[j, h] @ output[h]) for h in range(heads) for j in range(keys)]
    return parts, sum(parts) + bias


def plain_gpt2(module, ids):
    """(layer, query, head, key), and the feed-forward block's share (layer, query)."""
    seen, hooks = {}, []
    for number, block in enumerate(module.transformer.h):
        for name, part in {"v": block.attn.c_attn, "o": block.attn.c_proj, "mlp": block.mlp}.items():
            keep = lambda _, args, out, key=(number, name): seen.__setitem__(key, out[0])  # noqa: E731
            hooks.append(part.register_forward_hook(keep))
    module.set_attn_implementation("eager")
    with torch.no_grad():
        output = module(torch.tensor([ids]), output_attentions=True, output_hidden_states=True, use_cache=False)
    for hook in hooks:
        hook.remove()
    heads, feeds, states = [], [], list(output.hidden_states)
    for number, block in enumerate(module.transformer.h):
        values = seen[number, "v"].chunk(3, -1)[2].unflatten(-1, (4, 8))
        matrix, before = block.attn.c_proj.weight.unflatten(0, (4, 8)), states[number][0]
        middle = before + seen[number, "o"]
        rows = []
        for i in range(len(ids)):
            weights = output.attentions[number][0, :, i]
            parts, made = attention_parts(weights, values, matrix, block.attn.c_proj.bias)
            assert torch.allclose(before[i] + made, middle[i], atol=1e-5)
            rows.append(importances([*parts, before[i]], middle[i])[:-1].reshape(4, -1))
            feeds.append(importances([seen[number, "mlp"][i], middle[i]], middle[i] + seen[number, "mlp"][i])[0])
        heads.append(rows)
    return np.array(heads), np.array(feeds).reshape(len(heads), -1)


def plain_bert(module, ids):
    seen, hooks = {}, []
    for number, block in enumerate(module.bert.encoder.layer):
        watched = {"v": block.attention.self.value, "o": block.attention.output.dense, "mlp": block.output.dense}
        watched |= {"mid": block.attention.output.LayerNorm, "post": block.output.LayerNorm}
        for name, part in watched.items():
            keep = lambda _, args, out, key=(number, name): seen.__setitem__(key, out[0])  # noqa: E731
            hooks.append(part.register_forward_hook(keep))
    module.set_attn_implementation("eager")
    with torch.no_grad():
        output = module(torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    heads, feeds = [], []
    for number, block in enumerate(module.bert.encoder.layer):
        dense, norm, last = block.attention.output.dense, block.attention.output.LayerNorm, block.output.LayerNorm
        values, matrix = seen[number, "v"].unflatten(-1, (4, 8)), dense.weight.T.unflatten(0, (4, 8))
        before, rows = output.hidden_states[number][0], []
        for i in range(len(ids)):
            parts, made = attention_parts(output.attentions[number][0, :, i], values, matrix, dense.bias)
            state, middle = before[i] + made, seen[number, "mid"][i]
            moved = [norm_of_part(part, state, norm) for part in (*parts, before[i])]
            assert torch.allclose(sum(moved) + norm_of_part(dense.bias, state, norm) + norm.bias, middle, atol=1e-5)
            rows.append(importances(moved, middle)[:-1].reshape(4, -1))
            summed = middle + seen[number, "mlp"][i]
            both = [norm_of_part(part, summed, last) for part in (seen[number, "mlp"][i], middle)]
            feeds.append(importances(both, seen[number, "post"][i])[0])
        heads.append(rows)
    return np.array(heads), np.array(feeds).reshape(len(heads), -1)


@pytest.mark.parametrize(("family", "plain"), [("pre-norm", plain_gpt2), ("post-norm", plain_bert)])
def test_importances_are_those_of_a_plain_loop(family, plain):
    model = model_of(family)
    with torch.no_grad():
        heads, feeds = plain(model.module, IDS)
    edges = route_of(model).edges
    for row in edges[edges["part"] != "residual"].itertuples():
        other = feeds[row.layer, row.token] if row.head < 0 else heads[row.layer, row.token, row.head, row.source]
        assert row.importance == pytest.approx(other, abs=2e-6)


def test_a_higher_threshold_keeps_a_connected_part_of_the_graph():
    model = model_of("pre-norm")
    full, route = route_of(model).edges, route_of(model, threshold=0.05).edges
    keys = [name for name in full.columns if name != "importance"]
    assert 0 < len(route) < len(full)
    assert len(route.merge(full, on=keys)) == len(route)
    assert (route["importance"] >= 0.05).all()
    order = {"self": 0, "feed-forward": 1}
    rank = route["layer"] * 2 + route["sublayer"].map(order)
    below = set(zip(rank - 1, route["source"], strict=True))
    for node in zip(rank, route["token"], strict=True):
        assert node == (3, len(IDS) - 1) or node in below


def test_bf16_gives_nearly_the_same_numbers():
    model, half = model_of("grouped heads"), model_of("grouped heads")
    half.module.to(torch.bfloat16)
    keys = ["layer", "sublayer", "part", "head", "token", "source"]
    both = route_of(model).edges.merge(route_of(half).edges, on=keys)
    assert len(both) == len(route_of(model).edges)
    assert (both["importance_x"] - both["importance_y"]).abs().max() < 0.05


def test_parts_that_point_away_have_no_share_and_equal_parts_share_equally():
    parts, whole = torch.tensor([[2.0, 0.0], [2.0, 0.0], [-1.0, 0.0]]), torch.tensor([3.0, 0.0])
    assert part_importance(parts, whole).tolist() == pytest.approx([0.5, 0.5, 0])
    assert part_importance(torch.zeros(4, 3), torch.ones(3)).tolist() == pytest.approx([0.25] * 4)
    torch.manual_seed(0)
    many = torch.randn(5, 7, 6)
    one = many.sum(1)
    assert part_importance(many, one)[2].numpy() == pytest.approx(importances(list(many[2]), one[2]), abs=1e-6)


# The table.


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(12)


def parts_on_route(edges, token, least):
    """Layer, sublayer, part and head of all edges that a walk from the top reaches."""
    below, found, waiting = {}, set(), [(1, "feed-forward", token)]
    for edge in edges.itertuples():
        below.setdefault((edge.layer, edge.sublayer, edge.token), []).append(edge)
    seen = set(waiting)
    while waiting:
        layer, sublayer, _ = node = waiting.pop()
        for edge in below.get(node, []):
            if edge.importance >= least:
                found.add((layer, sublayer, edge.part, edge.head))
                lower = (
                    (layer, "self", edge.source)
                    if sublayer == "feed-forward"
                    else (layer - 1, "feed-forward", edge.source)
                )
                waiting += [lower] if lower not in seen else []
                seen.add(lower)
    return found


@pytest.mark.parametrize("made", [tiny.llama, tiny.bert])
def test_the_table_is_the_mean_over_the_routes_of_all_predictions(made, corpus):
    model = made(corpus)
    table = measure(model, corpus, [RouteImportance(sentences=2, threshold=0.05)])["route_importance"]
    reader, encoder = tiny.reader_of(model, corpus), model.anatomy.reads.name == "encoder"
    routes, values, tagged, count, nouns = {}, {}, {}, 0, 0
    for row in reader.rows[:2].tolist():
        stream = next(iter(reader.padded(np.array([row])).streams.values()))
        ids, words, (upos,) = (
            stream.input_ids[0].tolist(),
            stream.words[0].tolist(),
            corpus.select([row]).column("upos"),
        )
        for token in range(len(ids)):
            if not stream.valid[0, token] if encoder else token == len(ids) - 1:
                continue
            predicted = words[token if encoder else token + 1]
            noun, count = predicted >= 0 and upos[predicted] == "NOUN", count + 1
            nouns += noun
            whole = find_route(model, corpus.select([row])[0].text, position=token, threshold=0).edges
            mine = whole[(whole["token"] == token) & (whole["stack"] == whole["stack"].iloc[0])]
            for key, share in mine.groupby(["layer", "sublayer", "part", "head"])["importance"].sum().items():
                values[key] = values.get(key, 0) + share
            for key in parts_on_route(whole, token, 0.05):
                routes[key] = routes.get(key, 0) + 1
                tagged[key] = tagged.get(key, 0) + noun
    for row in table.itertuples():
        key = row.layer, row.sublayer, row.part, row.head
        found = values if row.measure == "importance" else routes if row.tag == "all" else tagged
        if row.tag == "all" or (row.tag == "NOUN" and row.measure == "route"):
            assert row.count == (count if row.tag == "all" else nouns)
            assert row.value == pytest.approx(found.get(key, 0) / row.count, abs=1e-5)
    assert {"all", "NOUN"} <= set(table["tag"])
    sums = table[(table["measure"] == "importance") & (table["tag"] == "all")].groupby(["layer", "sublayer"])
    assert sums["value"].sum().to_numpy() == pytest.approx(1, abs=1e-5)
    assert sums["baseline"].sum().to_numpy() == pytest.approx(1, abs=1e-5)
    first = table[table["tag"] == "NOUN"].merge(
        table[table["tag"] == "all"], on=["layer", "sublayer", "part", "head", "measure"]
    )
    assert first["baseline_x"].to_numpy() == pytest.approx(first["value_y"].to_numpy())


def test_batches_and_padding_change_nothing(corpus):
    model = tiny.llama(corpus)
    reader = tiny.reader_of(model, corpus)
    one, many = (RouteImportance().run(reader, PassOptions(tokens_per_batch=size)) for size in (1, 4096))
    assert one["value"].to_numpy() == pytest.approx(many["value"].to_numpy(), abs=2e-5)


def test_an_encoder_and_its_decoder_have_rows_for_all_sublayers():
    corpus = infoflow.load_corpus("tatoeba-en-fr").select(range(40))
    tokenizer = tiny.tokenizer_of(corpus)
    torch.manual_seed(0)
    config = t.MarianConfig(**{**BOTH, "vocab_size": len(tokenizer), "pad_token_id": 0, "decoder_start_token_id": 0})
    model = load_model(t.MarianMTModel(config), tokenizer=tokenizer)
    table = measure(model, corpus, [RouteImportance()])["route_importance"]
    sums = table[table["measure"] == "importance"].groupby(["stack", "sublayer", "layer"])["value"].sum()
    assert sums.to_numpy() == pytest.approx(1, abs=1e-5)
    assert set(sums.index.droplevel(2)) == {
        ("encoder", "self"), ("encoder", "feed-forward"), ("decoder", "self"), ("decoder", "cross"),
        ("decoder", "feed-forward"),
    }  # fmt: skip
    page = infoflow.plot(table)._repr_html_()
    assert "decoder, cross-attention, share of routes" in page
    assert "encoder, cross-attention" not in page


def test_a_copying_head_lies_on_the_route_and_its_source_is_reached():
    """A head that copies the token before, by hand: the feed-forward block and all other heads add nothing."""
    model = model_of("pre-norm")
    width, block = 8, model.module.transformer.h[0]
    with torch.no_grad():
        for one in model.module.transformer.h:
            for part in (one.attn.c_proj, one.mlp.c_proj):
                part.weight.zero_()
                part.bias.zero_()
        block.attn.c_attn.weight.zero_()
        block.attn.c_attn.bias.zero_()
        model.module.transformer.wpe.weight.zero_()
        block.attn.c_attn.weight[:width, 64 + width : 64 + 2 * width] = 100 * torch.eye(width)  # values of head 1
        block.attn.c_proj.weight[width : 2 * width, :width] = torch.eye(width)
    edges = find_route(model, IDS, position=-1, threshold=0.04).edges
    heads = edges[edges["part"] == "head"]
    assert set(zip(heads["layer"], heads["head"], strict=True)) == {(0, 1)}
    assert len(heads) > 1
    assert set(heads["token"]) == {len(IDS) - 1}


# Bad input.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.0}, "threshold is a share"),
        ({"threshold": -0.1}, "threshold is a share"),
        ({"position": 6}, r"position must lie in 0\.\.5"),
        ({"position": -7}, r"position must lie in 0\.\.5"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UserError, match=message):
        route_of(model_of("pre-norm"), **options)


def test_a_gate_behind_the_heads_is_refused():
    config = t.Qwen3NextConfig(
        **GROUPED,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=8,
        layer_types=["full_attention"] * 2,
    )
    model = load_model(t.Qwen3NextForCausalLM(config), None, "cpu")
    with pytest.raises(UserError, match="has no routes: a gate multiplies"):
        find_route(model, IDS)


def test_analyze_by_name_and_its_report(corpus, tmp_path):
    model = tiny.llama(corpus)
    model.module.save_pretrained(tmp_path / "tiny")
    model.tokenizer.save_pretrained(tmp_path / "tiny")
    run = analyze([tmp_path / "tiny"], corpus="grammar", sentences=60, only=("route_importance",), out=tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Which heads and feed-forward blocks does a prediction need?" in page
    assert "The most important head of" in page
    assert set(run.tables["route_importance"]["measure"]) == {"importance", "route"}


def test_heads_of_a_domain_are_those_of_two_corpora(corpus):
    texts = [sentence.text for sentence in generate_grammar(60, seed=3)][:40]
    model, domains = tiny.llama(corpus), {"law": texts[:25], "news": texts[25:]}
    both = Corpus.from_sentences(texts).with_labels(["law"] * 25 + ["news"] * 15)
    keys = ["stack", "layer", "sublayer", "part", "head", "measure"]

    def measured(corpus):
        table = measure(model, corpus, [RouteImportance(threshold=0.05)])["route_importance"]
        return table.set_index(keys)

    whole = measured(both)
    alone = {name: measured(Corpus.from_sentences(own)) for name, own in domains.items()}
    labelled = whole[whole["annotation"] == "label"]
    for name, other in (("law", "news"), ("news", "law")):
        rows = labelled[labelled["tag"] == name]
        for measures in ("importance", "route"):
            own = rows.xs(measures, level="measure")
            assert own["value"].to_numpy() == pytest.approx(
                alone[name].xs(measures, level="measure")["value"][own.index].to_numpy(), abs=1e-6
            )
            assert own["baseline"].to_numpy() == pytest.approx(
                alone[other].xs(measures, level="measure")["value"][own.index].to_numpy(), abs=1e-6
            )
        both_routes, difference = rows.xs("route", level="measure"), rows.xs("domain", level="measure")
        assert difference["value"].to_numpy() == pytest.approx(
            (both_routes["value"] - both_routes["baseline"]).to_numpy()
        )
        assert (difference["low"] <= difference["value"]).all()
        assert (difference["value"] <= difference["high"]).all()
    assert (labelled.xs("domain", level="measure")["baseline"] == 0).all()
    one = Corpus.from_sentences(texts).with_labels(["law"] * 40)
    assert "label" not in set(measured(one)["annotation"])


def test_a_label_column_is_read_from_the_command_line(corpus, tmp_path):
    tiny.llama(corpus).module.save_pretrained(tmp_path / "tiny")
    tiny.llama(corpus).tokenizer.save_pretrained(tmp_path / "tiny")
    rows = [f"{sentence.text}\t{'law' if at % 2 else 'news'}" for at, sentence in enumerate(generate_grammar(60))]
    (tmp_path / "both.tsv").write_text("\n".join(["text\tdomain", *rows]), encoding="utf-8")
    given = ["--only", "route_importance", "--corpus", str(tmp_path / "both.tsv"), "--no-control"]
    columns = ["--text-column", "text", "--label-column", "domain", "--out", str(tmp_path / "run")]
    assert run(["analyze", str(tmp_path / "tiny"), *given, *columns]) == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "lie on more than half of the routes of every label" in page
    assert "lie on more routes of law than of all other sentences" in page


def test_the_page_of_one_sentence_holds_its_route(corpus, tmp_path):
    path = view(tiny.llama(corpus), "the old cat sleeps").save(tmp_path / "cat.html")
    page = path.read_text(encoding="utf-8")
    assert '"further": ["route"]' in page or '"further":["route"]' in page
    assert "furtherViews.route" in page
