"""`infoflow probe` and `infoflow bert-score`."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from infoflow.cli import _session as cli
from infoflow.cli._analyze import Measuring
from infoflow.cli._options import Reading, limited, names_in

if TYPE_CHECKING:
    import pandas as pd


Named = Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)]


def probe(
    model: str,
    /,
    *,
    task: Named = (),
    probe: Named = (),
    test: Annotated[str | None, Parameter(help="Corpus to test on. Default: a fifth of the training corpus.")] = None,
    tags: Named = (),
    labels: str | None = None,
    label_column: str | None = None,
    bad_column: str | None = None,
    only: Named = (),
    measuring: Measuring = Measuring(),  # noqa: B008 (frozen)
    out: cli.Out = None,
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Show what each layer encodes, compared with the majority class, random weights and a control task.

    Tags and trees come from a CoNLL-U file, a tagged file or the corpus grammar; without --task the tasks are listed.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        task: Probing tasks, separated by commas: upos, arc, ner-spans, length, minimal-pairs, a column of tags...
        probe: linear, mlp, edge, online, variational, structural, attention, separated by commas. Default: linear.
        tags: Names of the columns of a tagged file, in order. Default: the requested tag.
        labels: A file with one sentence label per line, for the task sentence-label.
        label_column: Column of sentence labels in a table.
        bad_column: Column of unacceptable sentences in a table, for minimal-pairs.
        only: Tables to compute, separated by commas. Default: all of these probes.
    """
    with cli.working(session, model):
        from ..stages import probe as probe_model

        options = replace(
            measuring.options(only),
            test=test or "",
            tags=names_in("--tags", tags),
            labels=labels or "",
            label_column=label_column or "",
            bad_column=bad_column or "",
        )
        tasks, probes = names_in("--task", task), names_in("--probe", probe)
        run = probe_model(
            model,
            tasks,
            probes,
            options=options,
            out=cli.run_folder(out, cli.run_name("probe", *measuring.name or [model])),
        )
        wanted = run.folder.read()["plan"]["options"]["only"]
        frames = {name: run.tables[name] for name in wanted if name in run.tables}
        for name, show_one in _SHOWN.items():
            if name in frames and not frames[name].empty:
                show_one(frames[name])
        if empty := [name for name in wanted if name not in frames or frames[name].empty]:
            cli.show(f"Empty tables: {', '.join(empty)}. The report says which measure was skipped and why.")
        cli.show_path("Tables", run.path / "tables")
        cli.show_path("Report", run.path / "report.html")
        cli.require_all([run])


_Rows = dict[Any, dict[str, Any]]
_Columns = dict[str, tuple[Callable[[dict[str, Any]], str], _Rows]]  # by heading: how a row is shown, and the rows


def _by(frame: "pd.DataFrame", key: str = "layer", **chosen: Any) -> _Rows:
    rows = frame.to_dict("records")
    return {row[key]: row for row in rows if all(row[name] == value for name, value in chosen.items())}


def _interval(row: dict[str, Any]) -> str:
    return cli.estimate(row["value"], row["low"], row["high"])


def _number(name: str, how: str = ".3f") -> Callable[[dict[str, Any]], str]:
    return lambda row: f"{row[name]:{how}}"


_VALUE, _BASELINE = _number("value"), _number("baseline")


def _parts(frame: "pd.DataFrame", *names: str) -> Iterator[tuple[list[str], "pd.DataFrame"]]:
    for keys in frame[list(names)].drop_duplicates().itertuples(index=False):
        yield [str(key) for key in keys], frame.loc[(frame[list(names)] == list(keys)).all(axis=1)]


def _show_lines(columns: _Columns, title: str, key: str = "layer") -> None:
    keys = next(iter(columns.values()))[1]
    lines = [
        [str(one), *(shown(rows[one]) if one in rows else "–" for shown, rows in columns.values())] for one in keys
    ]
    cli.show_table([key, *columns], lines, title)
    cli.show()


