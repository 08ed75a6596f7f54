"""Layer-wise relevance propagation against a second implementation with dense Jacobians."""

# One sentence at a time, one seed at a time. R is relevance; all in float64.

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.autograd.functional import jacobian
from transformers.models.bert.modeling_bert import BertIntermediate

from infoflow.foundation import UserError
from infoflow.heads import relevance, token_relevance
from infoflow.models import load_model, tap

EPSILON = 1e-5


@pytest.fixture(scope="module")
def build():
    """Tiny random models of every family, as the tests of models have them."""
    path = Path(__file__).parents[1] / "models" / "conftest.py"
    spec = importlib.util.spec_from_file_location("families", path)
    families = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(families)
    return lambda family: families.build(family).double()


# -- the second implementation: every function with its full Jacobian


def transition(function, inputs, R, options):
    """Relevance of each of `inputs`, given R of function(*inputs): the definition, output by output."""
    numbers = sum(x.numel() for x in inputs)
    constant = function(*[torch.zeros_like(x) for x in inputs]).flatten().detach()
    parts = jacobian(function, tuple(inputs))
    z = torch.cat([J.reshape(R.numel(), -1) * x.flatten() for J, x in zip(parts, inputs, strict=True)], dim=1)
    shared = options["bias"] == "share"
    if shared:
        z = z + constant[:, None] / numbers
    result = torch.zeros(z.shape[1], dtype=z.dtype)
    for row, c, r in zip(z, constant, R.flatten(), strict=True):
        c = 0.0 if shared else float(c)
        if options["rule"] == "ratio":
            total = row.sum() + c
            result += r * row / (total + (-EPSILON if total < 0 else EPSILON))
        else:
            result += r * 0.5 * row.clamp(min=0) / (row.clamp(min=0).sum() + max(c, 0) + EPSILON)
            result += r * 0.5 * row.clamp(max=0) / (row.clamp(max=0).sum() + min(c, 0) - EPSILON)
    sizes = [x.numel() for x in inputs]
    return [part.reshape(x.shape) for part, x in zip(result.split(sizes), inputs, strict=True)]


def scaled(parts, wanted):
    total = sum(part.abs().sum() for part in parts)
    return [part * (wanted / (total + EPSILON)) for part in parts]


def per_token(function, x, R, options):
    """A function of single tokens: rescaled for each token, then for the sentence."""
    tokens = [
        scaled(transition(function, [x[t]], R[t], options), R[t].abs().sum())[0]
        if R[t].abs().sum() > 0
        else torch.zeros_like(x[t])
        for t in range(len(x))
    ]
    return scaled([torch.stack(tokens)], R.abs().sum())[0]


def residual(a, b, R, options):
    """a + b, dimension by dimension, rescaled for each token jointly."""
    a_R, b_R = torch.zeros_like(a), torch.zeros_like(b)
    for t in range(len(a)):
        for d in range(a.shape[1]):
            z = torch.stack([a[t, d], b[t, d]])
            if options["rule"] == "ratio":
                T = z / (z.sum() + (-EPSILON if z.sum() < 0 else EPSILON))
            else:
                T = 0.5 * z.clamp(min=0) / (z.clamp(min=0).sum() + EPSILON)
                T += 0.5 * z.clamp(max=0) / (z.clamp(max=0).sum() - EPSILON)
            a_R[t, d], b_R[t, d] = T * R[t, d]
        a_R[t], b_R[t] = scaled([a_R[t], b_R[t]], R[t].abs().sum())
    return a_R, b_R


def merge(*parts):
    return scaled([sum(parts)], sum(part.abs().sum() for part in parts))[0]


def core(q, k, v, mask, R, options):
    """Softmax attention of every head: (H, T, d)."""
    results = []
    for h in range(len(q)):

        def attend(query, key, value):
            scores = query @ key.T / query.shape[1] ** 0.5 + mask
            weights = scores.softmax(1)
            if options["softmax"] == "const":
                weights = (q[h] @ k[h].T / q.shape[2] ** 0.5 + mask).softmax(1)  # noqa: B023
            return weights @ value

        results.append(scaled(transition(attend, [q[h], k[h], v[h]], R[h], options), R[h].abs().sum()))
    return scaled([torch.stack(part) for part in zip(*results, strict=True)], R.abs().sum())


def split(x, heads):
    return x.unflatten(1, (heads, -1)).transpose(0, 1)


def join(x):
    return x.transpose(0, 1).flatten(1)


