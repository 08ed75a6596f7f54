"""`infoflow fill-in`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from infoflow.cli import _session as cli
from infoflow.cli._options import Reading, limited, names_in

if TYPE_CHECKING:
    import pandas as pd

    from infoflow.foundation import UserError
    from infoflow.models import Model
    from infoflow.results import RunFolder

    from ..measures import Facts, FillInOptions

_KIND = "fill-in"


def fill_in(
    *models: str,
    facts: Annotated[
        Path,
        Parameter(
            help="File of relation, subject and object: tab-separated (.tsv), or JSON with these keys (.jsonl); .gz "
            "too. A fourth column may hold a template. Or a folder of such files, such as LAMA's with LPAQA's prompts."
        ),
    ],
    templates: Annotated[
        tuple[Path, ...],
        Parameter(
            negative=(),
            show_default=False,
            help="File of prompts: family, relation and template, tab-separated or .jsonl. May be repeated.",
        ),
    ] = (),
    template: Annotated[
        str,
        Parameter(
            show_default=False,
            help='Template if a relation has none, such as "[X] was born in [Y] .": [X] is the subject.',
        ),
    ] = "",
    training_facts: Annotated[
        Path | None, Parameter(help="Facts about other subjects, used to select and weight prompts.")
    ] = None,
    prompts: Annotated[
        tuple[str, ...],
        Parameter(
            negative=(),
            show_default=False,
            help="Prompt families, such as manual,mined. Default: each family, and all together.",
        ),
    ] = (),
    facts_per_relation: Annotated[
        int, Parameter(converter=limited("CountOrNone"), help="Maximum facts per relation, chosen by hash; 0: all.")
    ] = 200,
    prompts_per_family: Annotated[
        int,
        Parameter(converter=limited("CountOrNone"), help="Prompts per relation and family, the first ones; 0: all."),
    ] = 10,
    lens: Annotated[
        Path | None, Parameter(help="A tuned lens (from TunedLens.save) in addition to the logit lens; for one model.")
    ] = None,
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    name: cli.Names = (),
    device: cli.Device = None,
    anonymous: cli.Anonymous = False,
    out: cli.Out = None,
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Show which facts a model fills in, layer by layer: "Paris is the capital of [Y] ."

    Several models choose among the same candidates: objects that are a single token in all of them.

    Args:
        models: Folders that save_pretrained wrote, .gguf files, or names on the model hub.
    """
    with cli.working(session, *models):
        from infoflow.report import anonymize, check_output, write_report
        from infoflow.results import RunFolder

        from ..measures import FillInOptions, read_facts

        _check(models, lens)
        read = read_facts(facts, prompts=templates, train=training_facts, template=template)
        options = FillInOptions(
            prompts=names_in("--prompts", prompts),
            facts_per_relation=facts_per_relation,
            prompts_per_family=prompts_per_family,
        )
        folder = cli.run_folder(out, cli.run_name("fill-in", *name or models))
        check_output(RunFolder(folder), _KIND)
        names = dict(zip(models, cli.names_of(models, name, anonymous), strict=True))
        loaded = {one: reading.load(one, device, names[one]) for one in models}
        frame = _answers(loaded, read, options, lens)
        frame["model"] = frame["model"].map(names)
        run = _written(folder, frame, read, {names[path]: model for path, model in loaded.items()}, models)
        if anonymous:
            anonymize(run)
        for one in names.values():
            _show(frame[frame["model"] == one], one if len(models) > 1 else "")
        cli.show_path("Tables", run.path / "tables")
        cli.show_path("Report", write_report(run))


def _check(models: tuple[str, ...], lens: Path | None) -> None:
    if not models:
        raise _user_error("fill-in needs a model. Got none. Name a folder, a .gguf file, or a model on the hub.")
    if len(set(models)) < len(models):
        raise _user_error(f"Models must be distinct. Got {', '.join(models)}.")
    if lens is not None and len(models) > 1:
        raise _user_error(f"--lens applies to the one model that it was trained on. Got {len(models)} models.")


def _user_error(text: str) -> "UserError":
    from infoflow.foundation import UserError

    return UserError(text)


