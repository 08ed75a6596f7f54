"""`infoflow predict`."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from . import _session as cli
from ._options import Reading, limited

if TYPE_CHECKING:
    import pandas as pd

_CELL = 44  # characters of a cell; two cells and the layer fit into 100 columns


def predict(
    model: str,
    text: str,
    /,
    *,
    tokens: Annotated[
        int | None,
        Parameter(
            converter=limited("Count"),
            help="Maximum tokens to write. Default: 20; for an encoder–decoder, depends on the text.",
        ),
    ] = None,
    temperature: Annotated[
        float,
        Parameter(
            converter=limited("Weight"), help="0: always the most likely token; above 0, tokens are drawn at random."
        ),
    ] = 0.0,
    top: Annotated[int, Parameter(converter=limited("Count"), help="Words shown per layer, as far as they fit.")] = 3,
    control: Annotated[bool, Parameter(help="Also show the same architecture with random weights.")] = True,
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    seed: Annotated[cli.Seed, Parameter(help="Seed of the draws and of the random weights.")] = 0,
    device: cli.Device = None,
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Show what a model and each of its layers predict: words for blanks, a continuation, a translation or a summary.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        text: For a masked LM with ___ for each blank: "Paris is the capital of ___ ."
    """
    with cli.working(session, model):
        from infoflow.foundation import UserError, current_display
        from infoflow.studies import generate, predict_words

        loaded = reading.load(model, device, *cli.names_of([model]))
        writes = loaded.task in ("causal-lm", "seq2seq")
        if not writes:
            frame = predict_words(loaded, text, top=top, control=control, seed=seed)
        else:
            written = generate(loaded, text, tokens=tokens, temperature=temperature, seed=seed)
            cli.show(f"{text}{written}\n" if loaded.task == "causal-lm" else f"{written}\n")
            try:
                frame = predict_words(loaded, text, top=top, control=control, seed=seed)
            except UserError as error:  # the model's states cannot be read as predictions
                current_display().warn(str(error))
                return
        for blank, rows in frame.groupby("blank"):
            if int(blank) > 1:
                cli.show()
            title = "First token" if writes else f"Blank {blank} of {frame['blank'].max()}"
            _show_layers(rows, f"{title}, by layer (0: embeddings)")


def _show_layers(frame: "pd.DataFrame", title: str) -> None:
    kinds = sorted(set(frame["trained"]), reverse=True)
    rows = [
        [str(layer), *(_words(one[one["trained"] == kind]) for kind in kinds)] for layer, one in frame.groupby("layer")
    ]
    cli.show_table(["layer", *(["trained", "untrained"][: len(kinds)])], rows, title)


def _words(rows: "pd.DataFrame") -> str:
    """As many words as fit, with their probabilities."""
    words = [
        f"{_shorter(row.token)} {100 * row.probability:.{1 if row.probability < 0.0995 else 0}f}%"
        for row in rows.itertuples()
    ]
    while len(words) > 1 and len("; ".join(words)) > _CELL:
        words.pop()
    return "; ".join(words)


def _shorter(token: str) -> str:
    return token if len(token) <= 30 else f"{token[:29]}…"
