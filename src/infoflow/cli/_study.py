"""Commands about studies and runs: `infoflow study`, `train`, `worker`, `findings`, `report`."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from . import _session as cli
from ._options import limited, names_in, numbers_in, with_settings

if TYPE_CHECKING:
    import pandas as pd

_UNTESTABLE = "not testable here"
_VERDICTS = ("holds", "fails", "undetermined", _UNTESTABLE)


def show_scorecard(findings: "pd.DataFrame", *, untestable: bool) -> None:
    """Print one line per claim and the number of each verdict; reasons for untestable claims only on request.

    Verdicts on further architectures and checkpoints are only counted here; the table and the report list them.
    """
    findings, elsewhere = _first_models(findings)
    trend = ["trend"] if "trend" in findings else []
    rows = [
        [
            row["id"],
            row["verdict"],
            f"{cli.estimate(row['effect'], row['low'], row['high'])} {row['unit'] or ''}".rstrip(),
            row["covers"] or "",
            *(row[name] or "" for name in trend),
            row["claim"],
        ]
        for row in findings[findings["verdict"] != _UNTESTABLE].to_dict("records")
    ]
    if rows:
        cli.show_table(["finding", "verdict", "effect [95%]", "intervals cover", *trend, "claim"], rows)
    if untestable:
        _show_reasons(findings[findings["verdict"] == _UNTESTABLE])
    counts = findings["verdict"].value_counts()
    cli.show(", ".join(f"{counts.get(verdict, 0)} {verdict}" for verdict in _VERDICTS))
    if elsewhere:
        cli.show(f"{elsewhere} verdicts on other architectures and checkpoints: see the table findings.")


def _first_models(findings: "pd.DataFrame") -> "tuple[pd.DataFrame, int]":
    """The rows of the first architecture at the end of training, and how many others there are."""
    if "architecture" not in findings.columns or findings.empty:  # written by an earlier version
        return findings, 0
    first = findings.iloc[0]
    own = (findings["architecture"] == first["architecture"]) & (findings["update"] == first["update"])
    if "model" in findings.columns:  # claims on external models: the first row of each claim
        own = (own | (findings["model"] != "")) & ~findings["id"].duplicated()
    return findings[own], int((~own).sum())


def _show_reasons(findings: "pd.DataFrame") -> None:
    """Why claims could not be tested, and what would make them testable; one line per reason."""
    if findings.empty:
        return
    reasons = findings["reason"].str.partition(". ")[0].str.removesuffix(".")
    cli.show("\nNot testable here (infoflow list claims shows what each claim says):")
    for reason, rows in findings.groupby(reasons, sort=False):
        cli.show_text(f"{reason}.", indent="  ")
        cli.show_text(", ".join(rows["id"]), indent="    ")
    cli.show()


def findings(run: Path, /, *, claims: cli.OwnClaims = None, log: cli.Log = None) -> None:
    """Check the published findings on a run's tables again, and update its report.

    Args:
        run: A folder that `infoflow study` or `infoflow analyze` wrote.
    """
    with cli.reporting(log):
        from infoflow.studies import check_findings

        checked = check_findings(run, claims or ())
        show_scorecard(checked.findings, untestable=True)
        cli.show_path("Report", checked.path / "report.html")


def report(
    run: Path,
    /,
    *,
    figures: Path | None = None,
    formats: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    width: Annotated[float, Parameter(converter=limited("Inches"))] = 6.8,
    columns: Annotated[int | None, Parameter(converter=limited("Count"))] = None,
    so_far: Annotated[bool, Parameter(negative=())] = False,
    own_code: Annotated[bool, Parameter(negative=())] = False,
    anonymous: Annotated[bool, Parameter(negative=())] = False,
    to: str | None = None,
    public: Annotated[bool, Parameter(negative=())] = False,
    log: cli.Log = None,
) -> None:
    """Rebuild a run's report, put it on the Hugging Face hub, or export its figures for papers and slides.

    Args:
        run: A run folder.
        figures: Export the figures to this folder instead of rebuilding the report.
        formats: File formats of the figures, separated by commas. Default: svg,png,pdf.
        width: Width of the figures in inches: 3.3 fits one column of a two-column paper, 6.8 both.
        columns: Panels per row of a figure. Default: as many as fit.
        so_far: Report on the finished part of a running or stopped study, in its folder so-far.
        own_code: With --so-far: execute the Python files that the study's plan names ([plugins]).
        anonymous: Omit the names of local files and the command from the report, which never contains folder names.
        to: hf:USER/NAME uploads the report as a static Space and the tables as a data set of this name, both private
            unless --public. Uploading again replaces them.
        public: With --to: everybody may read what is uploaded.
    """
    with cli.reporting(log):
        from infoflow.foundation import UserError
        from infoflow.report import upload_run, write_figures, write_report
        from infoflow.results import RunFolder

        folder = RunFolder.existing(run)
        if so_far:
            from infoflow.studies import Run

            folder = Run(folder).so_far(own_code).folder
        folder.require_tables()
        if figures is not None and anonymous:
            raise UserError(
                "--anonymous applies to the report: figures name no files. Leave out --anonymous or --figures."
            )
        if figures is not None and to is not None:
            raise UserError("--to uploads the report, and --figures exports its figures: leave one of them out.")
        if public and to is None:
            raise UserError("--public applies to what is uploaded: add --to hf:USER/NAME.")
        if figures is None:
            if formats:
                raise UserError("--formats applies to exported figures: add --figures FOLDER.")
            if columns is not None:
                raise UserError("--columns applies to exported figures: add --figures FOLDER.")
            if to is None:
                cli.show_path("Report", write_report(folder, anonymous))
                return
            for address in upload_run(folder, to, public=public, anonymous=anonymous):
                cli.show(address)
            return
        kinds = list(names_in("--formats", formats)) or ["svg", "png", "pdf"]
        for path in write_figures(folder, figures, kinds, width, columns):  # type: ignore[arg-type]
            cli.show(str(path))


def study(
    plan: str = "quick",
    /,
    *,
    processes: Annotated[int | None, Parameter(converter=limited("Processes"))] = None,
    settings: cli.Settings = (),
    seeds: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False, group=cli.COMMON)] = (),
    device: cli.Device = None,
    cluster: str | None = None,
    insecure: Annotated[bool, Parameter(negative=())] = False,
    measures: cli.OwnMeasures = None,
    objectives: cli.OwnObjectives = None,
    claims: cli.OwnClaims = None,
    anonymous: Annotated[bool, Parameter(negative=(), group=cli.COMMON)] = False,
    out: cli.Out = None,
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Train matched models that differ only in their objective, measure them, check published findings and report.

    Args:
        plan: A TOML file, or a preset: quick (one seed), laptop (three seeds), paper (Transformer-base, for a GPU),
            replicate (loss change allocation over all sentences), zoo (every objective), architectures (four families
            of blocks), adaptation (models tuned for tasks), retrieval (readers that can look up facts).
        processes: Concurrent stages on this machine. Default: one per core on a CPU, one on a GPU, none with --cluster.
        cluster: "listen" lets other machines join (infoflow worker), listen:HOST:PORT at that address; tls://HOST:PORT
            or a scheduler file runs the study on a Dask cluster.
        insecure: Allow an unencrypted scheduler on another machine (tcp://HOST:PORT). Anyone who reaches that
            port can run code as you: only for private networks.
        seeds: Train these seeds instead of the plan's, separated by commas.
        anonymous: Omit paths and names of local files from all output files.
    """
    with cli.working(session):
        from infoflow.studies import StudyPlan
        from infoflow.studies import study as run_study

        changes = [f"training.device={device}"] if device else []
        if seeds:
            changes.append(f"seeds={list(numbers_in('--seeds', seeds, int))}")
        loaded = StudyPlan.load(plan, measures=measures, objectives=objectives, claims=claims)
        chosen = with_settings(loaded, [*settings, *changes])
        run = run_study(chosen, cli.run_folder(out, Path(plan).stem), processes, anonymous, cluster, insecure)
        scores = run.tables["task_scores"]
        rows = [
            [row["model"], row["metric"], cli.estimate(row["value"], row["low"], row["high"]), f"{row['baseline']:.3f}"]
            for row in scores[scores["trained"] & (scores["split"] == "test")].to_dict("records")
        ]
        cli.show_table(["model", "test score", "value [95%]", "without context"], rows)
        cli.show()
        for failure in _not_learned(scores):
            cli.show(failure)
        show_scorecard(run.findings, untestable=False)
        cli.show(
            f"All claims, including those that cannot be tested here: infoflow findings {shlex.quote(str(run.path))}"
        )
        cli.show()
        cli.show_path("Report", run.path / "report.html")
        cli.require_all([run])


