"""`infoflow prune`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from infoflow.cli._options import Reading, counts_or_shares, limited, names_in
from infoflow.cli._session import (
    COMMON,
    Device,
    Names,
    Seed,
    Session,
    TextColumn,
    TranslationColumn,
    estimate,
    names_of,
    run_folder,
    run_name,
    show,
    show_path,
    show_table,
    show_text,
    working,
)

if TYPE_CHECKING:
    from .measures import Pruned, PrunedToEach


def prune(
    model: str,
    /,
    *,
    keep: Annotated[tuple[str, ...], Parameter(converter=counts_or_shares, negative=())],
    by: Literal["importance", "confidence", "relevance", "random"] = "importance",
    kinds: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    corpus: str = "tatoeba-en-fr",
    text_column: TextColumn = None,
    translation_column: TranslationColumn = None,
    sentences: Annotated[int, Parameter(converter=limited("Several"))] = 1000,
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    name: Names = (),
    recover: Annotated[int, Parameter(converter=limited("CountOrNone"))] = 0,
    recover_rate: Annotated[float, Parameter(converter=limited("LearningRate"))] = 1e-4,
    seed: Seed = 0,
    device: Device = None,
    masked: Path | None = None,
    out: Annotated[Path | None, Parameter(group=COMMON)] = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Keep the most important attention heads and remove the others. --recover trains the smaller model further.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        keep: Heads to keep in the whole model: a number, or a share such as 50%. Several, separated by commas, give
            one smaller model each, and a page with the curve.
        by: Score that ranks the heads.
        kinds: Kinds of attention to prune: encoder-self, decoder-self, decoder-cross. Default: all.
        corpus: A file (text, .tsv, ...), two aligned files (a.en,a.fr), tatoeba-en-fr, grammar, grammar:SIZE, or
            hf:NAME. One half ranks the heads, the other scores the models.
        sentences: Maximum number of sentences, chosen by hash.
        recover: Updates of further training of each smaller model, on all sentences that are not used to score it.
        recover_rate: Highest learning rate of this training.
        seed: Seed of the random order (--by random), and of further training.
        masked: Folder for a copy of the full model with removed heads set to zero, which plain transformers can
            load.
        out: Folder for the smaller model, new or written by this command. Default: a folder under runs/.
    """
    with working(session, model):
        from infoflow.corpus import load_corpus

        from .measures import PrunedToEach
        from .stages._prune import prune as prune_model

        chosen = names_in("--kinds", kinds)  # before a model is loaded
        pruned = prune_model(
            reading.load(model, device, *names_of([model], name)),
            keep if len(keep) != 1 else keep[0],
            load_corpus(corpus, text_column=text_column, translation_column=translation_column),
            out=run_folder(out, run_name("prune", *name or [model])),
            source=model,
            by=by,
            kinds=chosen,
            sentences=sentences,
            seed=seed,
            masked=masked,
            recover=recover,
            recover_rate=recover_rate,
        )
        _show_each(pruned) if isinstance(pruned, PrunedToEach) else _show(pruned)


def _show_each(found: "PrunedToEach") -> None:
    """Print a row for each number of heads."""
    from infoflow.foundation import said_size

    metrics = list(dict.fromkeys(found.quality["metric"]))
    rows = []
    for number, point, random in zip(found.keep, found.points, found.random_loss, strict=True):
        scores = point.quality.set_index("metric")
        cells = [f"{scores.loc[one, 'after']:.4f} ({scores.loc[one, 'change']:+.4f})" for one in metrics]
        last = point.speed.iloc[-1]
        size = [f"{int(last['parameters']):,}", said_size(1e6 * last["megabytes"]), f"{last['speed-up']:.2f}"]
        rows.append([str(number), *cells, f"{random:.4f}", *size])
    heads = [f"{one} (change)" for one in metrics]
    show_table(["heads", *heads, f"{metrics[0]}, random heads", "parameters", "size", "speed-up"], rows)
    show_path("Pruned models", found.folder / "keep-HEADS")
    if found.points[0].masked is not None:
        show_path("Masked models", found.points[0].masked.parent / "keep-HEADS")
    if found.report is not None:
        show_path("Report", found.report)


def _show(pruned: "Pruned") -> None:
    from infoflow.corpus import printable
    from infoflow.foundation import said_size

    rows = []
    for row in pruned.quality.to_dict("records"):
        change = estimate(row["change"], row["low"], row["high"], digits=4, sign="+")
        rows.append([row["metric"], f"{row['before']:.4f}", f"{row['after']:.4f}", change, f"{row['sentences']:,}"])
    show_table(["metric", "before", "after", "change [95%]", "sentences"], rows)
    for row in pruned.samples.to_dict("records"):
        show(
            "\n".join(f"{name:9} {printable(row[name])}" for name in ("source", "reference", "before", "after")) + "\n"
        )
    rows = []
    for r in pruned.speed.to_dict("records"):
        sizes = [str(r["heads"]), f"{r['parameters']:,}", said_size(1e6 * r["megabytes"])]
        rows.append([r["model"], *sizes, str(r["batch"]), f"{r['milliseconds']:.1f}", f"{r['speed-up']:.2f}"])
    show_table(["model", "heads", "parameters", "size", "batch", "ms", "speed-up"], rows)
    left = pruned.model.anatomy.attentions()
    show_text("Heads left: " + ", ".join(f"{a.stack} {a.kind} {a.layer}: {a.num_heads}" for a in left))
    show_path("Pruned model", pruned.folder)
    if pruned.masked is not None:
        show_path("Masked model", pruned.masked)
