"""One sentence's attention, or the neighbours of some words, as one HTML file that needs only a browser."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from infoflow._subjects import provided
from infoflow.corpus import printable
from infoflow.foundation import UserError, atomic_write, version
from infoflow.heads import AttentionOfKind, LayerAttention, ReadSentence, ReadToken, SentenceAttention, telling_heads
from infoflow.models import Model

from ._embedding import asset, check_replaceable, closed, embedded, packed, packed_json, policy, style
from ._theme import Series
from .heads._statistics import kind_label
from .representations._words import words_payload

# The flow of one sentence through a stack, as plain data for `templates/flow.js`.


def token_payload(tokens: tuple[ReadToken, ...]) -> list[dict[str, Any]]:
    """Text and role of each token; of a pair also its sentence, 0 or 1."""
    return [
        {"text": printable(token.text) or "·", "special": token.special}
        | ({} if token.segment is None else {"segment": token.segment})
        for token in tokens
    ]


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
        stated = seen.guesses if seen.guesses is not None and seen.guesses.stack == stack else None
        found.append(
            {
                "stack": stack,
                "tokens": token_payload(tokens),
                "layers": [layer.layer for layer in own.layers],
                "mixing": _blocks(own),
                "across": None if across is None else _blocks(across),
                "source": None if across is None else across.keys_stack,
                "guesses": stated and [[[g.text, round(g.share, 3)] for g in state] for state in stated.states],
            }
        )
    return found


def _mixed(kind: AttentionOfKind) -> bool:
    return bool(kind.layers) and all(layer.mixing is not None for layer in kind.layers)


def _blocks(kind: AttentionOfKind) -> list[str]:
    return [f"{kind.stack}/{kind.kind}/{layer.layer}/mixing" for layer in kind.layers]


# One sentence's attention as one HTML file that needs only a browser.


VIEWS = (
    *("page.js", "attention.js", "flow.js", "sentence_view.js"),
    *("route_view.js", "flow_view.js", "predictions.js", "effects.js"),
)
"""Scripts of the views, shared with the live explorer."""


def further_answers(model: Model, read: ReadSentence) -> dict[str, list[Mapping[str, Any]]]:
    """The answers of all further views that subjects provide, for the page's `ask`; [] if the model has none."""
    found = {}
    for name, answer in further_views().items():
        try:
            found[name] = [answer(model, read)]
        except UserError:
            found[name] = []
    return found


def further_views() -> dict[str, Callable[[Model, ReadSentence], Mapping[str, Any]]]:
    """What subjects compute of a sentence for a view of their own, by the view's name."""
    return {name: answer for own in provided("view", "ANSWERS") for name, answer in own.items()}


def write_view(
    seen: SentenceAttention, path: Path | str, answers: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
) -> Path:
    """Write the attention views of one sentence: all heads, the flow through the layers, one head, queries and keys.

    One HTML file, readable offline, complete or not written at all. Returns its path.

    Args:
        seen: The sentence's attention.
        path: The file.
        answers: What views of subjects show, from `further_answers`.
    """
    path = check_view_path(path)
    page = view_page(seen, Explored(answers=answers or {}))
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Explored:
    """The live explorer's results for a sentence, besides its attention."""

    state: str = ""
    """Initial choices of the page, in the format of an address fragment after `#`."""
    before: SentenceAttention | None = None
    """The sentence's attention in the unchanged model."""
    change_text: str = ""
    """What was ablated, in words."""
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Further arrays by name: the change of every weight."""
    answers: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """Answers by question: lens, relevance; single ablations of tokens and heads."""
    effect: Mapping[str, Any] | None = None
    """Effect of the change on predictions and representations."""


def view_page(seen: SentenceAttention, explored: Explored | None = None) -> str:
    """The page that `write_view` writes; with the explorer's results, also its views and changes."""
    scripts = [closed(asset(name)) for name in (*VIEWS, "view.js")]
    explored = explored or Explored()
    payload, blocks = view_payload(seen), view_blocks(seen) | dict(explored.arrays)
    if explored.before is not None:
        payload["before"] = view_payload(explored.before)
        blocks |= {f"before/{name}": array for name, array in view_blocks(explored.before).items()}
    payload["further"] = [name for name in further_views() if explored.answers.get(name)]
    payload |= {"state": explored.state, "change_text": explored.change_text, "answers": explored.answers}
    if explored.state:
        payload["opens"] = "model"  # as the live page does
    if explored.effect is not None:
        payload["effect"] = explored.effect
    return (
        environment()
        .get_template("view.html.jinja")
        .render(
            view=payload,
            blocks={name: packed(array) for name, array in blocks.items()},
            style=Markup(style("style.css", "attention.css", "views.css")),
            scripts=[Markup(script) for script in scripts],
            policy=policy(scripts),
            version=version("infoflow"),
        )
    )


