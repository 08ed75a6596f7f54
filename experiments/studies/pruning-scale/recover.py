"""Do the heads that gates left come back to the whole model's BLEU, when they are trained on at a rate that falls?

    python experiments/studies/pruning-scale/recover.py runs/pruning-scale --out runs/pruning-on

Each translation model of the study is trained on without a penalty, its decoder as it is or along (`--decoder`):

| heads | weights to begin with |
|---|---|
| all | the converged model's |
| gates | those of the sweep's last penalty, heads that its gates closed ablated, undecided gates open |
| random | the converged model's, as many encoder heads left as there, the first random draw of the study |

BLEU and loss on the study's sentences, beside those of the converged model, go to `recovered.csv`; what they are apart
on average over seeds, with 95 % intervals over seeds and (paired) sentences, to `recovered_gaps.csv`, of all that is
under `--out`. Interrupted, the same command continues.
"""

import argparse
import dataclasses
import json
import re
import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from infoflow.flow import PassOptions
from infoflow.foundation import atomic_write, interval_over_seeds, make_display, set_threads, use_display
from infoflow.heads import HeadSet, all_heads
from infoflow.models import Model, load_model
from infoflow.pruning import quality, recover
from infoflow.results import estimate
from infoflow.studies import Run, Train, at_most

sys.path.insert(0, str(Path(__file__).parents[2]))

from collecting import put

HERE = Path(__file__).parent
HEADS = ("all", "gates", "random")
METHODS = {"gates": "hard-concrete", "random": "random"}
CONVERGED = "converged"
SCORES = "scores.npz"
FOLDER = re.compile(r"seed-(\d+)-(\w+)-(\w+)-(.+)-(\d+)")
KEYS = ["seed", "heads", "decoder", "learning_rate", "updates", "kept"]


def removed_heads(run: Run, name: str, heads: str) -> HeadSet:
    """Encoder heads that went at the last point of the sweep, or of the first random draw."""
    if heads == "all":
        return frozenset()
    rows = run.tables["pruned_heads"]
    rows = rows[(rows["model"] == name) & (rows["method"] == METHODS[heads]) & (rows["scope"] == "encoder-self")]
    rows = rows[(rows["point"] == rows["point"].max()) & (rows["draw"] == rows["draw"].min()) & ~rows["alive"]]
    return frozenset(zip(rows["stack"], rows["kind"], rows["layer"], rows["head"], strict=True))


def gated_weights(study: Path, seed: int) -> Path:
    """The model folder of the seed's last penalty."""
    found = sorted((study / "work" / "pruning").glob("*/penalty-*/model"), key=lambda folder: folder.parent.name)
    return [one for one in found if json.loads((one / "training.json").read_text())["key"]["seed"] == seed][-1]


def trained_on(stage: Train, weights: Path, removed: HeadSet, folder: Path, options: argparse.Namespace) -> Model:
    """The model that begins with these weights and is trained on without the removed heads."""
    models, recipe = stage.models, stage.recipe
    model = dataclasses.replace(load_model(weights, device="cpu"), name=recipe.name)
    config = dataclasses.replace(
        models.plan.training,
        seed=recipe.seed + 1000,  # other batches than those it has just seen
        updates=options.updates,
        max_source_tokens=None,
        learning_rate=options.rate,
        weight_decay=0.0,
        evaluate_every=0,
        save_every=1000,
        keep_last=1,
    )
    data, frozen = models.training_data(recipe), options.decoder == "frozen"
    recover(model, models.objective(recipe), data, config, folder, removed=removed, freeze_decoder=frozen)
    return model


