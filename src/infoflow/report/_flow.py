"""The flow of one sentence through a stack, as plain data for `templates/flow.js`."""

from typing import Any

from infoflow.corpus import printable
from infoflow.heads import AttentionOfKind, ReadToken, SentenceAttention


def token_payload(tokens: tuple[ReadToken, ...]) -> list[dict[str, Any]]:
    """Text and role of each token."""
    return [{"text": printable(token.text) or "·", "special": token.special} for token in tokens]


def flow_data(seen: SentenceAttention) -> list[dict[str, Any]]:
    """The data that `flow.js` draws, one entry per stack whose layers all have an ALTI map; [] without any.

    | key       | what it holds                                                                                     |
    |-----------|---------------------------------------------------------------------------------------------------|
    | `stack`   | its name                                                                                          |
    | `tokens`  | `{"text", "special"}` of each token: the columns                                                  |
    | `layers`  | the layers' numbers                                                                               |
    | `mixing`  | per layer the name of a block of bytes, query × key: shares of each key in the query's new vector |
    | `across`  | the same for cross-attention, query × source token; null in a stack without                       |
    | `source`  | the stack that cross-attention looks at; null                                                     |
    | `guesses` | per state 0..L and token `[text, probability]` of the logit lens; null where it cannot be read    |

    Blocks use the format of `heads.quantise`, and are named `stack/kind/layer/mixing`.
    """
    found = []
    for stack, tokens in seen.sentence.tokens.items():
        kinds = {kind.kind: kind for kind in seen.kinds if kind.stack == stack}
        own, across = kinds.get("self"), kinds.get("cross")
        if own is None or not _mixed(own) or (across is not None and not _mixed(across)):
            continue
        told = seen.guesses if seen.guesses is not None and seen.guesses.stack == stack else None
        found.append(
            {
                "stack": stack,
                "tokens": token_payload(tokens),
                "layers": [layer.layer for layer in own.layers],
                "mixing": _blocks(own),
                "across": None if across is None else _blocks(across),
                "source": None if across is None else across.keys_stack,
                "guesses": told and [[[g.text, round(g.share, 3)] for g in state] for state in told.states],
            }
        )
    return found


def _mixed(kind: AttentionOfKind) -> bool:
    return bool(kind.layers) and all(layer.mixing is not None for layer in kind.layers)


def _blocks(kind: AttentionOfKind) -> list[str]:
    return [f"{kind.stack}/{kind.kind}/{layer.layer}/mixing" for layer in kind.layers]