def _show_scores(frame: "pd.DataFrame") -> None:
    frame = frame.loc[(frame["share"] == frame["share"].max()) & (frame["words"] == "all")]
    for (task, probe, stack), part in _parts(frame, "task", "probe", "stack"):
        own = _by(part, trained=True, labels="task", metric="accuracy")
        columns: _Columns = {
            "accuracy [95%]": (_interval, own),
            "majority": (_BASELINE, own),
            "untrained": (_VALUE, _by(part, trained=False, labels="task", metric="accuracy")),
            "control": (_VALUE, _by(part, trained=True, labels="control", metric="accuracy")),
            "selectivity [95%]": (_interval, _by(part, trained=True, metric="selectivity")),
        }
        first = next(iter(own.values()), None)
        facts = "" if first is None else f", {first['training']:,} to train, {first['count']:,} to test"
        _show_lines(columns, f"{task}: {probe} probe of the {stack}{facts}")


def _show_bits(frame: "pd.DataFrame") -> None:
    for (task, code, stack), part in _parts(frame, "task", "code", "stack"):
        own = _by(part, trained=True, labels="task", metric="bits")
        columns: _Columns = {
            "bits": (_number("value", ",.0f"), own),
            "uniform code": (_number("baseline", ",.0f"), own),
            "compression [95%]": (_interval, _by(part, trained=True, labels="task", metric="compression")),
            "untrained": (_VALUE, _by(part, trained=False, labels="task", metric="compression")),
            "control": (_VALUE, _by(part, trained=True, labels="control", metric="compression")),
        }
        _show_lines(columns, f"{task}: {code} code of the {stack}")


def _show_mixing(frame: "pd.DataFrame") -> None:
    """Edge probes: mixing weights, and what each layer adds."""
    for (task, stack), part in _parts(frame, "task", "stack"):
        found = {name: _by(part, trained=True, statistic=name) for name in ("weight", "score", "delta")}
        columns: _Columns = {
            "micro-F1 [95%]": (_interval, found["score"]),
            "majority": (_BASELINE, found["score"]),
            "untrained": (_VALUE, _by(part, trained=False, statistic="score")),
            "gain": (_VALUE, found["delta"]),
            "weight": (_VALUE, found["weight"]),
        }
        _show_lines(columns, f"{task}: edge probe of the {stack}", "layers up to")


def _show_depth(frame: "pd.DataFrame") -> None:
    """The depth at which each task is solved, with a warning where it is unstable."""
    own = frame.loc[frame["trained"]].to_dict("records")
    rows = [[row["task"], row["statistic"], _interval(row), _BASELINE(row)] for row in own]
    cli.show_table(["task", "statistic", "value [95%]", "baseline"], rows, "Depth of edge probes")
    for task, warning in dict.fromkeys((row["task"], row["warning"]) for row in own if row["warning"]):
        cli.show_text(f"The expected layer of {task} is unstable: {warning}.")
    cli.show()


def _show_trees(frame: "pd.DataFrame") -> None:
    """Structural probes, compared with random maps and the chain of words."""
    for (structure, metric, stack), part in _parts(frame, "structure", "metric", "stack"):
        own = _by(part, trained=True, probe="structural")
        chain = next(iter(_by(part, trained=True, probe="chain").values()), None)
        columns: _Columns = {
            f"{metric} [95%]": (_interval, own),
            "untrained": (_VALUE, _by(part, trained=False, probe="structural")),
            "random map": (_VALUE, _by(part, trained=True, probe="random")),
            "chain of words": (_VALUE, dict.fromkeys(own, chain) if chain else {}),
        }
        _show_lines(columns, f"Structural probe of {structure} in the {stack}: {metric}")


def _show_attention(frame: "pd.DataFrame") -> None:
    """Share of words attached to their head by probes that read attention, words, or both."""
    for (stack,), part in _parts(frame, "stack"):
        own = _by(part, "probe", trained=True)
        columns: _Columns = {
            "words attached to their head [95%]": (_interval, own),
            "untrained": (_VALUE, _by(part, "probe", trained=False)),
            "to a neighbour": (_BASELINE, own),
        }
        _show_lines(columns, f"Trees in the attention of the {stack}", "probe")


