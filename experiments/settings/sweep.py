"""Which settings learn best within the budget of `quick` and `laptop`? Development seeds only; no finding is looked at.

    .venv/bin/python experiments/settings/sweep.py --out runs/settings              # about 40 minutes on 2 quiet cores
    .venv/bin/python experiments/settings/sweep.py --out runs/settings --only base  # one variation

Each variation trains the three objectives with the same number of updates, scores them on the *validation* part (loss
beside its unigram baseline, BLEU of 200 sentences) and adds a row per objective to `settings.csv` beside this file.
Interrupted, the same command continues. Seeds from 100 up are kept for development: presets use seeds below.
"""

import argparse
import dataclasses
from pathlib import Path

import pandas as pd

from infoflow.foundation import make_display, set_threads, use_display
from infoflow.results import RunFolder, Subject
from infoflow.studies import Graph, StudyPlan, Train, bleu_scores, engine_for, graph, run_stages, task_scores

SEED = 100
BLEU_SENTENCES = 200

# Compared at about the same cost: `updates` is cut where an update is dearer.
VARIATIONS: dict[str, dict[str, dict[str, float]]] = {
    "base": {},
    "higher rate": {"training": {"learning_rate": 6e-3}},
    "wider": {"model": {"width": 128, "feedforward": 512}, "training": {"learning_rate": 2e-3, "updates": 720}},
    "lower rate": {"training": {"learning_rate": 1.5e-3}},
    "larger batch": {"training": {"batch_tokens": 2048, "updates": 650}},
    "shorter sentences": {"corpus": {"max_words": 7}},
}


def variation(name: str, updates: int) -> StudyPlan:
    """The `quick` plan with one variation, on the development seed."""
    plan = StudyPlan.load("quick")
    training = dataclasses.replace(plan.training, updates=updates, save_every=0)
    analysis = dataclasses.replace(plan.analysis, untrained=False)
    plan = dataclasses.replace(plan, seeds=(SEED,), training=training, analysis=analysis)
    for part, settings in VARIATIONS[name].items():
        plan = dataclasses.replace(plan, **{part: dataclasses.replace(getattr(plan, part), **settings)})
    return plan


def train_all(plan: StudyPlan, run: RunFolder, num_processes: int) -> list[Train]:
    """Train the variation's three models."""
    training = graph(plan, run).of(Train)
    with engine_for(plan, run, num_processes) as engine:
        run_stages(Graph(stages=training), run, engine, title="Training")
    return sorted(training, key=lambda stage: plan.objectives.index(stage.recipe.objective.label))


def rows(name: str, training: list[Train]) -> pd.DataFrame:
    """Validation scores of the variation's models, with what they cost."""
    frames = []
    for stage in training:
        models, recipe = stage.models, stage.recipe
        plan, data = models.plan, models.data
        model = models.load(Subject(recipe=recipe))
        scored, known = (data.encoded(part, plan.model.positions) for part in (data.validation, data.train))
        ids = data.validation.content_ids
        scores = task_scores(model, models.objective(recipe), scored, ids, known, "validation")
        if recipe.objective.name == "translation":
            scores = pd.concat([scores, bleu_scores(model, data.validation, BLEU_SENTENCES, 1, "validation")])
        facts = stage.facts()
        settings = {
            "variation": name,
            "objective": recipe.objective.name,
            "width": plan.model.width,
            "initializer_range": plan.model.initializer_range,
            "vocabulary": plan.corpus.vocabulary,
            "max_words": plan.corpus.max_words,
            "updates": facts["updates"],
            "batch_tokens": plan.training.batch_tokens,
            "learning_rate": plan.training.learning_rate,
            "cpu_seconds": round(facts["cpu_seconds"]),
        }
        columns = ["metric", "value", "low", "high", "baseline"]
        frames.append(scores.query("metric != 'perplexity'")[columns].assign(**settings)[[*settings, *columns]])
    return pd.concat(frames, ignore_index=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/settings"))
    parser.add_argument("--only", nargs="*", choices=list(VARIATIONS), default=list(VARIATIONS))
    parser.add_argument(
        "--updates", type=int, default=1300, help="of the base setting: about a third of quick's budget"
    )
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    set_threads(1)
    table = Path(__file__).with_name("settings.csv")
    with use_display(make_display("plain")):
        for name in arguments.only:
            plan = variation(name, arguments.updates)
            run = RunFolder(arguments.out / name.replace(" ", "-"))
            run.update(kind="study", title=name, plan=plan.to_json())
            training = train_all(plan, run, arguments.processes)
            before = pd.read_csv(table) if table.exists() else pd.DataFrame(columns=["variation"])
            after = pd.concat([before[before["variation"] != name], rows(name, training)], ignore_index=True)
            after.to_csv(table, index=False, float_format="%.4g")
            print(after[after["variation"] == name].to_string(), flush=True)


if __name__ == "__main__":
    main()
