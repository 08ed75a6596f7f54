"""One sentence's attention, or the neighbours of some words, as one HTML file that opens in any browser."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from infoflow._subjects import provided
from infoflow.corpus import printable
from infoflow.foundation import UserError, atomic_write, version
from infoflow.heads import (
    AttentionOfKind,
    LayerAttention,
    ReadSentence,
    ReadToken,
    SentenceAttention,
    sentence_lens,
    telling_heads,
)
from infoflow.models import Model

from ._embedding import asset, check_replaceable, closed, environment, packed, policy, style
from ._theme import Series
from .heads._statistics import kind_label
from .representations._words import words_payload


def token_payload(tokens: tuple[ReadToken, ...]) -> list[dict[str, Any]]:
    """Text and role of each token; for a pair of sentences also its sentence, 0 or 1."""
    return [
        {"text": printable(token.text) or "·", "special": token.special}
        | ({} if token.segment is None else {"segment": token.segment})
        for token in tokens
    ]


VIEWS = ("page.js", "attention.js", "sentence_view.js", "predictions.js", "effects.js")
"""Scripts of every page about one sentence."""

ViewAnswer = Callable[[Model, ReadSentence, Mapping[str, str]], Mapping[str, Any]]
"""Computes the data of a subject's own view of a sentence; the mapping holds choices made on the page, if any."""


def further_views() -> dict[str, ViewAnswer]:
    """The functions that compute data for the subjects' own views, by the view's name; `NAME_view.js` draws it."""
    return {name: answer for own in provided("view", "ANSWERS") for name, answer in own.items()}


def view_scripts(names: Iterable[str]) -> list[str]:
    """The scripts of a page that shows these of the subjects' own views."""
    return [closed(asset(name)) for name in (*VIEWS, *(f"{name}_view.js" for name in names))]


def further_answers(model: Model, read: ReadSentence) -> dict[str, list[Mapping[str, Any]]]:
    """Data of the page besides attention: the lens, and the views of subjects; [] where the model has none."""
    found = {}
    for name, answer in {"lens": lambda model, read, _: sentence_lens(model, read), **further_views()}.items():
        try:
            found[name] = [answer(model, read, {})]
        except UserError:
            found[name] = []
    return found


def write_view(
    seen: SentenceAttention, path: Path | str, answers: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
) -> Path:
    """Write the views of one sentence: all heads, one head, queries and keys, and the views of `answers`.

    One HTML file, readable offline, complete or not written at all. Returns its path.

    Args:
        seen: The sentence's attention.
        path: The file.
        answers: Data of further views, from `further_answers`.
    """
    path = check_view_path(path)
    return _written(view_page(seen, Explored(answers=answers or {})), path)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Explored:
    """The live explorer's results for a sentence, in addition to its attention."""

    state: str = ""  # initial choices of the page, in the format of an address fragment after `#`
    before: SentenceAttention | None = None  # the sentence's attention in the unchanged model
    change_text: str = ""  # what was ablated, in words
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)  # further arrays by name: the change of every weight
    # Answers by question: lens, relevance; single ablations of tokens and heads.
    answers: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    effect: Mapping[str, Any] | None = None  # effect of the change on predictions and representations


def view_page(seen: SentenceAttention, explored: Explored | None = None) -> str:
    """The page that `write_view` writes; with the explorer's results, also with its views and changes."""
    explored = explored or Explored()
    further = [name for name in further_views() if explored.answers.get(name)]
    scripts = [*view_scripts(further), closed(asset("view.js"))]
    payload, blocks = view_payload(seen), view_blocks(seen) | dict(explored.arrays)
    if explored.before is not None:
        payload["before"] = view_payload(explored.before)
        blocks |= {f"before/{name}": array for name, array in view_blocks(explored.before).items()}
    payload |= {
        "further": further,
        "state": explored.state,
        "change_text": explored.change_text,
        "answers": explored.answers,
    }
    if explored.state:
        payload["opens"] = "model"  # as the live page does
    if explored.effect is not None:
        payload["effect"] = explored.effect
    arrays = {name: packed(array) for name, array in blocks.items()}
    return _page("view.html.jinja", scripts, "views.css", view=payload, blocks=arrays)


def _page(template: str, scripts: list[str], sheet: str, **content: Any) -> str:
    return (
        environment()
        .get_template(template)
        .render(
            **content,
            style=Markup(style("style.css", "attention.css", sheet)),
            scripts=[Markup(script) for script in scripts],
            policy=policy(scripts),
            version=version("infoflow"),
        )
    )


def _written(page: str, path: Path) -> Path:
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


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
        "further": list(further_views()),
    }


def _kind_payload(seen: SentenceAttention, kind: AttentionOfKind) -> dict[str, Any]:
    return {
        "id": f"{kind.stack}/{kind.kind}",
        "label": kind_label(kind.stack, kind.kind),
        "stack": kind.stack,
        "keys": kind.keys_stack,
        "kind": kind.kind,
        "causal": kind.causal,
        "layers": [_layer_payload(layer) for layer in kind.layers],
        "telling": [
            {"layer": one.layer, "head": one.head, "text": one.description} for one in telling_heads(seen, kind)
        ],
    }


def _layer_payload(layer: LayerAttention) -> dict[str, Any]:
    return {
        "layer": layer.layer,
        "heads": len(layer.query),
        "groups": len(layer.key),
        "width": layer.query.shape[-1],
        "scaling": layer.scaling,
        "biased": layer.biased,
        "scales": {name: [float(f"{v:.4g}") for v in _scales(getattr(layer, name))] for name in ("query", "key")},
    }


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
            for name, vectors in (("query", layer.query), ("key", layer.key)):
                blocks[f"{home}/{name}"] = np.rint(127 * vectors / _scales(vectors)[:, None, None]).astype(np.int8)
    return blocks


_SCRIPTS = ("page.js", "attention.js", "words.js")


def write_word_view(table: pd.DataFrame, model: str, path: Path | str) -> Path:
    """Write the nearest neighbours of words' static vectors, and of the words' occurrences in their sentences.

    Args:
        table: `word_neighbours` of one model.
        model: Its name.
        path: One HTML file, readable offline, complete or not written at all.

    Returns:
        The path.
    """
    path = check_view_path(path)
    if table.empty:
        raise UserError(f"These words have no neighbours in {model}: none of them occurs in the corpus as one token.")
    words, _ = words_payload([(Series(key=model, label=model, slot=0), table.assign(model=model))])
    scripts = [closed(asset(name)) for name in _SCRIPTS]
    return _written(_page("word_view.html.jinja", scripts, "words.css", model=model, words=words), path)
