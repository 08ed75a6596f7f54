"""Which settings learn best at equal compute? Development seeds only; no finding is looked at.

    python experiments/campaigns/settings/sweep.py --out runs/settings                              # Tatoeba
    python experiments/campaigns/settings/sweep.py --out runs/settings --only "base" "1 decoder"    # some variations
    python experiments/campaigns/settings/sweep.py --out runs/settings --europarl PATH/TO/europarl \\
        --objectives translation --updates 10000 --only "base" "1 decoder, half batch"

Each variation of `quick` as it was before this table (`FORMER`) trains the three objectives (or those that are named)
for as many updates as cost what `--updates` of the base cost: floating-point operations of all together, counted on
batches of each training.
It scores them on the *validation* part (loss beside its unigram baseline, BLEU of 300 sentences) and puts a row per
objective and score into `settings.csv` beside this file, in place of its own of equal cost. Interrupted, the same
command continues. Seeds from 100 up are kept for development: presets use seeds below.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.foundation import make_display, set_threads, use_display
from infoflow.results import RunFolder, Subject
from infoflow.studies import Graph, StudyPlan, Train, bleu_scores, engine_for, graph, run_stages, task_scores
from infoflow.training import count_training_flops

sys.path.insert(0, str(Path(__file__).parents[2]))

from collecting import put

SEED = 100
BLEU_SENTENCES = 300

FORMER: dict[str, dict[str, Any]] = {"model": {"decoder_layers": 0}, "training": {"batch_tokens": 1024}}
"""What `quick` had before this table chose its settings: as many decoder layers as encoder layers, larger batches."""
ONE: dict[str, Any] = {"model": {"decoder_layers": 1}}
TWO: dict[str, Any] = {"model": {"decoder_layers": 2}}
WIDTH: dict[str, Any] = {"model": {"initializer_range": 0.0}}
WORDS: dict[str, Any] = {"variants": {"words": {"decoder_dropout": 0.2}}}
WIDE: dict[str, Any] = {"model": {"width": 128, "feedforward": 512}, "training": {"learning_rate": 2e-3}}
HALF: dict[str, Any] = {"training": {"batch_tokens": 512}}
QUARTER: dict[str, Any] = {"training": {"batch_tokens": 256, "learning_rate": 2e-3}}
SHORT: dict[str, Any] = {"corpus": {"max_words": 7}}
LONG: dict[str, Any] = {"corpus": {"max_words": 16}}
BASE = "base"

# Each is the base with the settings of its parts.
VARIATIONS: dict[str, tuple[dict[str, Any], ...]] = {
    BASE: (),
    "higher rate": ({"training": {"learning_rate": 6e-3}},),
    "lower rate": ({"training": {"learning_rate": 1.5e-3}},),
    "2 decoder": (TWO,),
    "1 decoder": (ONE,),
    "by width": (WIDTH,),
    "1 decoder, by width": (ONE, WIDTH),
    "1 decoder, word dropout": (ONE, WORDS),
    "1 decoder, half batch": (ONE, HALF),
    "1 decoder, quarter batch": (ONE, QUARTER),
    "half batch": (HALF,),
    "2 decoder, half batch": (TWO, HALF),
    "1 decoder, half batch, word dropout": (ONE, HALF, WORDS),
    "1 decoder, wider": (ONE, WIDE),
    "1 decoder, wider, half batch": (ONE, WIDE, HALF),
    "1 decoder, shorter": (ONE, SHORT),
    "1 decoder, longer": (ONE, LONG),
    "longer": (LONG,),
}
SHOWN = ("width", "layers", "decoder_layers", "initializer_range")


def variation(name: str, europarl: Path | None, objectives: tuple[str, ...]) -> StudyPlan:
    """The former `quick` with one variation, on the development seed; `updates` are still to be chosen."""
    plan = StudyPlan.load("quick")
    plan = dataclasses.replace(
        plan,
        seeds=(SEED,),
        objectives=objectives or plan.objectives,
        model=dataclasses.replace(plan.model, **FORMER["model"]),
        training=dataclasses.replace(plan.training, save_every=500, **FORMER["training"]),
        analysis=dataclasses.replace(plan.analysis, untrained=False),
        checkpoints=dataclasses.replace(plan.checkpoints, schedule=""),
    )
    if europarl is not None:
        named = {
            f"{part}name": ",".join(str(europarl / f"enfr.{file}.{language}.gz") for language in ("en", "fr"))
            for part, file in (("", "train"), ("validation_", "dev"), ("test_", "test"))
        }
        plan = dataclasses.replace(
            plan, corpus=dataclasses.replace(plan.corpus, **named, max_words=30, vocabulary=4000)
        )
    for settings in VARIATIONS[name]:
        for part, values in settings.items():
            whole = values if part == "variants" else dataclasses.replace(getattr(plan, part), **values)
            plan = dataclasses.replace(plan, **{part: whole})
    if plan.variants:
        varied = f"translation+{next(iter(plan.variants))}"
        objectives = tuple(varied if objective == "translation" else objective for objective in plan.objectives)
        plan = dataclasses.replace(plan, objectives=objectives)
    return plan


def operations(plan: StudyPlan, run: RunFolder) -> float:
    """Of one update of all objectives together."""
    total = 0.0
    for stage in graph(plan, run).of(Train):
        models, recipe = stage.models, stage.recipe
        counted = count_training_flops(
            models.objective(recipe), plan.training, models.training_data(recipe), models.initial(recipe)
        )
        total += counted.total / plan.training.updates
    return total


def train_all(plan: StudyPlan, run: RunFolder, num_processes: int) -> list[Train]:
    """Train the variation's models."""
    training = graph(plan, run).of(Train)
    with engine_for(plan, run, num_processes) as engine:
        run_stages(Graph(stages=training, folder=run), run, engine, title="Training")
    return sorted(training, key=lambda stage: plan.objectives.index(stage.recipe.objective.label))


