"""`infoflow tune`."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from infoflow.cli._options import Reading
from infoflow.cli._session import (
    Anonymous,
    Device,
    Names,
    Out,
    Session,
    names_of,
    run_folder,
    run_name,
    show_path,
    working,
)

from ._options import TaskFiles, TuneOptions, TuningVariant, show_tuned, tell_of_leakage, tuning_variants

if TYPE_CHECKING:
    import pandas as pd

    from infoflow.corpus import Corpus
    from infoflow.results import RunFolder, TableSchema

    from ..measures import TaskData, TuneConfig, Tuned

_KIND = "tune"


def tune(
    model: str,
    /,
    *,
    files: TaskFiles,
    options: TuneOptions = TuneOptions(),  # noqa: B008 (frozen)
    controls: Annotated[bool, Parameter(negative=())] = False,
    from_scratch: Annotated[bool, Parameter(negative=())] = False,
    inside: Annotated[bool, Parameter(negative=())] = False,
    corpus: Annotated[str | None, Parameter(show_default=False)] = None,
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    name: Names = (),
    settings: Annotated[
        tuple[str, ...],
        Parameter(
            name="--set",
            negative=(),
            show_default=False,
            help="Change another setting, such as --set tune.rank=16 or tune.max_length=64. May be repeated.",
        ),
    ] = (),
    device: Device = None,
    anonymous: Anonymous = False,
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Tune a model for a labelled task with several seeds, and write plain Hugging Face folders and their scores.

    The learning rate is chosen on dev with the first seed; the test part is used once.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        controls: Also tune on shuffled labels, and the same architecture with random weights.
        from_scratch: Also tune the same architecture with random weights.
        inside: Report what tuning changed in layers and heads, what was forgotten and where the task was learned.
        corpus: With --inside: corpus for the pretraining loss, which measures forgetting; a name or a file.
            Default: the task's test texts; none for generation tasks.
    """
    with working(session, model):
        from infoflow.corpus import load_corpus
        from infoflow.foundation import current_display
        from infoflow.report import check_output
        from infoflow.results import RunFolder
        from infoflow.studies import removed_if_refused

        from ..measures import INSIDE, TASK_ANSWERS, TASK_LEAKAGE, TASK_SCORES, TUNING_ALLOCATION, leakage

        run = RunFolder(run_folder(out, run_name("tune", *name or [model], *([files.task] if files.task else []))))
        config = options.config(settings, device)
        _check_inside(inside, corpus, config)
        check_output(run, _KIND, tables=[*INSIDE, *(one.name for one in (TASK_SCORES, TASK_ANSWERS, TASK_LEAKAGE))])
        data = files.load()
        if anonymous and files.named_by:
            data = replace(data, name="task")
        facts = _facts(model, data, config, files.named_by)
        with removed_if_refused(run):
            if not run.path.exists():  # an existing run stays unchanged until it is known that this call is not refused
                run.update(**facts)
            requested = _requested(model, reading, data, config, run.path, *names_of([model], name, anonymous))
            every = tuning_variants(requested, controls=controls, from_scratch=from_scratch)
            for variant in every:
                variant.check()
            text = load_corpus(corpus) if corpus else None
            tuned = {}
            with current_display().progress(f"Tuning {requested.model.name}", len(every)) as progress:
                for variant in every:
                    tuned[variant] = variant.tuned(inside)
                    progress.advance(1)
        shutil.rmtree(requested.features, ignore_errors=True)
        leaks = leakage(replace(data, train=tuned[requested].train), {})
        run.update(**facts)
        run.tables.remove([*INSIDE, TUNING_ALLOCATION.name])  # those of an earlier call
        _write(run, {one: [(TASK_SCORES, of.scores), (TASK_ANSWERS, of.answers)] for one, of in tuned.items()})
        tables = run.tables.write(leaks, TASK_LEAKAGE).parent
        if inside:
            _write_inside(run, tuned, text)
        show_tuned(tuned)
        tell_of_leakage(leaks)
        show_path("Models", run.path / "models")
        show_path("Tables", tables)
        if inside or (run.path / "report.html").exists():  # an earlier call's report would be about other tables
            from infoflow.report import write_report

            show_path("Report", write_report(run))
        if anonymous:
            from infoflow.report import anonymize

            anonymize(run)


def _check_inside(inside: bool, corpus: str | None, config: "TuneConfig") -> None:
    from infoflow.foundation import UserError

    if inside and config.freezes:
        raise UserError(
            "--inside shows what tuning changed, and a frozen body does not change. Leave out one of the two."
        )
    if corpus and not inside:
        raise UserError(
            "--corpus is the text on which --inside measures forgetting. Add --inside, or leave out --corpus."
        )


