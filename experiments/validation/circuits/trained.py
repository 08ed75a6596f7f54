"""Does what holds for compiled circuits hold for models that learned the same tasks?

    python experiments/validation/circuits/trained.py

Small GPT-2s learn from text that compiled programs wrote. `trained.csv` gets a row for each head of each model, with
the effect of its ablation on other text, its attention by the roles of the program, and all scores of `run.py`. Models
that it has are not trained again.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from run import SENTENCES, auc, corpus_of, scores
from transformers import GPT2Config, GPT2LMHeadModel

import infoflow
from infoflow.heads import Ablation, PatternScores, PositionalScores, ablate
from infoflow.models import Model, load_model

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[2] / "tests"))
from support.compiled import HeadProgram, Program, compiled, sampled  # noqa: E402

SEEDS, BATCH, RATE = (0, 1), 64, 3e-3
UPDATES = {"previous": 1000, "offset −2": 1000, "offsets 0 and −3": 1000, "induction": 2500}
LAYERS, HEADS, WIDTH = 2, 4, 64
OFFSETS = (-3, -2, -1, 0)
PROGRAMS = {
    "previous": Program(layers=[[HeadProgram(attends="offset", offset=-1, evidence=4.0, copies=True)]], length=16),
    "offset −2": Program(layers=[[HeadProgram(attends="offset", offset=-2, evidence=4.0, copies=True)]], length=16),
    "offsets 0 and −3": Program(
        layers=[[HeadProgram(attends="offset", offset=by, evidence=2.0) for by in (0, -3)]], length=16
    ),
    "induction": Program(
        layers=[
            [HeadProgram(attends="offset", offset=-1, evidence=2.0)],  # without evidence it is not learned in time
            [HeadProgram(attends="after-same", evidence=5.0, copies=True)],
        ],
        words=12,
        length=24,
    ),
}
ROLES = {  # what the program's heads attend to; a Transformer needs no head for offset 0
    "previous": ["offset -1"],
    "offset −2": ["offset -2"],
    "offsets 0 and −3": ["offset -3"],
    "induction": ["offset -1", "induction"],
}
ROLE = 0.8  # least share of queries, or of attention, of a head with a role


def ids_of(model: Model, text: list[str]) -> torch.Tensor:
    return torch.tensor(model.tokenizer(text)["input_ids"])


def trained(teacher: Model, text: list[str], seed: int, updates: int) -> Model:
    """A GPT-2 after AdamW on this text, with a linear decay of the learning rate."""
    torch.manual_seed(seed)
    ids = ids_of(teacher, text)
    config = GPT2Config(
        vocab_size=len(teacher.tokenizer), n_positions=ids.shape[1], n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=None, pad_token_id=1,
    )  # fmt: skip
    module = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 50) * (1 - step / updates))
    for _ in range(updates):
        batch = ids[torch.randint(len(ids), (BATCH,))]
        module(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return load_model(module.eval(), tokenizer=teacher.tokenizer)


def losses(model: Model, text: list[str]) -> np.ndarray:
    """Mean loss of each sentence, in nats per token."""
    ids = ids_of(model, text)
    with torch.no_grad():
        logs = model.module(input_ids=ids).logits[:, :-1].log_softmax(-1)
    return -logs.gather(2, ids[:, 1:, None])[..., 0].mean(1).numpy()


def rise(model: Model, text: list[str], removed: pd.DataFrame) -> float:
    """Rise of the loss when these heads are all ablated together."""
    heads = [("decoder", "self", layer, head) for layer, head in removed.index]
    with ablate(model, heads, "mean", reference={"input_ids": ids_of(model, text)}):
        without = losses(model, text).mean()
    return without - losses(model, text).mean()


def measured(name: str, seed: int, folder: Path) -> pd.DataFrame:
    """A row for each head."""
    program = PROGRAMS[name]
    teacher = compiled(program)
    model = trained(teacher, sampled(teacher, program, 20_000, 100 + seed), seed, UPDATES[name])
    other = sampled(teacher, program, 2000, 2)
    excess = losses(model, other) - losses(teacher, other)
    found = scores(model, corpus_of(sampled(teacher, program, SENTENCES, 1), folder), program.length + 1, folder)
    table = found.pivot(index=["layer", "head"], columns="score", values="value")
    tables = infoflow.measure(
        model,
        corpus_of(other[:1000], folder),
        [
            Ablation(mode="mean", others=False, sentences=None),
            PositionalScores(offsets=OFFSETS),
            PatternScores(length=8, repeats=2),
        ],
    )
    effects = tables["head_ablation"].set_index(["layer", "head"])
    positional = tables["head_positional"].pivot(index=["layer", "head"], columns="offset", values="value")
    patterns = tables["head_patterns"].set_index(["layer", "head"])
    induction = patterns[(patterns["pattern"] == "induction") & (patterns["score"] == "valid rows")]["value"]
    facts = {
        "loss": losses(model, other).mean(), "entropy": losses(teacher, other).mean(),
        "excess": excess.mean(), "excess_error": excess.std() / len(excess) ** 0.5,
    }  # fmt: skip
    roles = {f"offset {offset}": positional[offset] for offset in OFFSETS} | {"induction": induction}
    effect = {"effect": effects["value"], "low": effects["low"], "high": effects["high"]}
    table = table.assign(program=name, seed=seed, **facts, **effect, **roles)
    table["role"] = (table[ROLES[name]] >= ROLE).any(axis=1)
    together = {
        f"without_{of}": rise(model, other, table[table["role"] == (of == "roles")]) for of in ("roles", "others")
    }
    return table.assign(**together).reset_index()


def summary(heads: pd.DataFrame) -> pd.DataFrame:
    """How each score agrees with the effects of single heads, and with the roles of the program.

    `layer_auc` and `model_auc` compare heads with an effect above 0 (by its interval) with the others, `role_auc` heads
    that have a role. Means over models, with 95 % intervals by resampling models.
    """
    random, rows = np.random.default_rng(0), []
    for score in heads.columns[2 : heads.columns.get_loc("program")]:
        own = heads.assign(value=heads[score].fillna(0), matters=heads["low"] > 0)
        of_models = [part for _, part in own.groupby(["program", "seed"])]
        row = {"score": score}
        row |= _mean("layer_auc", np.concatenate([auc(part, ["layer"]) for part in of_models]), random)
        row |= _mean("model_auc", np.concatenate([auc(part, ["program"]) for part in of_models]), random)
        of_roles = [part.assign(matters=part["role"]) for part in of_models]
        row |= _mean("role_auc", np.concatenate([auc(part, ["program"]) for part in of_roles]), random)
        ranks = [part["value"].corr(part["effect"], method="spearman") for part in of_models]
        row |= _mean("spearman", np.array(ranks), random)
        rows.append(row)
    return pd.DataFrame(rows).sort_values("model_auc", ascending=False).round(3)


def _mean(name: str, values: np.ndarray, random: np.random.Generator) -> dict[str, float]:
    each = values[np.isfinite(values)]
    low, high = np.quantile(random.choice(each, (10_000, len(each))).mean(axis=1), [0.025, 0.975])
    return {name: each.mean(), f"{name}_low": low, f"{name}_high": high}


def main() -> None:
    torch.set_num_threads(1)
    path = HERE / "trained.csv"
    frames = [pd.read_csv(path)] if path.exists() else []
    done = {key for frame in frames for key in zip(frame["program"], frame["seed"], strict=True)}
    for seed in SEEDS:
        for name in PROGRAMS:
            if (name, seed) in done:
                continue
            with tempfile.TemporaryDirectory() as folder:
                frames.append(measured(name, seed, Path(folder)))
            pd.concat(frames, ignore_index=True).to_csv(path, index=False, float_format="%.5g")
            print(name, seed, flush=True)
    print(summary(pd.read_csv(path)).to_string(index=False))


if __name__ == "__main__":
    main()
