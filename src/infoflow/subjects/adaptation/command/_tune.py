"""`infoflow tune`."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
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

    from ..measures import AllocationHooks, TaskData, TuneConfig, Tuned

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
        from infoflow.foundation import current_display
        from infoflow.report import check_output
        from infoflow.results import RunFolder
        from infoflow.studies import removed_if_refused

        from ..measures import INSIDE, TASK_ANSWERS, TASK_LEAKAGE, TASK_SCORES

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
            looks = _looks(every, corpus) if inside else {}
            tuned = {}
            with current_display().progress(f"Tuning {requested.model.name}", len(every)) as progress:
                for variant in every:
                    tuned[variant] = variant.tuned(looks[variant].hooks if inside else None)
                    progress.advance(1)
        shutil.rmtree(every[0].features, ignore_errors=True)
        leaks = _leaks(data, tuned[every[0]])
        run.update(**facts)
        tables = _written(run, tuned, looks, leaks)
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


@dataclass(frozen=True, kw_only=True, eq=False)
class InsideTuning:
    """The measurements of one variant, in addition to its scores."""

    variant: TuningVariant
    text: "Corpus | None"  # for the pretraining loss; None: texts of the task

    @cached_property
    def hooks(self) -> "AllocationHooks | None":
        """Hooks that record which parts learn the task; None for tuning on shuffled labels."""
        from ..measures import AllocationHooks

        variant = self.variant
        if variant.config.control:
            return None
        return AllocationHooks(
            model=variant.model, data=variant.data, task=variant.task, config=variant.config, folder=variant.recordings
        )

    def tables(self, tuned: "Tuned") -> "Iterator[tuple[TableSchema, pd.DataFrame]]":
        """The tables of the inside view, with the columns `TUNED`; only one table for tuning on shuffled labels."""
        from ..measures import INSIDE_TABLES, TUNED, TUNING_ALLOCATION, TUNING_CHANGE

        how = tuned.scores.iloc[0][[column.name for column in TUNED]].to_dict()
        for name, frame in self._view(
            tuned, only=[TUNING_CHANGE.name] if self.variant.config.control else None
        ).items():
            yield INSIDE_TABLES[name], frame.assign(**how)
        if self.hooks is None:
            return
        allocated = self.hooks.table(tuned.models)
        self._tell_of_unrecorded(tuned, set() if allocated is None else set(allocated["tuning_seed"]))
        if allocated is not None:
            yield TUNING_ALLOCATION, allocated.assign(**how)

    def _tell_of_unrecorded(self, tuned: "Tuned", recorded: set[int]) -> None:
        """Note the seeds whose loss change was not recorded."""
        from infoflow.foundation import current_display

        missing = [one.seed for one in tuned.models if one.seed not in recorded]
        if missing:
            seeds = f"seed{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            current_display().note(
                f"Loss changes of {self.variant.task.task} in {self.variant.model.name} were not recorded for {seeds}. "
                "Models tuned earlier without --inside are never recorded, nor is the first of several seeds if "
                "there are several learning rates."
            )

    def _view(self, tuned: "Tuned", only: list[str] | None = None) -> "dict[str, pd.DataFrame]":
        from infoflow.flow import PassOptions
        from infoflow.studies import untrained

        from ..measures import inside_view

        variant, text = self.variant, self.text
        # in generation, the task's loss already covers its texts
        if text is None and variant.task.shape != "generation":
            text = variant.data.test
        return inside_view(
            variant.model,
            [one.load(variant.config.device) for one in tuned.models],
            tuned.task,
            variant.data,
            untrained=None if variant.config.control else untrained(variant.model, seed=0),
            pretraining=text,
            options=PassOptions(max_length=tuned.models[0].max_length, corruption=variant.pretrained_for),
            seeds=[one.seed for one in tuned.models],
            only=only,
        )


def _looks(every: list[TuningVariant], corpus: str | None) -> dict[TuningVariant, InsideTuning]:
    from infoflow.corpus import load_corpus

    text = load_corpus(corpus) if corpus else None
    return {variant: InsideTuning(variant=variant, text=text) for variant in every}


def _leaks(data: "TaskData", tuned: "Tuned") -> "pd.DataFrame":
    from ..measures import leakage

    return leakage(replace(data, train=tuned.train), {})


def _written(
    run: "RunFolder",
    tuned: "Mapping[TuningVariant, Tuned]",
    looks: Mapping[TuningVariant, InsideTuning],
    leaks: "pd.DataFrame",
) -> Path:
    """Write scores, answers and leakage, then measure and write the inside tables, in place of the tables of an earlier
    call; return their folder."""
    from infoflow.foundation import current_display

    from ..measures import INSIDE, TASK_ANSWERS, TASK_LEAKAGE, TASK_SCORES, TUNING_ALLOCATION

    run.tables.remove([*INSIDE, TUNING_ALLOCATION.name])
    _write(run, {variant: [(TASK_SCORES, one.scores), (TASK_ANSWERS, one.answers)] for variant, one in tuned.items()})
    folder = run.tables.write(leaks, TASK_LEAKAGE).parent
    found: dict[TuningVariant, list[tuple[TableSchema, pd.DataFrame]]] = {}
    if not looks:
        return folder
    with current_display().progress("Comparing models before and after tuning", len(looks)) as progress:
        for variant, look in looks.items():
            found[variant] = list(look.tables(tuned[variant]))
            progress.advance(1)
    _write(run, found)
    return folder


def _write(run: "RunFolder", of_variants: "Mapping[TuningVariant, list[tuple[TableSchema, pd.DataFrame]]]") -> None:
    """Write the tables of all variants, with the keys of the model from which each was tuned."""
    import pandas as pd

    from infoflow.results import KEYS

    found: dict[str, tuple[TableSchema, list[pd.DataFrame]]] = {}
    for variant, tables in of_variants.items():
        for schema, frame in tables:
            found.setdefault(schema.name, (schema, []))[1].append(frame.assign(**variant.subject.keys()))
    for schema, frames in found.values():
        run.tables.write(pd.concat(frames, ignore_index=True), schema.with_keys(*KEYS))