def _answers(models: "dict[str, Model]", facts: "Facts", options: "FillInOptions", lens: Path | None) -> "pd.DataFrame":
    import pandas as pd

    from infoflow.foundation import current_display
    from infoflow.representations import TunedLens
    from infoflow.training import trained_objective

    from ..measures import common_objects, fill_in

    common = common_objects(list(models.values()), facts.objects)
    frames = []
    with current_display().progress("Filling in", len(models)) as progress:
        for name, model in models.items():
            tuned = TunedLens.load(lens, model) if lens is not None else None
            found = fill_in(model, facts, options, vocabulary=common, lens=tuned, trained=trained_objective(name))
            frames.append(found.assign(model=name))
            progress.advance(1)
    return pd.concat(frames, ignore_index=True)


def _written(
    folder: Path, frame: "pd.DataFrame", facts: "Facts", loaded: "dict[str, Model]", paths: tuple[str, ...]
) -> "RunFolder":
    from infoflow.flow import MODEL
    from infoflow.foundation import absolute, provenance
    from infoflow.results import RunFolder

    from ..measures import FILL_IN

    run = RunFolder(folder)
    run.update(
        kind=_KIND,
        title="Facts filled in",
        anonymous=False,
        plan={
            "models": [str(absolute(path)) if Path(path).exists() else path for path in paths],
            "facts": facts.digest,
            "left_out": dict(facts.left_out),
        },
        models=[
            {"name": name, "parameters": sum(one.numel() for one in model.module.parameters())}
            for name, model in loaded.items()
        ],
        provenance=provenance(),
    )
    run.tables.write(frame, FILL_IN.with_keys(MODEL))
    return run


def _show(frame: "pd.DataFrame", name: str) -> None:
    """Print the curve over layers, then each relation at the top and at its best layer."""
    macro = frame[frame["average"] == "macro"]
    variants = list(dict.fromkeys(zip(macro["lens"], macro["prompts"], macro["ensemble"], strict=True)))
    top = int(macro["layer"].max())
    first = macro[macro["layer"] == top].iloc[0]
    cli.show(f"{name}: " * bool(name) + f"{first['vocabulary']:,} candidates; {first['left_out']:,} facts left out.")
    columns = [" ".join([*([lens] if lens != "logit" else []), family, how]) for lens, family, how in variants]
    rows = [
        [str(layer), *(_cell(macro[(macro["layer"] == layer) & _is(macro, way)]) for way in variants)]
        for layer in range(top + 1)
    ]
    cli.show_table(["layer", *columns], rows, "P@1 by layer, mean over relations [95%]")
    rows = []
    for way, column in zip(variants, columns, strict=True):
        last = frame[_is(frame, way) & (frame["layer"] == top)]
        for row in last[last["average"] != "relation"].to_dict("records"):
            value = cli.estimate(row["value"], row["low"], row["high"])
            rows.append([column, row["average"], value, *_controls(row)])
    cli.show()
    cli.show_table(["prompts", "average", "P@1", "majority", "no subject", "facts"], rows, "At the top layer")
    cli.show()
    _show_relations(frame[_is(frame, variants[0]) & (frame["average"] == "relation")], top, columns[0])


def _is(frame: "pd.DataFrame", variant: tuple[str, str, str]) -> "pd.Series":
    lens, family, how = variant
    return (frame["lens"] == lens) & (frame["prompts"] == family) & (frame["ensemble"] == how)


def _cell(rows: "pd.DataFrame") -> str:
    row = rows.iloc[0]
    return cli.estimate(row["value"], row["low"], row["high"])


def _controls(row: dict) -> list[str]:
    blind = row["without_subject"]
    return [f"{row['baseline']:.3f}", "–" if blind != blind else f"{blind:.3f}", f"{row['count']:,}"]


def _best_layer(relation: "pd.DataFrame") -> str:
    """The layer with the highest P@1 on one half of the facts, and its P@1 on the other half."""
    from infoflow.report import chosen
    from infoflow.results import Samples

    best = chosen({layer: Samples.of(rows, scale="share") for layer, rows in relation.groupby("layer")})
    return "–" if best is None else f"{best.key} ({best.estimate.value:.3f})"


def _show_relations(frame: "pd.DataFrame", top: int, column: str) -> None:
    rows = []
    for relation, own in frame.groupby("relation", sort=False):
        last = own[own["layer"] == top].iloc[0].to_dict()
        value = cli.estimate(last["value"], last["low"], last["high"])
        rows.append([str(relation), value, *_controls(last), _best_layer(own)])
    headings = ["relation", "P@1 at the top", "majority", "no subject", "facts", "best layer"]
    cli.show_table(headings, rows, f"Relations, prompts: {column}")
