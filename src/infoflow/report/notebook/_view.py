"""One sentence's attention in a notebook: a static picture of all heads, and the page of `infoflow view` over it."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from infoflow.corpus import printable
from infoflow.heads import SentenceAttention, sentence_attention
from infoflow.models import Model, load_model

from .._view import view_page, write_view
from ._attention_picture import attention_picture
from ._markup import in_theme, paragraphs, shorter

_HEIGHT = 780  # pixels of the page's frame


class View:
    """A model's attention on one sentence."""

    def __init__(self, seen: SentenceAttention) -> None:
        self.attention = seen

    def save(self, path: Path | str) -> Path:
        """Write the page as one offline HTML file, as `infoflow view` does; returns its path.

        Raises:
            UserError: `path` does not end in `.html`, or a file there is not infoflow's.
        """
        return write_view(self.attention, path)

    def _repr_html_(self) -> str:
        return attention_shown(self.attention)

    def __repr__(self) -> str:
        return _told(self.attention)


def view(
    model: Model | Path | str,
    sentence: str | Sequence[int],
    translation: str | Sequence[int] | None = None,
    *,
    mixing: bool = True,
) -> View:
    """A model's attention on one sentence: inline in a notebook, or as a page with `.save("cat.html")`.

    Args:
        model: A result of `load_model`, or its argument: a folder or a name.
        sentence: Text, or token ids if the model has no tokenizer.
        translation: Input of an encoder–decoder model's decoder; by default the model's own translation.
        mixing: Whether to add ALTI's maps; hundreds of tokens take a minute.

    Raises:
        UserError: The model has no attention, or cannot read the sentence (see `sentence_attention`).
    """
    loaded = model if isinstance(model, Model) else load_model(model)
    return View(sentence_attention(loaded, sentence, translation, mixing=mixing, guesses=True))


def attention_shown(seen: SentenceAttention) -> str:
    """The sentence and an overview of all heads; where frames are allowed, also the page that shows each head."""
    frame = Markup(
        '<iframe sandbox="allow-scripts" title="attention" loading="lazy" srcdoc="{}" '
        'style="box-sizing:border-box;width:100%;height:{}px;border:1px solid #8884"></iframe>'
    ).format(view_page(seen), _HEIGHT)
    still = Markup("").join(attention_picture(seen, kind) for kind in seen.kinds)
    return str(in_theme(paragraphs(_told(seen)), still, frame))


def _told(seen: SentenceAttention) -> str:
    kinds = ", ".join(
        f"{kind.stack} {kind.kind}: {len(kind.layers)} layers of {len(kind.layers[0].weights)} heads"
        for kind in seen.kinds
        if kind.layers
    )
    return f"How {shorter(seen.model, 60)} attends to “{shorter(printable(seen.sentence.text), 120)}”: {kinds}."