def attention(names, x, memory, mask, R, options, heads):
    """Heads' relevance, and that of the states (and of the memory)."""
    q_of, k_of, v_of, o_of = names
    q, k, v = (split(f(s), heads) for f, s in ((q_of, x), (k_of, memory), (v_of, memory)))
    context = join((q @ k.mT / q.shape[2] ** 0.5 + mask).softmax(2) @ v)
    R_heads = per_token(o_of, context, R, options)
    by_head = split(R_heads, heads).sum((1, 2))
    R_q, R_k, R_v = (join(part) for part in core(q, k, v, mask, split(R_heads, heads), options))
    if memory is x:
        fused = lambda u: torch.cat([q_of(u), k_of(u), v_of(u)], -1)  # noqa: E731
        return by_head, per_token(fused, x, torch.cat([R_q, R_k, R_v], 1), options), None
    R_x = per_token(q_of, x, R_q, options)
    R_memory = per_token(lambda u: torch.cat([k_of(u), v_of(u)], -1), memory, torch.cat([R_k, R_v], 1), options)
    return by_head, *scaled([R_x, R_memory], R_heads.abs().sum())


def seed(unembedding, states, position, options):
    """Relevance 1 at the top logit of a position."""
    logits = unembedding(states[position])
    R = torch.zeros_like(states)
    one = torch.zeros_like(logits)
    one[logits.argmax()] = 1.0
    R[position] = scaled(transition(unembedding, [states[position]], one, options), 1.0)[0]
    return scaled([R], 1.0)[0]


def bert_by_hand(module, ids, position, options):
    """Post-norm: LayerNorm, sum, sublayer. Returns heads by layer, and the embeddings' relevance."""
    bert, head = module.bert, module.cls.predictions
    states = [bert.embeddings(ids)[0].detach()]
    inner = []
    for layer in bert.encoder.layer:
        x, own = states[-1], layer.attention
        q, k, v = (split(f(x), 4) for f in (own.self.query, own.self.key, own.self.value))
        attended = own.output.dense(join((q @ k.mT / q.shape[2] ** 0.5).softmax(2) @ v))
        middle = own.output.LayerNorm(attended + x)
        hidden = layer.intermediate(middle)
        out = layer.output.dense(hidden)
        inner.append([part.detach() for part in (x, attended, middle, hidden, out)])
        states.append(layer.output.LayerNorm(out + middle).detach())
    transformed = head.transform(states[-1]).detach()
    R = seed(head.decoder, transformed, position, options)
    dense = head.transform.dense(states[-1])
    R = per_token(head.transform.LayerNorm, head.transform.transform_act_fn(dense).detach(), R, options)
    R = per_token(head.transform.dense, states[-1], R, options)
    heads = []
    for layer, (x, attended, middle, hidden, out) in zip(reversed(bert.encoder.layer), reversed(inner), strict=True):
        R = per_token(layer.output.LayerNorm, out + middle, R, options)
        R_out, R_skip = residual(out, middle, R, options)
        R_hidden = per_token(layer.output.dense, hidden, R_out, options)
        R = merge(R_skip, per_token(layer.intermediate.dense, middle, R_hidden, options))
        own = layer.attention
        R = per_token(own.output.LayerNorm, attended + x, R, options)
        R_attended, R_skip = residual(attended, x, R, options)
        names = (own.self.query, own.self.key, own.self.value, own.output.dense)
        by_head, R_x, _ = attention(names, x, x, torch.zeros(1), R_attended, options, 4)
        heads.append(by_head)
        R = merge(R_skip, R_x)
    return torch.stack(heads[::-1]), R


def bart_layer(layer, x, memory, mask, heads):
    """Forward pass of a pre-norm layer: what its parts read."""
    kept = {}

    def attend(name, norm, states, other):
        own, normed = getattr(layer, name), norm(states)
        source = normed if other is None else other
        q, k, v = (split(f(s), heads) for f, s in ((own.q_proj, normed), (own.k_proj, source), (own.v_proj, source)))
        bias = mask if other is None else torch.zeros(1)
        out = own.out_proj(join((q @ k.mT / q.shape[2] ** 0.5 + bias).softmax(2) @ v))
        kept[name] = [part.detach() for part in (states, normed, out)]
        return (states + out).detach()

    x = attend("self_attn", layer.self_attn_layer_norm, x, None)
    if memory is not None:
        x = attend("encoder_attn", layer.encoder_attn_layer_norm, x, memory)
    normed = layer.final_layer_norm(x)
    hidden = layer.activation_fn(layer.fc1(normed))
    out = layer.fc2(hidden)
    kept["mlp"] = [part.detach() for part in (x, normed, hidden, out)]
    return (x + out).detach(), kept


