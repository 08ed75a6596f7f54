"""`probe`: an analysis whose tables are those of the requested probes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, did_you_mean
from infoflow.probing import MINIMAL_PAIRS_TASK, tasks

from ._analyze import analyze
from ._given import AnalyzeOptions, changed
from ._probing import probing_tables
from ._run import Run


def probe(
    model: Path | str,
    task: Sequence[str] | str = (),
    probes: Sequence[str] | str = (),
    *,
    options: AnalyzeOptions | None = None,
    out: Path | str = "runs/probe",
    **changes: Any,
) -> Run:
    """What probes decode from each layer, compared with the majority class, random weights and a control task.

    >>> run = probe("all-MiniLM-L6-v2", "length", corpus="own.txt")  # doctest: +SKIP
    >>> run.tables["probe_scores"]  # doctest: +SKIP

    Args:
        model: A folder, a .gguf file or a name, as for `load_model`.
        task: Tasks, one name or several: upos, arc, ner-spans, length, minimal-pairs, a column of tags...
        probes: linear, mlp, edge, online, variational, structural, attention; default: linear.
        options: Corpus and settings, as for `analyze`.
        out: The run folder.
        changes: Fields of `AnalyzeOptions` by name, such as `corpus="treebank.conllu"`.

    Raises:
        UserError: No task is named, these probes have no table, or `analyze` rejects its input.
    """
    options = changed(options or AnalyzeOptions(), changes)
    named = [(each,) if isinstance(each, str) else tuple(each) for each in (task, probes)]
    return analyze([model], _asked(options, *named), out)


def _asked(options: AnalyzeOptions, named: tuple[str, ...], probes: tuple[str, ...]) -> AnalyzeOptions:
    """The options with tasks and probes, and with the tables that these write."""
    plan = options.probing
    plan = replace(plan, tasks=named or plan.tasks, probes=probes or plan.probes)
    tables = probing_tables(plan)
    if not tables:
        raise UserError(f"No task was named.\n{_catalogue()}\nWrite for example --task upos --corpus treebank.conllu.")
    if unknown := [name for name in options.only if name not in tables]:
        meant = did_you_mean(unknown[0], tables)
        raise UserError(f"--only has no table {unknown[0]} of these probes.{meant} Choose among: {', '.join(tables)}.")
    return replace(options, probing=plan, only=options.only or tables)


def _catalogue() -> str:
    rows = [(task.name, task.about, task.needs) for task in tasks()]
    rows.append((MINIMAL_PAIRS_TASK, "which of two sentences the model finds more likely, without a probe", "bad"))
    width = max(len(name) for name, _, _ in rows)
    lines = [f"  {name:{width}}  {about}{f' (needs {needs})' if needs else ''}" for name, about, needs in rows]
    return "\n".join([*lines, f"  {'NAME':{width}}  the tag in any column NAME; NAME-spans: its spans, if it is IOB2"])
