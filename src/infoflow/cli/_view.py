"""`infoflow view`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ._measuring import run_name
from ._reading import Reading
from ._session import COMMON, Device, Session, TextColumn, working
from ._show import show_path

if TYPE_CHECKING:
    from infoflow.models import Model

_OCCURRENCES = 12  # of each word


def view(
    model: str,
    sentence: str,
    translation: str | None = None,
    /,
    *,
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    words: Annotated[
        str | None,
        Parameter(help="Corpus in which to draw the neighbours of the words in SENTENCE, instead of attention."),
    ] = None,
    text_column: TextColumn = None,
    mixing: Annotated[bool, Parameter(help="Include ALTI maps; hundreds of tokens take a minute.")] = True,
    device: Device = None,
    out: Annotated[Path | None, Parameter(group=COMMON, help="HTML file. Default: view-MODEL.html.")] = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Draw how a model attends to one sentence, or with --words the neighbours of words: one HTML file that opens
    offline.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        sentence: Text between quotes; for a model without tokenizer, token ids such as "5 6 7".
        translation: Input for the decoder of an encoder–decoder model. Default: the model's own translation.
    """
    with working(session):
        from infoflow.foundation import UserError
        from infoflow.heads import sentence_attention
        from infoflow.report import check_view_path, write_view

        if text_column and words is None:
            raise UserError("--text-column names a column of the corpus of --words. Got no --words. Add it.")
        path = check_view_path(out or Path(f"{run_name('view', model)}.html"))
        loaded = replace(reading.load(model, device), name=run_name("view", model)[len("view-") :])
        if words is not None:
            show_path("View", _draw_words(loaded, sentence, words, text_column, path))
            return
        if lacking := loaded.anatomy.lacks():
            raise UserError(
                f"{loaded.name} has no attention to draw: {lacking}. Use --words CORPUS to see neighbours of words."
            )
        seen = sentence_attention(loaded, sentence, translation, mixing=mixing, guesses=True)
        show_path("View", write_view(seen, path))


def _draw_words(model: "Model", named: str, name: str, text_column: str | None, path: Path) -> Path:
    from infoflow.corpus import load_corpus
    from infoflow.flow import measure
    from infoflow.report import write_word_view
    from infoflow.representations import WORD_NEIGHBOURS, WordNeighbours

    wanted = WordNeighbours(named=tuple(named.split()), occurrences=_OCCURRENCES)
    corpus = load_corpus(name, text_column=text_column)
    return write_word_view(measure(model, corpus, [wanted])[WORD_NEIGHBOURS.name], model.name, path)
