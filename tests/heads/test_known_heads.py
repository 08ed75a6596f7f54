"""Models compiled from programs of heads: their attention, head tables, and scores find what was programmed."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from support.compiled import HeadProgram, Program, attention_of, compiled, random_program, repeating, sampled

from infoflow.corpus import Corpus
from infoflow.flow import measure
from infoflow.heads import Ablation, Confidence, Entropy, Importance, PositionalScores, Relevance
from infoflow.models import Model

HERE = Path(__file__).parents[2] / "experiments/validation/circuits"
OFFSETS = (-3, -2, -1, 0, 1, 2, 3)
INDUCTION = Program(
    layers=[
        [HeadProgram(attends="offset", offset=-1), HeadProgram(attends="token", word=2), HeadProgram(attends="random")],
        [
            HeadProgram(attends="after-same", reads=0, evidence=4.0, copies=True),
            HeadProgram(attends="even"),
            HeadProgram(attends="offset", offset=-2, evidence=2.0),
        ],
    ]
)
PERIOD = Program(
    layers=[
        [
            HeadProgram(attends="offset", offset=-3, evidence=4.0, copies=True),
            HeadProgram(attends="same"),
            HeadProgram(attends="offset", offset=3, evidence=4.0, copies=True),
            HeadProgram(attends="offset", offset=1),
        ]
    ],
    causal=False,
)


def written(program: Program, num: int) -> tuple[Model, list[str]]:
    model = compiled(program)
    return model, sampled(model, program, num, 1) if program.causal else repeating(program, 3, num, 1)


def corpus_of(sentences: list[str], folder: Path) -> Corpus:
    path = folder / "sentences.txt"
    path.write_text("\n".join(sentences) + "\n")
    return Corpus.from_text(path)


def words_of(sentence: str) -> list[int]:
    return [int(word[1:]) for word in sentence.split()]


def with_purpose(program: Program) -> list[tuple[int, int]]:
    return [
        (layer, head)
        for layer, heads in enumerate(program.layers)
        for head, each in enumerate(heads)
        if each.attends != "random"
    ]


@pytest.mark.parametrize("program", [INDUCTION, PERIOD, random_program(1), random_program(8)], ids=str)
def test_attention_is_what_was_programmed(program):
    model, sentences = written(program, 3)
    model.module.set_attn_implementation("eager")
    for sentence in sentences:
        ids = torch.tensor([model.tokenizer(sentence)["input_ids"]])
        with torch.no_grad():
            found = model.module(input_ids=ids, output_attentions=True).attentions
        for layer, head in with_purpose(program):
            expected = attention_of(program, layer, head, words_of(sentence))
            np.testing.assert_allclose(found[layer][0, head].numpy(), expected, atol=1e-6)


def test_a_causal_model_is_calibrated():
    """It wrote the text itself: the mean of −log p is the entropy of its predictions."""
    model, sentences = written(INDUCTION, 400)
    ids = torch.tensor([model.tokenizer(sentence)["input_ids"] for sentence in sentences])
    with torch.no_grad():
        logs = model.module(input_ids=ids).logits[:, :-1].log_softmax(-1)
    losses = -logs.gather(2, ids[:, 1:, None])[..., 0]
    entropies = -(logs.exp() * logs).sum(-1)
    error = (losses - entropies).mean(1)
    assert abs(error.mean()) < 3 * error.std() / len(error) ** 0.5
    assert losses.mean() < 0.8 * np.log(INDUCTION.words)


@pytest.mark.parametrize("program", [INDUCTION, PERIOD], ids=["induction", "period"])
def test_head_tables_are_those_of_loops(program, tmp_path):
    """Without BOS as query and key, as in the definitions; weights are not renormalised."""
    model, sentences = written(program, 12)
    measures = [Confidence(), Entropy(), PositionalScores(offsets=OFFSETS)]
    tables = measure(model, corpus_of(sentences, tmp_path), measures)
    for layer, head in with_purpose(program):
        rows = [attention_of(program, layer, head, words_of(each))[1:, 1:] for each in sentences]
        seen = np.tril(np.ones_like(rows[0], bool)) if program.causal else np.ones_like(rows[0], bool)
        largest = np.mean([row.max() for of in rows for row in of])
        entropy = np.mean([-(row[row > 1e-9] * np.log(row[row > 1e-9])).sum() for of in rows for row in of])
        assert value(tables["head_confidence"], layer, head) == pytest.approx(largest, abs=1e-6)
        assert value(tables["head_entropy"], layer, head) == pytest.approx(entropy, abs=1e-5)
        for offset in OFFSETS if program.layers[layer][head].attends == "offset" else ():  # others tie but for rounding
            hits = [
                shares(row, seen[i])[i + offset]
                for of in rows
                for i, row in enumerate(of)
                if 0 <= i + offset < len(row) and seen[i, i + offset]
            ]
            if hits:
                own = value(tables["head_positional"], layer, head, offset=offset)
                assert own == pytest.approx(np.mean(hits), abs=1e-6), (layer, head, offset)


def shares(row: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """1/m for each of m visible keys with the largest weight."""
    best = seen & (row > row[seen].max() - 1e-9)
    return best / best.sum()


def value(table, layer, head, **keys):
    rows = table[(table["layer"] == layer) & (table["head"] == head)]
    for name, key in keys.items():
        rows = rows[rows[name] == key]
    (found,) = rows["value"]
    return found


@pytest.mark.parametrize("seed", [1, 2, 8])
def test_the_heads_that_matter_are_found(seed, tmp_path):
    program = random_program(seed)
    model = compiled(program)
    text = sampled(model, program, 100, 1) if program.causal else repeating(program, program.length // 4, 100, 1)
    corpus = corpus_of(text, tmp_path)
    matters = program.matters()
    for found in (Importance(), Ablation(others=False), Relevance("gradient-x-input", sentences=30, normalise="abs")):
        (table,) = measure(model, corpus, [found]).values()
        scores = {key: value(table, *key) for key in matters}
        least = min(scores[key] for key in matters if matters[key])
        assert least > max(scores[key] for key in matters if not matters[key]), type(found).__name__


def test_the_validation_of_scores_is_complete_and_true():
    """`experiments/validation/circuits`: the committed summary is that of the committed rows, for today's programs."""
    sys.path.append(str(HERE))
    import pandas as pd
    from run import summary

    heads, table = pd.read_csv(HERE / "heads.csv"), pd.read_csv(HERE / "auc.csv")
    pd.testing.assert_frame_equal(summary(heads).reset_index(drop=True), table, check_dtype=False)
    assert heads["program"].nunique() == 100
    for program, rows in heads.groupby("program"):
        known = {(int(layer), int(head)): matters for layer, head, matters in rows[["layer", "head", "matters"]].values}
        assert known == random_program(program).matters()


def test_trained_models_hold_the_task_in_the_heads_with_the_programmed_role():
    """`experiments/validation/circuits/trained.csv`: a row for each head of eight models."""
    heads = pd.read_csv(HERE / "trained.csv")
    models = heads.groupby(["program", "seed"])
    assert (models.size() == 8).all()
    assert len(models) == 8
    assert (models["excess"].first() < 0.05).all()
    assert (models["without_roles"].first() > 0.3).all()
    offsets = heads[heads["program"] != "induction"]
    assert (offsets["without_others"] < 0.01).all()
