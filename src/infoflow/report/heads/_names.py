"""What kinds of attention are called."""

KINDS = {
    ("encoder", "self"): "encoder self-attention",
    ("decoder", "self"): "decoder self-attention",
    ("decoder", "cross"): "cross-attention",
}


def kind_label(stack: str, kind: str) -> str:
    """`cross-attention`, `decoder self-attention`."""
    return KINDS.get((stack, kind), f"{stack} {kind}-attention")