def _show_pairs(frame: "pd.DataFrame") -> None:
    """Accuracy on minimal pairs: all of them by layer, and each phenomenon at the top."""
    from ..measures import ALL_PAIRS

    frame = frame.loc[frame["metric"] == "preferred"]
    own = _by(frame, trained=True, phenomenon=ALL_PAIRS)
    columns: _Columns = {
        "acceptable preferred [95%]": (_interval, own),
        "chance": (lambda row: "0.500", own),
        "untrained": (_VALUE, _by(frame, trained=False, phenomenon=ALL_PAIRS)),
    }
    pairs = next(iter(own.values()))["count"] if own else 0
    _show_lines(columns, f"Minimal pairs: {pairs:,}, each layer through the logit lens")
    top = frame[(frame["layer"] == frame["layer"].max()) & frame["trained"] & (frame["phenomenon"] != ALL_PAIRS)]
    if len(top):
        listed = [
            [row["phenomenon"], f"{row['count']:,}", _interval(row)]
            for row in top.sort_values("value", ascending=False).to_dict("records")
        ]
        headings = ["phenomenon", "pairs", "acceptable preferred [95%]"]
        cli.show_table(headings, listed, "The model's output, by phenomenon")
        cli.show()


_SHOWN = {
    "probe_scores": _show_scores,
    "probe_codelength": _show_bits,
    "probe_mixing": _show_mixing,
    "probe_depth": _show_depth,
    "probe_trees": _show_trees,
    "head_probe": _show_attention,
    "minimal_pairs": _show_pairs,
}


def bert_score(
    *models: str,
    pairs: Annotated[
        Path,
        Parameter(
            help="File of candidate, reference and optionally a human score: tab-separated (.tsv), or JSON with these "
            "keys (.jsonl); .gz too."
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
    name: cli.Names = (),
    seed: Annotated[cli.Seed, Parameter(help="Seed of the random weights.")] = 0,
    device: cli.Device = None,
    out: cli.Out = None,
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Score pairs of texts with each layer (BERTScore), and compare with random pairs and human scores.

    Args:
        models: Folders that save_pretrained wrote, .gguf files, or names on the model hub.
    """
    with cli.working(session, *models):
        from ..stages import score_pairs

        run = score_pairs(
            list(models),
            pairs,
            cli.run_folder(out, cli.run_name("bert-score", *name or models)),
            columns=names_in("--columns", columns),
            layer=layer,
            idf=idf,
            rescale=rescale,
            baseline_pairs=baseline_pairs,
            control=control,
            tokenizer=reading.tokenizer,
            **reading.marks,
            names=name,
            device=device or "auto",
            seed=seed,
        )
        means, agreement = run.tables["bert_score_layers"], run.tables.get("bert_score")
        for one in dict.fromkeys(means["model"]):
            _show(means[means["model"] == one], None if agreement is None else agreement[agreement["model"] == one])
        if agreement is None:
            cli.show("There are no human scores, so these pairs do not show which layer is best.")
        cli.show_path("Tables", run.path / "tables")
        cli.show_path("Report", run.path / "report.html")


def _show(means: "pd.DataFrame", agreement: "pd.DataFrame | None") -> None:
    """A line for each layer: mean scores, random pairs, and agreement with people compared with permuted scores."""
    own, twin = means[means["trained"]], means[~means["trained"]]
    rescaled = " rescaled" * bool(own["rescaled"].any())
    columns = ["layer", f"precision{rescaled}", f"recall{rescaled}", f"F{rescaled} [95%]", "random pairs"]
    columns += ["untrained F"] * (len(twin) > 0)
    known = agreement is not None
    columns += ["correlation with human scores [95%]", "permuted"] * known
    rows = []
    for layer in sorted(set(own["layer"])):
        at = {name: _one(own, layer, name) for name in ("precision", "recall", "f")}
        row = [str(layer), *(f"{at[name]['value']:.3f}" for name in ("precision", "recall"))]
        row += [cli.estimate(at["f"]["value"], at["f"]["low"], at["f"]["high"]), f"{at['f']['random']:.3f}"]
        row += [f"{_one(twin, layer, 'f')['value']:.3f}"] if len(twin) else []
        if agreement is not None:
            trained = agreement[agreement["trained"]]
            human, permuted = (_one(trained[trained["labels"] == one], layer, "f") for one in ("human", "permuted"))
            row += [cli.estimate(human["value"], human["low"], human["high"]), f"{permuted['value']:.3f}"]
        rows.append(row)
    cli.show_table(columns, rows, f"{own['model'].iloc[0]}: {int(own['count'].iloc[0]):,} pairs, BERTScore by layer")
    cli.show()


def _one(frame: "pd.DataFrame", layer: int, score: str) -> dict:
    return frame[(frame["layer"] == layer) & (frame["score"] == score)].iloc[0].to_dict()
