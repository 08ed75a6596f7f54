"""One sentence's attention in a notebook: a static picture of all heads, and the page of `infoflow view` over it."""

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from infoflow.corpus import printable
from infoflow.heads import AttentionOfKind, SentenceAttention, sentence_attention
from infoflow.models import Model, load_model

from .._theme import DARK, LIGHT
from .._view import Explored, further_answers, view_page, write_view
from ..heads._statistics import kind_label
from ._picture import in_theme, paragraphs, shorter

_HEIGHT = 780  # pixels of the page's frame
_WIDTH = 620  # pixels
_LABELS = 34  # pixels on the left for layer numbers
_GAP = 2  # cells between maps


class View:
    """A model's attention on one sentence."""

    def __init__(
        self, seen: SentenceAttention, answers: Mapping[str, Sequence[Mapping[str, Any]]] | None = None
    ) -> None:
        self.attention, self._answers = seen, answers or {}

    def save(self, path: Path | str) -> Path:
        """Write the page as one offline HTML file, as `infoflow view` does; returns its path.

        Raises:
            UserError: `path` does not end in `.html`, or a file there is not infoflow's.
        """
        return write_view(self.attention, path, self._answers)

    def _repr_html_(self) -> str:
        return attention_shown(self.attention, self._answers)

    def __repr__(self) -> str:
        return _text(self.attention)


def view(
    model: Model | Path | str,
    sentence: str | Sequence[int],
    translation: str | Sequence[int] | None = None,
    *,
    pair: str | None = None,
) -> View:
    """A model's attention on one sentence: inline in a notebook, or as a page with `.save("cat.html")`.

    Args:
        model: A result of `load_model`, or its argument: a folder or a name.
        sentence: Text, or token ids if the model has no tokenizer.
        translation: Input of an encoder–decoder model's decoder; by default the model's own translation.
        pair: A second sentence that an encoder reads after the first: [CLS] first [SEP] second [SEP].

    Raises:
        UserError: The model has no attention, or cannot read the sentence (see `sentence_attention`).
    """
    loaded = model if isinstance(model, Model) else load_model(model)
    seen = sentence_attention(loaded, sentence, translation, pair=pair)
    return View(seen, further_answers(loaded, seen.sentence))


def attention_shown(seen: SentenceAttention, answers: Mapping[str, Sequence[Mapping[str, Any]]] | None = None) -> str:
    """The sentence and an overview of all heads; where frames are allowed, also the page that shows each head."""
    frame = Markup(
        '<iframe sandbox="allow-scripts" title="attention" loading="lazy" srcdoc="{}" '
        'style="box-sizing:border-box;width:100%;height:{}px;border:1px solid #8884"></iframe>'
    ).format(view_page(seen, Explored(answers=answers or {})), _HEIGHT)
    still = Markup("").join(attention_picture(seen, kind) for kind in seen.kinds)
    return str(in_theme(paragraphs(_text(seen)), still, frame))


def _text(seen: SentenceAttention) -> str:
    kinds = ", ".join(
        f"{kind.stack} {kind.kind}: {len(kind.layers)} layers of {len(kind.layers[0].weights)} heads"
        for kind in seen.kinds
        if kind.layers
    )
    return f"How {shorter(seen.model, 60)} attends to “{shorter(printable(seen.sentence.text), 120)}”: {kinds}."


def attention_picture(seen: SentenceAttention, kind: AttentionOfKind) -> Markup:
    """Draw the layers from bottom (0) to top and heads from left to right; each row of a map is a query token.

    Strength is the square root of the weight, as stored, so that small weights are visible.
    """
    if not kind.layers:
        return Markup("")
    heads = max(len(layer.weights) for layer in kind.layers)
    rows = [_row(layer.weights, heads) for layer in reversed(kind.layers)]
    strength = np.concatenate(rows)[_GAP:]
    scale = (_WIDTH - _LABELS) / strength.shape[1]
    height, each = strength.shape[0] * scale, rows[0].shape[0] * scale
    names = "".join(
        f'<text x="{_LABELS - 6}" y="{(index + 0.55) * each:.0f}" text-anchor="end">{layer.layer}</text>'
        for index, layer in enumerate(reversed(kind.layers))
    )
    label = kind_label(kind.stack, kind.kind)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height + 22:.0f}" font-size="11" '
        f'font-family="Arial, sans-serif"><style>{_style()}</style><rect width="100%" height="100%" class="paper"/>'
        f'<text x="{_LABELS}" y="13">{label}: layers upwards, heads to the right</text>'
        f'<g transform="translate(0,20)">{names}<image class="light" {_image(strength, LIGHT, height, scale)}/>'
        f'<image class="dark" {_image(strength, DARK, height, scale)}/></g></svg>'
    )
    address = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    return Markup('<p><img src="{}" width="{}" alt="{}" style="max-width:100%;height:auto"></p>').format(
        address, _WIDTH, f"attention maps of all heads, {label}, of: {seen.sentence.text[:200]}"
    )


def _row(weights: np.ndarray, heads: int) -> np.ndarray:
    """One layer's maps from left to right, with gaps as −1: (head, query, key) bytes of `quantise` → 0..1."""
    num, queries, keys = weights.shape
    maps = np.full((queries + _GAP, heads * (keys + _GAP)), -1.0)
    for head in range(num):
        left = head * (keys + _GAP)
        maps[_GAP:, left : left + keys] = weights[head] / 255.0
    return maps[:, :-_GAP]


def _image(strength: np.ndarray, palette: dict[str, str], height: float, scale: float) -> str:
    """The maps as pixels: strengths interpolate between the two end colours, gaps are transparent."""
    low, high = (np.array([int(palette[name][i : i + 2], 16) for i in (1, 3, 5)]) for name in ("heat-0", "heat-2"))
    shares = np.clip(strength, 0, 1)[..., None]
    colours = np.rint(low + (high - low) * shares).astype(np.uint8)
    pixels = np.concatenate([colours, np.where(strength < 0, 0, 255).astype(np.uint8)[..., None]], axis=-1)
    address = base64.b64encode(_png(pixels)).decode()
    size = f'x="{_LABELS}" width="{strength.shape[1] * scale:.1f}" height="{height:.1f}"'
    return f'{size} preserveAspectRatio="none" style="image-rendering:pixelated" href="data:image/png;base64,{address}"'


def _png(pixels: np.ndarray) -> bytes:
    """Encode (row, column, RGBA) of 8 bits as a PNG."""
    rows, columns, _ = pixels.shape
    lines = np.concatenate([np.zeros((rows, 1), np.uint8), pixels.reshape(rows, -1)], axis=1)

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _style() -> str:
    light, dark = (f".paper{{fill:{palette['paper']}}}text{{fill:{palette['soft']}}}" for palette in (LIGHT, DARK))
    swapped = f"{dark}.dark{{display:inline}}.light{{display:none}}"
    return f"{light}.dark{{display:none}}@media (prefers-color-scheme:dark){{{swapped}}}"