def _facts(model: str, data: "TaskData", config: "TuneConfig", named_by: str | None) -> dict[str, Any]:
    from infoflow.foundation import absolute, provenance

    source = str(absolute(model)) if Path(model).exists() else model
    plan: dict[str, Any] = {"model": source, "task": data.name}
    if named_by:
        plan["task_named_by"] = str(absolute(named_by))
    plan |= {"left_out": dict(data.left_out), "tune": config.key()}
    title = f"Tuned for {data.name}"
    return {"kind": _KIND, "anonymous": False, "title": title, "plan": plan, "provenance": provenance()}


def _requested(
    model: str, reading: Reading, data: "TaskData", config: "TuneConfig", run: Path, name: str
) -> TuningVariant:
    from infoflow.studies import external_subject
    from infoflow.training import trained_objective

    from ..measures import make_task

    loaded, objective = reading.load(model, config.device, name), trained_objective(model)
    return TuningVariant(
        label="",
        subject=external_subject(loaded),
        model=loaded,
        pretrained_for=objective,
        data=data,
        task=make_task(data, trained=objective),
        config=config,
        run=run,
    )


def _write_inside(run: "RunFolder", tuned: "Mapping[TuningVariant, Tuned]", text: "Corpus | None") -> None:
    """Measure what tuning changed inside the models, and write the tables."""
    from infoflow.foundation import current_display

    found = {}
    with current_display().progress("Comparing models before and after tuning", len(tuned)) as progress:
        for variant, models in tuned.items():
            found[variant] = list(_inside_tables(variant, models, text))
            progress.advance(1)
    _write(run, found)


def _inside_tables(
    variant: TuningVariant, tuned: "Tuned", text: "Corpus | None"
) -> "Iterator[tuple[TableSchema, pd.DataFrame]]":
    """The tables of the inside view, with the columns `TUNED`; only one table for tuning on shuffled labels.

    `text` is for the pretraining loss; None: texts of the task.
    """
    from infoflow.flow import PassOptions
    from infoflow.studies import untrained

    from ..measures import INSIDE_TABLES, TUNED, TUNING_ALLOCATION, TUNING_CHANGE, inside_view

    # in generation, the task's loss already covers its texts
    if text is None and variant.task.shape != "generation":
        text = variant.data.test
    view = inside_view(
        variant.model,
        [one.load(variant.config.device) for one in tuned.models],
        tuned.task,
        variant.data,
        untrained=None if variant.config.control else untrained(variant.model, seed=0),
        pretraining=text,
        options=PassOptions(max_length=tuned.models[0].max_length, corruption=variant.pretrained_for),
        seeds=[one.seed for one in tuned.models],
        only=[TUNING_CHANGE.name] if variant.config.control else None,
    )
    how = tuned.scores.iloc[0][[column.name for column in TUNED]].to_dict()
    for name, frame in view.items():
        yield INSIDE_TABLES[name], frame.assign(**how)
    if variant.hooks is None:
        return
    allocated = variant.hooks.table(tuned.models)
    _tell_of_unrecorded(variant, tuned, set() if allocated is None else set(allocated["tuning_seed"]))
    if allocated is not None:
        yield TUNING_ALLOCATION, allocated.assign(**how)


def _tell_of_unrecorded(variant: TuningVariant, tuned: "Tuned", recorded: set[int]) -> None:
    """Note the seeds whose loss change was not recorded."""
    from infoflow.foundation import current_display

    missing = [one.seed for one in tuned.models if one.seed not in recorded]
    if missing:
        seeds = f"seed{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
        current_display().note(
            f"Loss changes of {variant.task.task} in {variant.model.name} were not recorded for {seeds}. "
            "Models tuned earlier without --inside are never recorded, nor is the first of several seeds if "
            "there are several learning rates."
        )


def _write(run: "RunFolder", of_variants: "Mapping[TuningVariant, list[tuple[TableSchema, pd.DataFrame]]]") -> None:
    """Write the tables of all variants, with key columns that identify the model from which each was tuned."""
    import pandas as pd

    from infoflow.results import KEYS

    found: dict[str, tuple[TableSchema, list[pd.DataFrame]]] = {}
    for variant, tables in of_variants.items():
        for schema, frame in tables:
            found.setdefault(schema.name, (schema, []))[1].append(frame.assign(**variant.subject.keys()))
    for schema, frames in found.values():
        run.tables.write(pd.concat(frames, ignore_index=True), schema.with_keys(*KEYS))