def scored(run: Run, stage: Train, heads: str, options: argparse.Namespace) -> pd.DataFrame:
    """Loss and BLEU of one model with these heads; its replicates stay in its folder."""
    models, recipe = stage.models, stage.recipe
    removed = removed_heads(run, recipe.name, heads)
    weights = gated_weights(run.path, recipe.seed) if heads == "gates" else models.published(recipe)
    folder = options.out / f"seed-{recipe.seed}-{heads}-{options.decoder}-{options.rate:g}-{options.updates}"
    model = trained_on(stage, weights, removed, folder, options)
    num_heads = sum(head[:2] == ("encoder", "self") for head in all_heads(model.anatomy))
    facts = [recipe.seed, heads, options.decoder, options.rate, options.updates, num_heads - len(removed)]
    plan, objective = models.plan, models.objective(recipe)
    sentences = at_most(models.data.analysed, plan.pruning.score_sentences)
    reading = PassOptions(tokens_per_batch=plan.analysis.tokens_per_batch, corruption=objective)
    before = run.tables["pruning"].query("method == 'unpruned' and model == @recipe.name").set_index("metric")["value"]
    rows, scores = [], {}
    for metric in ("loss", "bleu"):
        found = quality(model, sentences, removed, metric, beams=plan.analysis.beams, options=reading)
        scores[metric] = found["scores"]
        numbers = estimate(found["scores"][0], found["scores"][1:], before[metric], found["count"])
        rows.append({**dict(zip(KEYS, facts, strict=True)), "metric": metric, **numbers})
    with atomic_write(folder / SCORES) as temporary, temporary.open("wb") as file:
        np.savez(file, **scores)
    return pd.DataFrame(rows).drop(columns="replicates")


def gaps(out: Path, run: Run) -> pd.DataFrame:
    """Mean differences over seeds of what was trained alike, and of each from the converged model."""
    scores = defaultdict[tuple, dict[str, dict[int, np.ndarray]]](lambda: defaultdict(dict))
    for path in sorted(out.glob(f"seed-*/{SCORES}")):
        seed, heads, decoder, rate, updates = FOLDER.fullmatch(path.parent.name).groups()  # type: ignore[union-attr]
        for metric, values in np.load(path).items():
            scores[decoder, float(rate), int(updates), metric][heads][int(seed)] = values
    for row in run.tables["pruning"].query("method == 'unpruned'").itertuples():
        for setting, of_heads in scores.items():
            if setting[-1] == row.metric:
                of_heads[CONVERGED][row.seed] = np.array([row.value, *row.replicates])
    rows = []
    for setting, of_heads in scores.items():
        for one, other in combinations((*HEADS, CONVERGED), 2):
            seeds = sorted(set(of_heads[one]) & set(of_heads[other]))
            if len(seeds) < 2:
                continue
            apart = np.array([of_heads[one][seed] - of_heads[other][seed] for seed in seeds])
            low, high = interval_over_seeds([(seed,) for seed in seeds], apart[:, 0], apart[:, 1:])
            named = dict(zip(("decoder", "learning_rate", "updates", "metric"), setting, strict=True))
            value = apart[:, 0].mean()
            rows.append(
                {**named, "heads": one, "less": other, "value": value, "low": low, "high": high, "seeds": len(seeds)}
            )
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=HEADS)
    parser.add_argument("--decoder", choices=("frozen", "along"), default="frozen")
    parser.add_argument("--rate", type=float, default=1e-3, help="highest; it falls to 0")
    parser.add_argument("--updates", type=int, default=4500)
    parser.add_argument("--results", type=Path, default=HERE / "recovered.csv")
    options = parser.parse_args()
    set_threads(1)
    run = Run.open(options.study)
    stages = [one for one in run.stages.of(Train) if one.recipe.objective.name == "translation"]
    with use_display(make_display("plain")):
        for stage in stages:
            if options.seeds and stage.recipe.seed not in options.seeds:
                continue
            for heads in options.heads:
                new = scored(run, stage, heads, options)
                put(new, options.results, [*KEYS, "metric"], KEYS)
                print(new.to_string(index=False), flush=True)
    with atomic_write(options.results.with_name(f"{options.results.stem}_gaps.csv")) as temporary:
        gaps(options.out, run).to_csv(temporary, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
