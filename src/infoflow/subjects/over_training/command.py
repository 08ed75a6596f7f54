"""`infoflow over-training`."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from infoflow.cli._analyze import MaxLength, Sentences
from infoflow.cli._options import Reading, limited, measuring_settings, names_in
from infoflow.cli._session import (
    Anonymous,
    Device,
    Incomplete,
    Out,
    Seed,
    Session,
    Settings,
    TextColumn,
    TranslationColumn,
    parse_shard,
    run_folder,
    run_name,
    show,
    show_path,
    show_run,
    show_table,
    working,
)

if TYPE_CHECKING:
    from infoflow.studies import Run


def over_training(
    *source: str,
    corpus: Annotated[
        str | None,
        Parameter(help="As for `analyze --corpus`. Default: tatoeba-en-fr; with --check, grammar (for the loss)."),
    ] = None,
    text_column: TextColumn = None,
    translation_column: TranslationColumn = None,
    sentences: Sentences = 5000,
    only: Annotated[tuple[str, ...], Parameter(name=("--only", "--tables"), negative=(), show_default=False)] = (),
    check: Annotated[bool, Parameter(negative=())] = False,
    steps: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    include_suspect: Annotated[bool, Parameter(negative=())] = False,
    keep_downloads: Annotated[bool, Parameter(negative=())] = False,
    heavy: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    heavy_steps: str = "linear:4",
    reference: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    processes: Annotated[int | None, Parameter(converter=limited("Processes"))] = None,
    shard: str | None = None,
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    max_length: MaxLength = 512,
    settings: Settings = (),
    seed: Seed = 0,
    device: Device = None,
    anonymous: Anonymous = False,
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Follow a model through training: check its checkpoints, and measure each on the same sentences.

    Args:
        source: A folder with checkpoint-*, step-* or the like, a run folder, NAME@all, NAME@log:12,
            NAME@1000..20000, NAME@REVISION,REVISION, or NAME-step_{20k,40k}.
        only: Tables to compute, separated by commas, or "all". Default: the cheap ones.
        check: Only check the checkpoints, without measuring.
        steps: NAME=STEP for a checkpoint whose name does not contain its step. May be repeated.
        include_suspect: Also measure checkpoints that fail a check.
        keep_downloads: Keep downloaded revisions in the hub's cache.
        heavy: Additional tables, separated by commas, only at the checkpoints of --heavy-steps.
        heavy_steps: A schedule: log:K, linear:K, every:M, powers, 0,10,500, joined by +; uses the nearest checkpoints.
        reference: Checkpoints to compare each one with: final, previous, initial, separated by commas. Default: none.
        processes: Local checkpoints to measure concurrently, each in its own process. Default: 1.
        shard: i/n: measure only every n-th checkpoint, starting at i (0 to n-1), for `infoflow merge`.
        seed: Seed of the token sample and the clusterings.
    """
    with working(session, *source):
        from infoflow.studies import AnalyzeOptions

        from .stages._over_training import over_training as follow

        options = AnalyzeOptions(
            corpus=corpus or ("grammar" if check else "tatoeba-en-fr"),
            text_column=text_column or "",
            translation_column=translation_column or "",
            only=names_in("--only", only),
            sentences=sentences,
            seed=seed,
            device=device or "auto",
            tokenizer=reading.tokenizer,
            **reading.marks,
            max_length=max_length,
            anonymous=anonymous,
            measures=measuring_settings(settings).analysis,
        )
        part = parse_shard(shard) if shard else None
        run = follow(
            source,
            options,
            run_folder(out, run_name("over-training", *source, shard=part)),
            steps=names_in("--steps", steps),
            check=check,
            keep_downloads=keep_downloads,
            include_suspect=include_suspect,
            heavy=names_in("--heavy", heavy),
            heavy_steps=heavy_steps,
            references=names_in("--reference", reference),
            num_processes=processes,
            shard=part,
        )
        if part is not None:
            show_run(run, part)
        else:
            _show(run, check)


def _show(run: "Run", check: bool) -> None:
    """Print what the checks found and what the run holds; raise Incomplete if checkpoints changed since writing."""
    found = run.tables["checkpoint_checks"]
    if rows := [[one.level, one.check, one.message] for one in found.itertuples()]:
        show_table(["level", "check", "message"], rows)
    left = run.tables["checkpoints"]
    show(f"{len(left)} checkpoints, {int(left['excluded'].sum())} of them excluded.")
    if check:
        show_path("Tables", run.path / "tables")
    else:
        show_run(run)
    if lost := [message for level, name, message in rows if (name, level) == ("K12", "error")]:
        raise Incomplete("These checkpoints differ from what was written and are left out:\n" + "\n".join(lost))