def bart_layer_back(layer, kept, R, memory, mask, heads, options):
    x, normed, hidden, out = kept["mlp"]
    R_out, R_skip = residual(x, out, R, options)[::-1]
    R_hidden = per_token(layer.fc2, hidden, R_out, options)
    R_normed = per_token(layer.fc1, normed, R_hidden, options)
    R = merge(R_skip, per_token(layer.final_layer_norm, x, R_normed, options))
    found, R_memory = {}, None
    parts = [("self_attn", layer.self_attn_layer_norm)]
    parts += [("encoder_attn", layer.encoder_attn_layer_norm)] if memory is not None else []
    for name, norm in reversed(parts):
        states, normed, out = kept[name]
        own, cross = getattr(layer, name), name == "encoder_attn"
        R_skip, R_out = residual(states, out, R, options)
        names = (own.q_proj, own.k_proj, own.v_proj, own.out_proj)
        source, bias = (memory, torch.zeros(1)) if cross else (normed, mask)
        found[name], R_normed, R_source = attention(names, normed, source, bias, R_out, options, heads)
        R_memory = R_source if cross else R_memory
        R = merge(R_skip, per_token(norm, states, R_normed, options))
    return found, R, R_memory


def mbart_by_hand(module, ids, decoder_ids, position, options):
    """Pre-norm, encoder and decoder. Returns heads by (stack, kind) and the embeddings' relevance by stack."""
    model = load_model(module)
    with torch.no_grad(), tap(model, hidden=True) as seen:
        module(input_ids=ids, decoder_input_ids=decoder_ids)
    stacks = {"encoder": module.model.encoder, "decoder": module.model.decoder}
    heads_of = {"encoder": 4, "decoder": 2}
    steps = decoder_ids.shape[1]
    causal = torch.zeros(steps, steps, dtype=torch.float64)
    causal = causal.masked_fill(torch.ones_like(causal).triu(1).bool(), -1e30)
    masks = {"encoder": torch.zeros(1), "decoder": causal}
    kept, tops, memory = {}, {}, None
    for name, stack in stacks.items():
        x = seen.hidden[name][0][0]
        kept[name] = []
        for layer in stack.layers:
            x, parts = bart_layer(layer, x, memory, masks[name], heads_of[name])
            kept[name].append(parts)
        tops[name] = x
        memory = stack.layer_norm(x).detach() if name == "encoder" else memory
    final = stacks["decoder"].layer_norm(tops["decoder"]).detach()
    R = per_token(
        stacks["decoder"].layer_norm, tops["decoder"], seed(module.lm_head, final, position, options), options
    )
    heads, memories = {}, []
    for layer, parts in zip(reversed(stacks["decoder"].layers), reversed(kept["decoder"]), strict=True):
        found, R, R_memory = bart_layer_back(layer, parts, R, memory, causal, 2, options)
        memories.append(R_memory)
        for name, kind in (("self_attn", "self"), ("encoder_attn", "cross")):
            heads.setdefault(("decoder", kind), []).insert(0, found[name])
    tokens = {"decoder": R}
    R = per_token(stacks["encoder"].layer_norm, tops["encoder"], merge(*memories), options)
    for layer, parts in zip(reversed(stacks["encoder"].layers), reversed(kept["encoder"]), strict=True):
        found, R, _ = bart_layer_back(layer, parts, R, None, masks["encoder"], 4, options)
        heads.setdefault(("encoder", "self"), []).insert(0, found["self_attn"])
    return {key: torch.stack(rows) for key, rows in heads.items()}, tokens | {"encoder": R}


OPTIONS = [
    {"rule": "alphabeta", "softmax": "joint", "bias": "share"},
    {"rule": "alphabeta", "softmax": "joint", "bias": "absorb"},
    {"rule": "alphabeta", "softmax": "const", "bias": "share"},
    {"rule": "ratio", "softmax": "joint", "bias": "share"},
    {"rule": "ratio", "softmax": "const", "bias": "absorb"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options.values()))
def test_post_norm_agrees_with_dense_jacobians(build, options):
    module = build("bert")
    ids = torch.tensor([[5, 6, 7, 8]])
    heads, states = bert_by_hand(module, ids, 2, options)
    model = load_model(module)
    frame = relevance(model, {"input_ids": ids}, "voita", position=2, normalise=None, **options)
    torch.testing.assert_close(torch.tensor(frame["relevance"].to_numpy()).reshape(3, 4), heads, rtol=1e-6, atol=1e-9)
    tokens = token_relevance(model, {"input_ids": ids}, "voita", position=2, **options)
    torch.testing.assert_close(torch.tensor(tokens["relevance"].to_numpy()), states.abs().sum(1), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("options", OPTIONS[:1] + OPTIONS[3:], ids=lambda options: "-".join(options.values()))
def test_pre_norm_encoder_decoder_agrees_with_dense_jacobians(build, options):
    module = build("mbart")
    ids, decoder_ids = torch.tensor([[5, 6, 7]]), torch.tensor([[2, 8, 9]])
    heads, states = mbart_by_hand(module, ids, decoder_ids, 1, options)
    model, batch = load_model(module), {"input_ids": ids, "decoder_input_ids": decoder_ids}
    frame = relevance(model, batch, "voita", position=1, normalise=None, **options)
    for (stack, kind), expected in heads.items():
        rows = frame[(frame["stack"] == stack) & (frame["kind"] == kind)]
        found = torch.tensor(rows["relevance"].to_numpy()).reshape(expected.shape)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)
    tokens = token_relevance(model, batch, "voita", position=1, **options)
    for stack, expected in states.items():
        found = torch.tensor(tokens.loc[tokens["stack"] == stack, "relevance"].to_numpy())
        torch.testing.assert_close(found, expected.abs().sum(1), rtol=1e-6, atol=1e-9)


