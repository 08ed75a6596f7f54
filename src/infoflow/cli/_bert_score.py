"""`infoflow bert-score`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ._measuring import run_name
from ._options import limited, names_in
from ._reading import Reading
from ._session import Device, Out, Seed, Session, run_folder, working
from ._show import estimate, show, show_path, show_table

if TYPE_CHECKING:
    import pandas as pd


def bert_score(
    *models: str,
    pairs: Annotated[
        Path,
        Parameter(
            help="Candidate, reference and optionally a human score, tab-separated (.tsv), or objects with these "
            "names (.jsonl); .gz too."
        ),
    ],
    columns: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            show_default=False,
            help="Columns of candidate, reference and score: names, or numbers from 1, separated by commas.",
        ),
    ] = (),
    layer: Annotated[
        int | None, Parameter(converter=limited("CountOrNone"), help="Layer to score; 0: embeddings. Default: all.")
    ] = None,
    idf: Annotated[bool, Parameter(negative=(), help="Give rare tokens of the references more weight.")] = False,
    rescale: Annotated[
        bool, Parameter(negative=(), help="Rescale scores per layer: 0 for random pairs, 1 for identical texts.")
    ] = False,
    baseline_pairs: Annotated[
        int, Parameter(converter=limited("Count"), help="Number of random pairs of these texts for the baseline.")
    ] = 1000,
    control: Annotated[bool, Parameter(help="Also score with the same architecture with random weights.")] = True,
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    seed: Annotated[Seed, Parameter(help="Seed of the random weights.")] = 0,
    device: Device = None,
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Score pairs of texts with each layer (BERTScore), and compare with random pairs and human scores.

    Args:
        models: Folders that save_pretrained wrote, .gguf files, or names on the model hub.
    """
    with working(session):
        from infoflow.studies import score_pairs

        run = score_pairs(
            list(models),
            pairs,
            run_folder(out, run_name("bert-score", *models)),
            columns=names_in("--columns", columns),
            layer=layer,
            idf=idf,
            rescale=rescale,
            baseline_pairs=baseline_pairs,
            control=control,
            tokenizer=reading.tokenizer,
            **reading.marks,
            device=device or "auto",
            seed=seed,
        )
        means, agreement = run.tables["bert_score_layers"], run.tables.get("bert_score")
        for name in dict.fromkeys(means["model"]):
            _show(means[means["model"] == name], None if agreement is None else agreement[agreement["model"] == name])
        if agreement is None:
            show("There are no human scores, so these pairs do not show which layer is best.")
        show_path("Tables", run.path / "tables")
        show_path("Report", run.path / "report.html")


def _show(means: "pd.DataFrame", agreement: "pd.DataFrame | None") -> None:
    """A line for each layer: mean scores, random pairs, and agreement with people beside permuted scores."""
    own, twin = means[means["trained"]], means[~means["trained"]]
    rescaled = " rescaled" * bool(own["rescaled"].any())
    columns = ["layer", f"precision{rescaled}", f"recall{rescaled}", f"F{rescaled} [95% interval]", "random pairs"]
    columns += ["untrained F"] * (len(twin) > 0)
    known = agreement is not None
    columns += ["correlation with human scores [95% interval]", "permuted"] * known
    rows = []
    for layer in sorted(set(own["layer"])):
        at = {name: _one(own, layer, name) for name in ("precision", "recall", "f")}
        row = [str(layer), *(f"{at[name]['value']:.3f}" for name in ("precision", "recall"))]
        row += [estimate(at["f"]["value"], at["f"]["low"], at["f"]["high"]), f"{at['f']['random']:.3f}"]
        row += [f"{_one(twin, layer, 'f')['value']:.3f}"] if len(twin) else []
        if agreement is not None:
            trained = agreement[agreement["trained"]]
            human, permuted = (_one(trained[trained["labels"] == one], layer, "f") for one in ("human", "permuted"))
            row += [estimate(human["value"], human["low"], human["high"]), f"{permuted['value']:.3f}"]
        rows.append(row)
    show_table(columns, rows, f"{own['model'].iloc[0]}: {int(own['count'].iloc[0]):,} pairs, BERTScore by layer")
    show()


def _one(frame: "pd.DataFrame", layer: int, score: str) -> dict:
    return frame[(frame["layer"] == layer) & (frame["score"] == score)].iloc[0].to_dict()