def _not_learned(scores: "pd.DataFrame") -> list[str]:
    """A warning, and a line for each score below what its objective requires."""
    from infoflow.objectives import metrics_of

    lines = []
    for row in scores[scores["trained"] & (scores["split"] == "test")].to_dict("records"):
        for metric in metrics_of(row["objective"]):
            if metric.name == row["metric"] and not metric.learned(row["low"], row["high"], row["baseline"]):
                lines.append(f"  {row['model']}: {metric.label} {row['value']:#.3g}, {metric.needed(row['baseline'])}")
    warning = "These models did not learn, so their layers and heads say little about the objective:"
    return [warning, *lines, ""] if lines else []


NewTokens = Annotated[int, Parameter(converter=limited("CountOrNone"))]


def train(
    objective: str,
    /,
    *,
    plan: str = "quick",
    start: str | None = None,
    extend_vocabulary: NewTokens = 0,
    corpus: str | None = None,
    columns: cli.Columns = cli.Columns(),  # noqa: B008 (frozen)
    checkpoints: str | None = None,
    objectives: cli.OwnObjectives = None,
    settings: cli.Settings = (),
    seed: cli.Seed = 0,
    device: cli.Device = None,
    out: cli.Out = None,
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Train one model as a study would, and save it as a plain Hugging Face folder.

    Args:
        objective: causal-lm, masked-lm, translation, spanbert, electra, bart, ... (docs/objectives.md lists all).
        plan: Source of size, data and schedule: a TOML file or a preset (quick, laptop, paper, replicate, zoo,
            architectures, adaptation, retrieval).
        start: A model to continue training instead of a new one: from a study, or any Hugging Face model of a class
            that fits the objective. Its tokenizer is kept; the optimiser and the warm-up restart. The model is saved in
            OUT/model. For two phases, run the command twice.
        extend_vocabulary: With --start: number of tokens to learn on the corpus and add to the vocabulary; each
            starts as the mean of its old pieces.
        corpus: Name or file of a corpus that replaces the plan's.
        checkpoints: Updates whose weights are kept for measuring: log:20, linear:8, every:100, powers, 0,10,500, or
            several of these joined by +. Default: log:16+linear:8. The first and the last are always kept.
        seed: Seed of initialisation, data order and noise.
    """
    with cli.working(session, *([start] if start else [])):
        from infoflow.foundation import UserError
        from infoflow.studies import StudyPlan, train_model

        changes = [f"training.device={device}"] if device else []
        chosen = with_settings(StudyPlan.load(plan, objectives=objectives), [*settings, *changes])
        columns_given = {key: one for key, one in asdict(columns).items() if one != getattr(cli.Columns(), key)}
        given = columns_given | ({"name": corpus} if corpus else {})
        chosen = replace(chosen, corpus=replace(chosen.corpus, **given))
        if checkpoints is not None:
            if start is not None:
                raise UserError("--checkpoints only applies to new models, not to --start. Leave it out.")
            chosen = replace(chosen, checkpoints=replace(chosen.checkpoints, schedule=checkpoints))
        if start is None:
            _refuse_alone(extend_vocabulary)
            trained = train_model(objective, chosen, seed, cli.run_folder(out, objective))
        else:
            folder = cli.run_folder(out, f"further/{objective}")
            trained = _train_further()(objective, start, chosen, seed, folder, extend_vocabulary)
        rows = [
            [name, f"{value:,}" if isinstance(value, int) else f"{value:.4g}"] for name, value in trained.facts.items()
        ]
        cli.show_table(["training", "value"], rows)
        cli.show_path("Model", trained.folder)
        if trained.checkpoints is not None:
            cli.show_path("Checkpoints", trained.checkpoints)


def _train_further() -> Callable[..., Any]:
    from infoflow._subjects import provided
    from infoflow.foundation import UserError

    if found := provided("stages", "train_further"):
        return found[0]
    raise UserError("--start must be left out: this installation has no infoflow.subjects.adaptation.")


def _refuse_alone(extend_vocabulary: int) -> None:
    from infoflow.foundation import UserError

    if extend_vocabulary:
        raise UserError(
            "--extend-vocabulary adds tokens to an existing model, so it needs --start. A new model has the "
            "plan's corpus.vocabulary tokens: write --set corpus.vocabulary=8000."
        )


def worker(
    run: Path,
    /,
    *,
    processes: Annotated[int | None, Parameter(converter=limited("Threads"))] = None,
    gpus: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    patience: str = "10m",
    session: cli.Session = cli.Session(),  # noqa: B008 (frozen)
) -> None:
    """Run stages of a study on this machine, for `infoflow study --cluster listen`.

    Both machines must see the run folder under the same path. After Ctrl-C or SIGTERM, running stages resume elsewhere.

    Args:
        run: The study's run folder.
        processes: Concurrent stages. Default: one per GPU, else as many as fit with --threads each.
        gpus: Numbers or UUIDs of GPUs to use. May be repeated. Default: those of CUDA_VISIBLE_DEVICES.
        patience: Maximum time to wait for a study: 90s, 10m, 2h.
    """
    with cli.working(session):
        from infoflow.engine import worker as work

        code = work(run, processes, session.threads or 1, list(gpus) or None, patience)
    if code:
        sys.exit(code)


def stages(
    run: Path,
    /,
    *,
    settings: cli.Settings = (),
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
    out: cli.Out = None,
    log: cli.Log = None,
) -> None:
    """List the stages of a study for another engine: Snakemake, Parsl, SLURM arrays. A plan is prepared, not run.

    Args:
        run: A study's run folder, a plan's TOML file, or a preset.
        as_json: One list of objects with key, label, kind, needs, done, cost (seconds), memory (bytes), threads, gpus.
    """
    with cli.reporting(log):
        import json

        from infoflow.results import RunFolder
        from infoflow.studies import StudyPlan, list_stages

        if (run / "run.json").is_file():
            found = list_stages(RunFolder.existing(run))
        else:
            plan = with_settings(StudyPlan.load(str(run)), settings)
            found = list_stages(RunFolder(cli.run_folder(out, run.stem)), plan)
        if as_json:
            cli.show(json.dumps(found, indent=1))
        else:
            names = ("key", "label", "done", "cost", "gpus")
            cli.show_table(
                ["key", "stage", "done", "seconds", "GPUs"], [[str(one[name]) for name in names] for one in found]
            )


def stage(run: Path, key: str, /, *, session: cli.Session = cli.Session()) -> None:  # noqa: B008 (frozen)
    """Run one stage of a study after the stages that it needs (`infoflow stages` lists them). Run again to continue.

    The exit code is 0 if the stage is done, 2 if it cannot run or fails, and 130 after Ctrl-C or SIGTERM. When all
    stages are done, `infoflow study` with the same plan and folder writes the report.

    Args:
        run: A study's run folder.
        key: The stage's key.
    """
    with cli.working(session):
        from infoflow.studies import run_stage

        cli.show(f"{key}: {'done' if run_stage(run, key) else 'was done before'}")
