"""One sentence's attention as one HTML file that needs nothing but a browser."""

from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from infoflow.foundation import UserError, atomic_write, version
from infoflow.heads import AttentionOfKind, LayerAttention, ReadToken, SentenceAttention

from ._binary import packed
from ._embedding import asset, closed, embedded, policy, style
from ._replaceable import check_replaceable
from .heads._names import kind_label

_SCRIPTS = ("page.js", "attention.js", "view.js")


def write_view(seen: SentenceAttention, path: Path | str) -> Path:
    """Write the attention views of one sentence: one head as lines and maps, all heads, queries and keys.

    One HTML file that is readable offline, complete or not at all. Returns its path.

    Raises:
        UserError: `path` is no `.html`, or another's file.
    """
    path = check_view_path(path)
    page = view_page(seen)
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return path


def view_page(seen: SentenceAttention) -> str:
    """The page that `write_view` writes."""
    scripts = [closed(asset(name)) for name in _SCRIPTS]
    environment = Environment(
        loader=PackageLoader("infoflow.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["embedded"] = embedded
    return environment.get_template("view.html.jinja").render(
        view=_payload(seen),
        blocks={name: packed(array) for name, array in _blocks(seen).items()},
        style=Markup(style("style.css", "attention.css")),
        scripts=[Markup(script) for script in scripts],
        policy=policy(scripts),
        version=version("infoflow"),
    )


def check_view_path(path: Path | str) -> Path:
    """Where a view may be written: a new HTML file, or an earlier one of infoflow's.

    Raises:
        UserError: It is none.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--out must name an HTML file, such as view.html. Got {path}.")
    check_replaceable(path)
    return path


def token_payload(tokens: tuple[ReadToken, ...]) -> list[dict[str, Any]]:
    """Text and role of each token."""
    return [{"text": token.text, "special": token.special} for token in tokens]


def _payload(seen: SentenceAttention) -> dict[str, Any]:
    sentence = seen.sentence
    return {
        "model": seen.model,
        "text": sentence.text,
        "translation": sentence.translation,
        "own_translation": sentence.own_translation,
        "readable": not sentence.of_ids,
        "any_special": any(token.special for tokens in sentence.tokens.values() for token in tokens),
        "tokens": {stack: token_payload(tokens) for stack, tokens in sentence.tokens.items()},
        "kinds": [_kind_payload(kind) for kind in seen.kinds],
        "mixing": any(layer.mixing is not None for kind in seen.kinds for layer in kind.layers),
    }


def _kind_payload(kind: AttentionOfKind) -> dict[str, Any]:
    return {
        "id": f"{kind.stack}/{kind.kind}",
        "label": kind_label(kind.stack, kind.kind),
        "stack": kind.stack,
        "keys": kind.keys_stack,
        "kind": kind.kind,
        "causal": kind.causal,
        "mixing": all(layer.mixing is not None for layer in kind.layers),
        "layers": [_layer_payload(layer) for layer in kind.layers],
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
    """The largest size of a number of each head."""
    return np.maximum(np.abs(vectors).max(axis=(1, 2)), 1e-12)


def _blocks(seen: SentenceAttention) -> dict[str, np.ndarray]:
    """Every array of the page by its name: kind, layer and what it is."""
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