def rows(name: str, training: list[Train], each: float) -> pd.DataFrame:
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
            "corpus": "europarl" if "europarl" in plan.corpus.name else plan.corpus.name,
            "variation": name,
            "objective": recipe.objective.label,
            **{setting: getattr(plan.model, setting) for setting in SHOWN},
            "vocabulary": plan.corpus.vocabulary,
            "max_words": plan.corpus.max_words,
            "updates": facts["updates"],
            "batch_tokens": plan.training.batch_tokens,
            "learning_rate": plan.training.learning_rate,
            "operations_of_all": each * plan.training.updates,
            "cpu_seconds": round(facts["cpu_seconds"]),
        }
        columns = ["metric", "value", "low", "high", "baseline"]
        frames.append(scores.query("metric != 'perplexity'")[columns].assign(**settings)[[*settings, *columns]])
    return pd.concat(frames, ignore_index=True)


def run_variation(name: str, arguments: argparse.Namespace, budget: float, table: Path) -> None:
    """Train one variation within the budget of operations, and put its rows into the table."""
    plan = variation(name, arguments.europarl, tuple(arguments.objectives))
    corpus = "europarl" if arguments.europarl else "tatoeba"
    parts = (corpus, *arguments.objectives, *name.replace(",", "").split(), str(arguments.updates))
    run = RunFolder(arguments.out / "-".join(parts))
    each = operations(plan, run)
    training = dataclasses.replace(plan.training, updates=round(budget / each))
    plan = dataclasses.replace(plan, training=training)
    run.update(kind="study", title=name, plan=plan.to_json())
    new = rows(name, train_all(plan, run, arguments.processes), each)
    put(new, table, ("corpus", "variation", "objective", "operations_of_all"))  # of another budget: kept
    print(new.to_string(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/settings"))
    parser.add_argument("--only", nargs="*", choices=list(VARIATIONS), default=list(VARIATIONS))
    parser.add_argument("--europarl", type=Path, help="folder with enfr.{train,dev,test}.{en,fr}.gz")
    parser.add_argument("--objectives", nargs="*", default=(), help="those to train; default: the preset's three")
    parser.add_argument("--updates", type=int, default=1300, help="of the base: what every variation may cost")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    set_threads(1)
    table = Path(__file__).with_name("settings.csv")
    with use_display(make_display("plain")):
        base = variation(BASE, arguments.europarl, tuple(arguments.objectives))
        budget = arguments.updates * operations(base, RunFolder(arguments.out / "counting"))
        for name in arguments.only:
            run_variation(name, arguments, budget, table)


if __name__ == "__main__":
    main()
