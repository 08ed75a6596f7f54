"""Names of heads and kinds of attention."""

from collections.abc import Mapping
from typing import Any

KINDS = {
    ("encoder", "self"): "encoder self-attention",
    ("decoder", "self"): "decoder self-attention",
    ("decoder", "cross"): "cross-attention",
}


def head_name(row: Mapping[str, Any], label: str, of_seed: bool) -> str:
    """`head 3 of layer 2 of causal LM (self-attention, seed 1)`; includes the seed if there may be several."""
    seed = f", seed {int(row['seed'])}" if of_seed else ""
    kind = kind_label(row["stack"], row["kind"])
    return f"head {int(row['head'])} of layer {int(row['layer'])} of {label} ({kind}{seed})"


def kind_label(stack: str, kind: str) -> str:
    """`cross-attention`, `decoder self-attention`."""
    return KINDS.get((stack, kind), f"{stack} {kind}-attention")