# -- properties


FAMILIES = [
    "bert",
    "roberta",
    "albert",
    "gpt2",
    "gpt_neox",
    "opt",
    "llama",
    "phi3",
    "marian",
    "bart",
    "t5",
    "encoder-decoder",
]


def batch_of(model):
    batch = {"input_ids": torch.tensor([[5, 6, 7, 8]])}
    return batch | ({"decoder_input_ids": torch.tensor([[2, 9, 4]])} if model.task == "seq2seq" else {})


@pytest.mark.parametrize("family", FAMILIES)
def test_source_and_target_come_to_one(build, family):
    model = load_model(build(family))
    tokens = token_relevance(model, batch_of(model), "voita")
    sums = tokens.groupby("position")["relevance"].sum()
    assert sums.between(0.99, 1).all(), sums
    assert (tokens["relevance"] >= 0).all()
    frame = relevance(model, batch_of(model), "voita")
    assert frame["relevance"].between(0, 1).all()
    later = tokens[(tokens["stack"] == "decoder") & (tokens["token"] > tokens["position"])]
    assert (later["relevance"] == 0).all()  # what comes later cannot matter


@pytest.mark.parametrize(("rule", "family"), [("alphabeta", "bert"), ("ratio", "mbart")])
def test_a_head_that_writes_nothing_gets_nothing_where_biases_are_absorbed(build, rule, family):
    module = build(family)
    model = load_model(module)
    one = next(iter(model.anatomy.attentions()))
    with torch.no_grad():
        module.get_submodule(one.output_projection).weight[:, : one.head_dim] = 0
    first = (one.stack, one.kind, one.layer, 0)
    for bias, expected in (("absorb", True), ("share", False)):
        frame = relevance(model, batch_of(model), "voita", rule=rule, bias=bias).set_index(
            ["stack", "kind", "layer", "head"]
        )
        assert (frame.loc[first, "relevance"] == 0) == expected
        assert (frame.attrs["absorbed_share"] > 0) == expected


def test_embeddings_may_be_given_instead_of_tokens(build):
    model = load_model(build("bert"))
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        embeds = model.module.get_input_embeddings()(ids)
    expected = relevance(model, {"input_ids": ids}, "voita")["relevance"]
    found = relevance(model, {"inputs_embeds": embeds}, "voita")["relevance"]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected))


def test_seeds_in_pieces_are_the_same(build, monkeypatch):
    model = load_model(build("bart"))
    whole = relevance(model, batch_of(model), "voita")["relevance"]
    monkeypatch.setattr("infoflow.heads._relevance._lrp._SEED_NUMBERS", 1)
    monkeypatch.setattr("infoflow.heads._relevance._rule._CHUNK", 1)
    monkeypatch.setattr("infoflow.heads._relevance._rule._QUERY_CHUNK", 1)
    pieces = relevance(model, batch_of(model), "voita")["relevance"]
    torch.testing.assert_close(torch.tensor(pieces), torch.tensor(whole))


def test_the_model_is_as_before(build):
    module = build("gpt2")
    model = load_model(module)
    before, hooks = module.config._attn_implementation, hooks_of(module)
    relevance(model, batch_of(model), "voita")
    with pytest.raises(UserError):
        relevance(model, {"attention_mask": torch.ones(1, 4)}, "voita")
    assert module.config._attn_implementation == before
    assert hooks_of(module) == hooks


def hooks_of(module):
    """All hooks: transformers keeps some of its own on a model that was once asked for its states."""
    return [[*child._forward_pre_hooks.values(), *child._forward_hooks.values()] for child in module.modules()]


def test_what_has_no_rule_is_named_and_not_passed_over(build):
    """An operation between modules must not pass for a constant."""

    class Odd(BertIntermediate):
        def forward(self, hidden_states):
            return super().forward(hidden_states).sin()

    module = build("bert")
    module.bert.encoder.layer[1].intermediate.__class__ = Odd
    with pytest.raises(UserError, match="no rule for the operation sin"):
        relevance(load_model(module), {"input_ids": torch.tensor([[5, 6, 7]])}, "voita")
