"""Compare recordings on several corpora: does the corpus decide which parts learn, or only the objective?"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from infoflow.findings import FINDINGS, FINDINGS_TABLE, evaluate
from infoflow.foundation import UserError, current_display, provenance
from infoflow.report import check_output, write_report
from infoflow.results import KEYS, TASK_SCORES, Column, RunFolder
from infoflow.studies._run import Run
from infoflow.studies._study import only_one

from ..measures import ALLOCATION_CORPORA, ALLOCATION_GROUPS, compare_corpora

_CORPUS = Column(name="corpus", dtype="string", unit="", description="name of the study's folder")


def compare_recordings(studies: Sequence[Path | str], out: Path | str) -> Run:
    """Compare the recordings of studies that differ in their corpus, and write a run folder with table and report.

    The studies' plans should be equal except for `[corpus]`; other differences are reported as warnings. Each corpus is
    named after its study's folder.

    Args:
        studies: Folders that `infoflow study` wrote, with `[dynamics] on = true`.
        out: The run folder to write.

    Raises:
        UserError: A folder holds no recording, two share a name, or there are fewer than two.
    """
    runs = [RunFolder.existing(folder) for folder in studies]
    names = [run.path.resolve().name for run in runs]
    if len(set(names)) < len(names):
        raise UserError(
            "Corpora are named after their studies' folders, so these must have different names. Got "
            f"{', '.join(names)}."
        )
    for run in runs:
        if ALLOCATION_GROUPS.name not in run.tables:
            raise UserError(
                f"{run.path} has no recording of loss changes. Let `infoflow study` finish there, with a plan that "
                "sets [dynamics] on = true."
            )
    by_corpus = dict(zip(names, runs, strict=True))
    target = RunFolder(out)
    with only_one(target):
        check_output(target, "corpora")
        similarity = compare_corpora({name: run.tables[ALLOCATION_GROUPS.name] for name, run in by_corpus.items()})
        scores = [_scores(name, run) for name, run in by_corpus.items()]
        target.tables.write(similarity, ALLOCATION_CORPORA)
        target.tables.write(pd.concat(scores, ignore_index=True), TASK_SCORES.with_keys(_CORPUS, *KEYS))
        target.tables.write(evaluate(target.tables, [FINDINGS["dynamics:V3"]]), FINDINGS_TABLE)
        _describe(target, by_corpus)
        write_report(target)
    return Run(target)


def _scores(name: str, run: RunFolder) -> pd.DataFrame:
    """Scores of the study's models; the corpus prefix makes model names of several studies distinct."""
    frame = run.tables[TASK_SCORES.name]
    return frame.assign(corpus=name, model=name + "/" + frame["model"].astype(str))


def _describe(target: RunFolder, by_corpus: dict[str, RunFolder]) -> None:
    manifests = {name: run.read() for name, run in by_corpus.items()}
    plans = {name: manifest.get("plan", {}) for name, manifest in manifests.items()}
    warnings = _differences(plans)
    for warning in warnings:
        current_display().warn(warning)
    target.update(
        kind="corpora",
        title="Does the corpus change which parameters learn?",
        plan={part: value for part, value in plans[min(plans)].items() if part != "corpus"},
        corpus={
            name: {"plan": plans[name].get("corpus", {}), **manifest.get("corpus", {})}
            for name, manifest in manifests.items()
        },
        models=[
            {**model, "model": f"{name}/{model['model']}"}
            for name, manifest in manifests.items()
            for model in manifest.get("models", [])
        ],
        warnings=warnings,
        command=provenance()["command"],
        provenance=provenance(),
    )


def _differences(plans: dict[str, dict]) -> list[str]:
    """Differences between the studies other than the corpus."""
    (first, reference), *others = plans.items()
    parts = ("objectives", "seeds", "match", "model", "training", "dynamics")
    return [
        f"{name} and {first} differ in {part}, not only in the corpus."
        for name, plan in others
        for part in parts
        if plan.get(part) != reference.get(part)
    ]
