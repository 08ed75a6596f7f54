"""Patching by a plain loop: one pair, one part, one run at a time, with hooks of its own on modules by name."""

from contextlib import ExitStack, contextmanager

import torch


class Place:
    """A tensor of a forward pass: the input or output of a module, or some of its columns or rows."""

    def __init__(self, module, side, columns=None, rows=None):
        self.module, self.side, self.columns, self.rows = module, side, columns, rows

    def index(self):
        return (slice(None), slice(None) if self.rows is None else self.rows, self.columns or slice(None))


def gpt2(model):
    """(part, stack, kind, layer, head) → place."""
    found, config = {}, model.module.config
    width, size = config.n_embd, config.n_embd // config.n_head
    for layer, block in enumerate(model.module.transformer.h):
        found["attention", "decoder", "self", layer, -1] = Place(block.attn.c_proj, "in")
        found["feed-forward", "decoder", "", layer, -1] = Place(block.mlp.c_proj, "out")
        for head in range(config.n_head):
            own = slice(head * size, (head + 1) * size)
            found["head", "decoder", "self", layer, head] = Place(block.attn.c_proj, "in", own)
            for number, name in enumerate(("query", "key", "value")):
                part = slice(number * width + own.start, number * width + own.stop)
                found[name, "decoder", "self", layer, head] = Place(block.attn.c_attn, "out", part)
    return found, {"decoder": list(model.module.transformer.h)}


def bert(model):
    found, config = {}, model.module.config
    size = config.hidden_size // config.num_attention_heads
    for layer, block in enumerate(model.module.bert.encoder.layer):
        attention = block.attention
        found["attention", "encoder", "self", layer, -1] = Place(attention.output.dense, "in")
        found["feed-forward", "encoder", "", layer, -1] = Place(block.output.dense, "out")
        for head in range(config.num_attention_heads):
            own = slice(head * size, (head + 1) * size)
            found["head", "encoder", "self", layer, head] = Place(attention.output.dense, "in", own)
            for name in ("query", "key", "value"):
                found[name, "encoder", "self", layer, head] = Place(getattr(attention.self, name), "out", own)
    return found, {"encoder": list(model.module.bert.encoder.layer)}


def bart(model):
    found, config, blocks = {}, model.module.config, {}
    for stack, layers in (
        ("encoder", model.module.model.encoder.layers),
        ("decoder", model.module.model.decoder.layers),
    ):
        heads = getattr(config, f"{stack}_attention_heads")
        size, blocks[stack] = config.d_model // heads, list(layers)
        for layer, block in enumerate(layers):
            found["feed-forward", stack, "", layer, -1] = Place(block.fc2, "out")
            kinds = {"self": block.self_attn} | ({"cross": block.encoder_attn} if stack == "decoder" else {})
            for kind, attention in kinds.items():
                found["attention", stack, kind, layer, -1] = Place(attention.out_proj, "in")
                for head in range(heads):
                    own = slice(head * size, (head + 1) * size)
                    found["head", stack, kind, layer, head] = Place(attention.out_proj, "in", own)
                    for name, module in zip(("query", "key", "value"), ("q_proj", "k_proj", "v_proj"), strict=True):
                        found[name, stack, kind, layer, head] = Place(getattr(attention, module), "out", own)
    return found, blocks


@contextmanager
def hooked(place, change):
    """`change` gets the whole tensor at the place, and may return another."""

    def before(module, args, kwargs):
        if args:
            new = change(args[0])
            return None if new is None else ((new, *args[1:]), kwargs)
        new = change(kwargs["hidden_states"])
        return None if new is None else (args, {**kwargs, "hidden_states": new})

    def after(module, args, output):
        new = change(output if torch.is_tensor(output) else output[0])
        return new if new is None or torch.is_tensor(output) else (new, *output[1:])

    if place.side == "in":
        handle = place.module.register_forward_pre_hook(before, with_kwargs=True)
    else:
        handle = place.module.register_forward_hook(after)
    try:
        yield
    finally:
        handle.remove()


def metric(model, inputs, place, answer, wrong):
    logits = model.module(**inputs).logits[0, place]
    against = logits.logsumexp(0) if wrong < 0 else logits[wrong]
    return logits[answer] - against


class Loop:
    """All effects on one pair; `sides`: arguments of the clean and the corrupted run."""

    def __init__(self, model, sides, place, answer, wrong, start):
        """`start`: the first block that reads the text, whose input is the path of integrated gradients."""
        self.model, self.sides, self.of = model, sides, (place, answer, wrong)
        self.starts = start
        self.kept = {}

    def score(self, side):
        if side not in self.kept:
            with torch.no_grad():
                self.kept[side] = float(metric(self.model, self.sides[side], *self.of))
        return self.kept[side]

    def value(self, place, side):
        key = place.module, place.side, side
        if key not in self.kept:
            with torch.no_grad(), hooked(place, lambda value: self.kept.setdefault(key, value.clone())):
                metric(self.model, self.sides[side], *self.of)
        return self.kept[key]

    def exact(self, place, base):
        given, before = self.value(place, 1 - base), self.score(base)

        def change(value):
            new = value.clone()
            new[place.index()] = given[place.index()]
            return new

        with torch.no_grad(), hooked(place, change):
            return float(metric(self.model, self.sides[base], *self.of)) - before

    def first_order(self, place, base, fractions):
        starts = [Place(block, "in") for block in self.starts]
        ends = [(self.value(one, base), self.value(one, 1 - base)) for one in starts]
        own, given = self.value(place, base), self.value(place, 1 - base)
        total = torch.zeros_like(own)
        for fraction in fractions:
            kept = []

            def keep(value, kept=kept):
                value.retain_grad()
                kept.append(value)

            with ExitStack() as stack:
                for one, (low, high) in zip(starts, ends, strict=True):
                    middle = (low + fraction * (high - low)).detach().requires_grad_()
                    stack.enter_context(hooked(one, lambda value, middle=middle: middle))
                stack.enter_context(hooked(place, keep))
                metric(self.model, self.sides[base], *self.of).backward()
            total = total + (0 if kept[0].grad is None else kept[0].grad)
        return float(((given - own) * total)[place.index()].sum() / len(fractions))
