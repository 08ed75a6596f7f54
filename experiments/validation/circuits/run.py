"""Do scores of heads find the heads that are known to matter?

    python experiments/validation/circuits/run.py [--programs 100]

A hundred random programs (`tests/support/compiled.py`) are compiled into Transformers, whose heads are scored in every
way. `heads.csv` gets a row for each program, score and head, `auc.csv` the summary. Programs that `heads.csv` has are
not run again.
"""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import infoflow
from infoflow.corpus import Corpus, Vocabulary
from infoflow.heads import Ablation, Confidence, Importance, Relevance
from infoflow.models import Model
from infoflow.objectives import make_objective
from infoflow.pruning import learn_gates
from infoflow.subjects.pruning.measures import greedy_pruning
from infoflow.training import TrainConfig, TrainingData

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[2] / "tests"))
from support.compiled import Program, compiled, random_program, repeating, sampled  # noqa: E402

SENTENCES = 200
RULES = ("voita", "gradient-x-input", "cp-lrp", "attn-lrp", "chefer", "alti", "rollout", "flow", "logit-attribution")
GATES = TrainConfig(
    updates=100, batch_tokens=512, learning_rate=8e-3, warmup=0, schedule="constant", weight_decay=0.0, device="cpu",
    precision="fp32", save_every=100,
)  # fmt: skip


def compiled_scores(program: Program, folder: Path) -> pd.DataFrame:
    """`scores` of the compiled program, with random ones, and whether each head matters."""
    model = compiled(program)
    text = sampled(model, program, SENTENCES, 1) if program.causal else repeating(program, program.length // 4, 200, 1)
    found = scores(model, corpus_of(text, folder), program.length + 1, folder)
    matters = program.matters()
    found["matters"] = [matters[key] for key in zip(found["layer"], found["head"], strict=True)]
    chance = found[found["score"] == "importance"].assign(
        score="random", value=np.random.default_rng(program.seed).random(len(matters))
    )
    return pd.concat([found, chance], ignore_index=True)


def corpus_of(text: list[str], folder: Path) -> Corpus:
    (folder / "text.txt").write_text("\n".join(text) + "\n")
    return infoflow.load_corpus(str(folder / "text.txt"))


def scores(model: Model, corpus: Corpus, max_length: int, folder: Path) -> pd.DataFrame:
    """A row for each score and head: larger for a head that is said to matter more."""
    frames = [
        _named(measure, name, model, corpus)
        for name, measure in {
            "importance": Importance(),
            "importance (token)": Importance("token"),
            **{f"ablation ({mode})": Ablation(mode=mode, others=False) for mode in ("zero", "mean", "resample")},
            **{f"relevance ({rule})": Relevance(rule, sentences=30, normalise="abs") for rule in RULES},
            "confidence": Confidence(),
        }.items()
    ]
    frames += [_greedy(model, corpus), _gates(model, corpus, max_length, folder)]
    return pd.concat(frames, ignore_index=True)


def _named(measure, name: str, model: Model, corpus: Corpus) -> pd.DataFrame:
    (frame,) = infoflow.measure(model, corpus, [measure]).values()
    return frame.assign(score=name)[["score", "layer", "head", "value"]]


def _greedy(model: Model, corpus: Corpus) -> pd.DataFrame:
    """The number of steps of greedy removal, with importance ranked anew after each, that a head survives."""
    num = sum(one.num_heads for one in model.anatomy.attentions())
    half = len(corpus) // 2
    tables = greedy_pruning(
        model, corpus.select(range(half)), corpus.select(range(half, 2 * half)), by="iterative", keep=range(num)
    )
    survived = tables["pruned_heads"].groupby(["layer", "head"], as_index=False)["alive"].sum()
    return survived.assign(score="greedy removal", value=survived["alive"])[["score", "layer", "head", "value"]]


def _gates(model: Model, corpus: Corpus, max_length: int, folder: Path) -> pd.DataFrame:
    """log α of learned gates, weights frozen."""
    objective = make_objective(model.task)
    source = corpus.encode(model.tokenizer, max_length=max_length)
    data = TrainingData(source=source, vocabulary=Vocabulary.from_tokenizer(model.tokenizer))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (point,) = learn_gates(
            model, objective, data, GATES, folder / "gates", penalties=[0.3], kinds=None, rest="freeze", gate_rate=20.0
        )
    rows = [{"score": "learned gates", "layer": h[2], "head": h[3]} for h in point.heads]
    return pd.DataFrame(rows).assign(value=point.values)


def auc(rows: pd.DataFrame, per: list[str]) -> np.ndarray:
    """Of each program with both, the probability that a head that matters is above one that does not; ties count half.

    Compared are heads of one program, or of one layer of it, as `per` says. A head without a value counts as 0: its
    layer contributes nothing.
    """
    rows = rows.assign(value=rows["value"].fillna(0))
    pairs = rows[rows["matters"]].merge(rows[~rows["matters"]], on=per, suffixes=("", "_idle"))
    difference = pairs["value"] - pairs["value_idle"]
    return difference.gt(0).where(difference != 0, 0.5).groupby(pairs["program"]).mean().to_numpy(float)


def summary(heads: pd.DataFrame) -> pd.DataFrame:
    """Means over programs, with 95 % intervals by resampling programs, of the AUC within layers and within models."""
    random, rows = np.random.default_rng(0), []
    for (score, causal), own in heads.groupby(["score", "causal"]):
        row = {"score": score, "causal": causal}
        for name, per in (("layer", ["program", "layer"]), ("model", ["program"])):
            each = auc(own, per)
            low, high = np.quantile(random.choice(each, (10_000, len(each))).mean(axis=1), [0.025, 0.975])
            row |= {f"{name}_auc": each.mean(), f"{name}_low": low, f"{name}_high": high}
            row |= {f"{name}_perfect": (each == 1).mean(), f"{name}_programs": len(each)}
        rows.append(row)
    return pd.DataFrame(rows).sort_values(["causal", "layer_auc", "model_auc"], ascending=False).round(3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    path = HERE / "heads.csv"
    done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["program"])
    frames = [done] if len(done) else []
    for seed in sorted({*range(arguments.programs)} - {*done["program"]}):
        program = random_program(seed)
        with tempfile.TemporaryDirectory() as folder:
            found = compiled_scores(program, Path(folder))
        frames.append(found.assign(program=seed, causal=program.causal))
        pd.concat(frames, ignore_index=True).to_csv(path, index=False, float_format="%.6g")
        print(seed, flush=True)
    table = summary(pd.read_csv(path))  # as rounded there, so that equal heads tie
    table.to_csv(HERE / "auc.csv", index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