def environment() -> Environment:
    """Templates with automatic escaping."""
    made = Environment(
        loader=PackageLoader("infoflow.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    made.filters["embedded"] = embedded
    return made


def check_view_path(path: Path | str) -> Path:
    """Check that a view's path is a new HTML file, or one that infoflow wrote."""
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--out must name an HTML file, such as view.html. Got {path}.")
    check_replaceable(path)
    return path


def view_payload(seen: SentenceAttention) -> dict[str, Any]:
    """Sentence data for the view scripts: tokens, kinds of attention, layers, heads."""
    sentence = seen.sentence
    return {
        "model": seen.model,
        "text": sentence.text,
        "translation": sentence.translation,
        "own_translation": sentence.own_translation,
        "pair": sentence.pair,
        "readable": not sentence.of_ids,
        "any_special": any(token.special for tokens in sentence.tokens.values() for token in tokens),
        "tokens": {stack: token_payload(tokens) for stack, tokens in sentence.tokens.items()},
        "last": list(sentence.tokens)[-1],
        "predicts": seen.task != "encoder",
        "kinds": [_kind_payload(seen, kind) for kind in seen.kinds],
        "flows": flow_data(seen),
        "further": list(further_views()),
        "mixing": any(layer.mixing is not None for kind in seen.kinds for layer in kind.layers),
    }


def _kind_payload(seen: SentenceAttention, kind: AttentionOfKind) -> dict[str, Any]:
    return {
        "id": f"{kind.stack}/{kind.kind}",
        "label": kind_label(kind.stack, kind.kind),
        "stack": kind.stack,
        "keys": kind.keys_stack,
        "kind": kind.kind,
        "causal": kind.causal,
        "mixing": all(layer.mixing is not None for layer in kind.layers),
        "layers": [_layer_payload(layer) for layer in kind.layers],
        "telling": [{"layer": one.layer, "head": one.head, "told": one.told} for one in telling_heads(seen, kind)],
    }


def _layer_payload(layer: LayerAttention) -> dict[str, Any]:
    return {
        "layer": layer.layer,
        "heads": len(layer.query),
        "groups": len(layer.key),
        "width": layer.query.shape[-1],
        "scaling": layer.scaling,
        "biased": layer.biased,
        "scales": {name: [float(f"{v:.4g}") for v in _scales(vectors)] for name, vectors in _vectors(layer).items()},
    }


def _vectors(layer: LayerAttention) -> dict[str, np.ndarray]:
    return {"query": layer.query, "key": layer.key}


def _scales(vectors: np.ndarray) -> np.ndarray:
    """The largest absolute value of each head."""
    return np.maximum(np.abs(vectors).max(axis=(1, 2)), 1e-12)


def view_blocks(seen: SentenceAttention) -> dict[str, np.ndarray]:
    """Every array of the views, named by kind, layer and content."""
    blocks = {}
    for kind in seen.kinds:
        for layer in kind.layers:
            home = f"{kind.stack}/{kind.kind}/{layer.layer}"
            blocks[f"{home}/weights"] = layer.weights
            blocks[f"{home}/norms"] = layer.value_norms.astype(np.float32)
            for name, vectors in _vectors(layer).items():
                signed = np.rint(127 * vectors / _scales(vectors)[:, None, None]).astype(np.int8)
                blocks[f"{home}/{name}"] = signed
            if layer.mixing is not None:
                blocks[f"{home}/mixing"] = layer.mixing
    return blocks


# Neighbours of some words in one model, as one HTML file that needs only a browser.


_SCRIPTS = ("page.js", "attention.js", "words.js")


def write_word_view(table: pd.DataFrame, model: str, path: Path | str) -> Path:
    """Write the static neighbours of words next to those of their occurrences, with their sentences.

    Args:
        table: `word_neighbours` of one model.
        model: Its name.
        path: One HTML file, readable offline, complete or not written at all.

    Returns:
        The path.
    """
    path = check_view_path(path)
    if table.empty:
        raise UserError(f"There is nothing near these words in {model}: none occurs in the corpus as one token.")
    words = words_payload([(Series(key=model, label=model, slot=0), table.assign(model=model))])
    scripts = [closed(asset(name)) for name in _SCRIPTS]
    environment = Environment(
        loader=PackageLoader("infoflow.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["embedded"] = embedded
    page = environment.get_template("word_view.html.jinja").render(
        model=model,
        words={"packed": packed_json(words.live), "still": words.still, "live": words.live},
        style=Markup(style("style.css", "attention.css", "words.css")),
        scripts=[Markup(script) for script in scripts],
        policy=policy(scripts),
        version=version("infoflow"),
    )
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path
