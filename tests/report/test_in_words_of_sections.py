"""The sentences above figures of probes, alignment, pruning and training, worked out by hand from a few numbers.

Two seeds that lie 4 thousandths apart have a 95% interval of 12.706 × .002 = .0254 to either side of their mean: the
quantile of Student's t for one degree of freedom, times half their distance.
"""

import math
from collections.abc import Iterable, Mapping

import pandas as pd
import probed
import pytest
import small_run
from drawn import drawn_figures
from dynamics.synthetic import Recordings
from dynamics.synthetic import write_run as write_recorded
from pruning.synthetic import Sweeps
from pruning.synthetic import write_run as write_pruned
from synthetic_run import make_study
from test_alignment import rows as alignment_rows

from infoflow.alignment import ALIGNMENT
from infoflow.results import Column

SEEDS = (1, 2)
UPOS, CHUNKS = "for part of speech in masked LM", "for chunks in masked LM"


def rows(
    by_layer: Mapping[int, tuple[float, float]], trained: bool = True, objective: str = "masked-lm", **place: object
) -> Iterable[dict]:
    """A row for each layer and seed."""
    for layer, values in by_layer.items():
        for seed, value in zip(SEEDS, values, strict=True):
            keys = small_run.keys_of(objective, seed, trained)
            yield keys | {"stack": "encoder", "layer": layer} | place | small_run.estimate(value, baseline=0.1)


def score_rows(task: str, trained: Mapping, untrained: Mapping, **place: object) -> list[dict]:
    facts = {"task": task, "unit": "token", "probe": "linear", "labels": "task", "words": "all", "metric": "accuracy"}
    facts |= {"share": 1.0, "training": 100, "capacity": 9} | place
    return [*rows(trained, **facts), *rows(untrained, trained=False, **facts)]


GREY = {0: (0.5, 0.5), 1: (0.4, 0.4)}
FEW = {"share": 0.1, "training": 10}
SCORES = [
    *score_rows("upos", {0: (0.5, 0.5), 1: (0.8, 0.804)}, GREY),
    *score_rows("chunks", {0: (0.65, 0.654), 1: (0.6, 0.6)}, GREY),
    *score_rows("upos", {0: (0.4, 0.4), 1: (0.6, 0.604)}, {0: (0.4, 0.4), 1: (0.4, 0.4)}, **FEW),
    *score_rows("chunks", {0: (0.45, 0.454), 1: (0.4, 0.4)}, {0: (0.4, 0.4), 1: (0.4, 0.4)}, **FEW),
    *score_rows("upos", {0: (0.1, 0.1), 1: (0.2, 0.204)}, {}, metric="selectivity"),
    *score_rows("chunks", {0: (0.1, 0.104), 1: (0.02, 0.02)}, {}, metric="selectivity"),
]


def code_rows(labels: str, metric: str, *by_layer: tuple[float, float]) -> list[dict]:
    place = {"task": "upos", "unit": "token", "probe": "linear", "labels": labels, "code": "online", "metric": metric}
    return list(rows(dict(enumerate(by_layer)), **place, units="bits", training=100, capacity=9))


CODES = [
    *code_rows("task", "compression", (3.0, 3.0), (4.0, 4.1)),
    *code_rows("control", "compression", (2.0, 2.0), (2.0, 2.0)),
    *code_rows("task", "model_bits", (20_000, 20_000), (12_000, 12_400)),
    *code_rows("control", "model_bits", (30_000, 30_000), (30_000, 30_000)),
]


def depth_rows(task: str, layer: float, warning: str = "") -> dict:
    place = {"task": task, "unit": "token", "stack": "encoder", "statistic": "expected_layer", "warning": warning}
    sizes = {"training": 100, "capacity": 9}
    return small_run.keys_of("masked-lm", 1) | place | sizes | small_run.estimate(layer, 0.1)


TREE = {"structure": "distance", "metric": "uuas", "probe": "structural", "rank": 8, "training": 100, "no_tree": 0}
PAIRS = {"phenomenon": "all", "metric": "preferred", "ties": 0}


@pytest.fixture(scope="module")
def probes(tmp_path_factory):
    run = small_run.write_run(
        tmp_path_factory.mktemp("probes"),
        probe_scores=SCORES,
        probe_codelength=CODES,
        probe_depth=[depth_rows("upos", 2.0), depth_rows("chunks", 1.0), depth_rows("deprel", 5.0, "little is added")],
        probe_trees=[
            *rows({0: (0.5, 0.5), 1: (0.7, 0.704)}, **TREE),
            *rows({0: (0.5, 0.5), 1: (0.4, 0.4)}, trained=False, **TREE),
        ],
        minimal_pairs=[
            *rows({0: (0.5, 0.5), 1: (0.8, 0.804)}, **PAIRS),
            *rows({0: (0.5, 0.5), 1: (0.55, 0.554)}, objective="causal-lm", **PAIRS),
        ],
        probe_examples=probed.example_rows(("masked-lm",), SEEDS),
    )
    return {name: figure.words for name, figure in drawn_figures(run, "probing").items()}


PROBES = {
    # .802 − .5; .652 − .5
    "probe-accuracy": f"The gain in accuracy over an untrained model's best layer is highest {UPOS}, 0.30 (0.28 to "
    f"0.33); lowest {CHUNKS}, 0.15 (0.13 to 0.18); clearly above 0 in 2 of 2 cases.",
    "probe-selectivity": f"Selectivity at its best layer is highest {UPOS}, 0.20 (0.18 to 0.23); lowest {CHUNKS}, 0.10 "
    "(0.08 to 0.13); clearly above 0 in 2 of 2 cases.",
    # .602 − .4; .452 − .4
    "probe-examples": f"With 10 examples, the gain in accuracy over an untrained model is highest {UPOS}, 0.20 (0.18 "
    f"to 0.23); lowest {CHUNKS}, 0.05 (0.03 to 0.08); clearly above 0 in 2 of 2 cases.",
    # of 9 examples one is right in all states, one only below the top, one in none
    "probe-solved": "Examples that are right only from a state above the embeddings on: 6 of 9 in masked LM; 0 of 9 "
    "in untrained models.",
    # the square root of 4 × 4.1 is 4.05; its logarithm ± 12.706 × half of log(4.1 / 4)
    "probe-bits": f"Compression, as a multiple of the control task's in the same layer, is 2.0 (1.7 to 2.4) {UPOS}.",
    "probe-size": f"The smallest probe that a task takes is 12 kbit (10 to 15) {UPOS}; clearly smaller than its "
    "control's in 1 of 1 cases.",
    "probe-depth": f"The expected layer is highest {UPOS}, 2.00 (1.90 to 2.10); lowest {CHUNKS}, 1.00 (0.90 to 1.10).",
    "probe-trees": "UUAS at the best layer, above an untrained model's best layer, is 0.20 (0.18 to 0.23) in masked "
    "LM.",
    "probe-pairs": "The share of acceptable sentences preferred, at the best layer, is highest in masked LM, 0.80 "
    "(0.78 to 0.83); lowest in causal LM, 0.55 (0.53 to 0.58); chance is 0.5, and it is clearly above 0.5 in 2 of 2 "
    "cases.",
}


@pytest.mark.parametrize("figure", PROBES)
def test_probes(probes, figure):
    assert probes[figure] == PROBES[figure]


def test_probes_that_are_not_told_apart_share_one_number(tmp_path):
    """Seeds .1 apart: ± .64. Layers are not told apart either."""
    scores = [
        *score_rows("upos", {0: (0.5, 0.6), 1: (0.7, 0.8)}, {0: (0.5, 0.5), 1: (0.4, 0.5)}),
        *score_rows("chunks", {0: (0.5, 0.4), 1: (0.5, 0.6)}, {0: (0.4, 0.4), 1: (0.3, 0.3)}),
    ]
    figures = drawn_figures(small_run.write_run(tmp_path, probe_scores=scores), "probing")
    assert figures["probe-accuracy"].words == (
        f"The gain in accuracy over an untrained model's best layer is 0.2 (−0.4 to 0.7) {UPOS}, with no clear "
        "difference from the others; clearly above 0 in 0 of 2 cases."
    )


ALIGNED = {
    ("retrieval forward", "aligned"): (0.5, 0.504),
    ("retrieval forward", "unaligned"): (0.2, 0.2),
    ("retrieval forward", "shuffled"): (0.010, 0.012),
    ("average similarity gap", "aligned"): (0.1, 0.1),
    ("average similarity gap", "unaligned"): (0.2, 0.204),
    ("self-similarity gap", "aligned"): (0.3, 0.1),
    ("self-similarity gap", "unaligned"): (0.2, 0.2),
    ("bleu", "unaligned"): (1.0, 1.0),
    ("bleu", "implicit"): (8.0, 8.4),
    ("bleu", "target"): (30.0, 30.0),
}


def test_alignment(tmp_path):
    frame = alignment_rows(SEEDS, {})
    for (metric, kind), values in ALIGNED.items():
        for seed, value in zip(SEEDS, values, strict=True):
            at = (frame["metric"] == metric) & (frame["kind"] == kind) & (frame["seed"] == seed)
            assert at.sum() == 1
            frame.loc[at, "value"] = value
    frame["replicates"] = [[] for _ in frame.index]
    run = make_study(tmp_path, seeds=SEEDS, tables=("training_runs",))
    seed = Column(name="seed", dtype="int64", unit="", description="seed")
    run.tables.write(frame, ALIGNMENT.with_keys(seed))
    figures = drawn_figures(run, "alignment")
    assert figures["alignment-scores"].words == (
        "Alignment finds 0.50 (0.48 to 0.53) of the words, 0.30 (0.28 to 0.33) more than a linear map; on shuffled "
        "links it finds 0.011 (−0.002 to 0.024)."
    )
    assert figures["alignment-curves"].words == (
        "Alignment narrows the gap to translation in average similarity by 0.10 (0.08 to 0.13) and does not clearly "
        "change the gap to translation in self-similarity."
    )
    assert figures["alignment-bleu"].words == (
        "Fine-tuned, the encoder gives BLEU 8 (6 to 11), 7 (5 to 10) more than before and 22 (19 to 24) less than "
        "the decoder's own encoder."
    )


def pruned(method: str, *points: tuple[float, int, tuple[float, float]], undecided: tuple[int, int] = (0, 0)):
    """Rows of a sweep over 8 heads of an encoder: setting, heads left, and BLEU of each seed."""
    for point, (setting, left, scores) in enumerate(points):
        for seed, value, open_gates in zip(SEEDS, scores, undecided, strict=True):
            keys = {"model": f"translation/seed-{seed}", "objective": "translation", "seed": seed, "trained": True}
            keys |= {"method": method, "scope": "encoder-self", "draw": 0, "point": point, "setting": setting}
            keys |= {"kept": left, "total": 8, "kept_encoder_self": left, "kept_decoder_self": 0}
            keys |= {"kept_decoder_cross": 0, "undecided": 8 if setting == 0 else open_gates, "metric": "bleu"}
            yield keys | {"value": value, "low": math.nan, "high": math.nan, "baseline": 30.0, "count": 9} | {
                "replicates": [], "signature": ""
            }  # fmt: skip


class Swept(Sweeps):
    """Eight heads: two layers of four."""

    def tables(self) -> dict[str, pd.DataFrame]:
        learned = ((0.0, 8, (30.0, 30.0)), (0.1, 4, (29.8, 29.8)), (0.2, 2, (20.0, 20.0)))
        curves = [
            *pruned("hard-concrete", *learned, undecided=(2, 1)),
            *pruned("random", (8, 8, (30.0, 30.0)), (6, 6, (29.9, 29.9)), (4, 4, (25.0, 25.0))),
            *pruned("scratch", (0.0, 8, (30.0, 30.0)), (0.1, 4, (28.8, 28.4)), (0.2, 2, (19.0, 18.6))),
        ]
        return {"pruning": pd.DataFrame(curves), "pruned_heads": self.alive(), "pruned_roles": self.held()}

    def alive(self) -> pd.DataFrame:
        """Half of the heads go: three of the lower layer, one of the upper."""
        gone = {(0, 1), (0, 2), (0, 3), (1, 0)}
        return pd.DataFrame(
            self.place(seed, point, layer, head)
            | {"alive": point == 0 or (layer, head) not in gone, "gate": 1.0, "log_alpha": 3.0}
            for seed in SEEDS
            for point in (0, 1)
            for layer in (0, 1)
            for head in range(4)
        )

    def held(self) -> pd.DataFrame:
        """Of four heads one is left: the only one with the first function; the other two functions are another's."""
        holders = {"first": 0, "second": 1, "third": 1}
        score = {"score": 0.9, "baseline": 0.2, "low": 0.8, "high": 1.0}
        return pd.DataFrame(
            self.place(seed, point, 0, head)
            | {"role": role, **score, "present": head == holder, "alive": point < 0 or head == 0}
            for seed in SEEDS
            for point in (-1, 0)
            for role, holder in holders.items()
            for head in range(4)
        )

    @staticmethod
    def place(seed: int, point: int, layer: int, head: int) -> dict:
        keys = {"model": f"translation/seed-{seed}", "objective": "translation", "seed": seed, "trained": True}
        keys |= {"method": "hard-concrete", "scope": "encoder-self", "draw": 0, "point": point}
        return keys | {"stack": "encoder", "kind": "self", "layer": layer, "head": head}


PRUNED = {
    # .2 BLEU are lost with half of the heads, 10 with three quarters: ½ + ¼ · .3 / 9.8; at random ¼ + ¼ · .4 / 4.9
    "pruning-quality": "In translation, 51% of encoder heads can go before BLEU is 0.5 worse (learned gates; in random "
    "order 27%).",
    "pruning-kinds": "With 4 of 8 heads of translation left, the share left is highest in layer 1, 75.0%; lowest in "
    "layer 0, 25.0%.",
    "pruning-functions": "With 1 of 4 heads left, translation holds 33% of its functions, compared with the 25% that "
    "as many random heads would keep (lost: second and third).",
    # seed 1 by 1.0 at both points, seed 2 by 1.4: ± 12.706 × .2
    "pruning-scratch": "The pruned model's advantage is 1 BLEU (−1 to 4) for encoder heads of translation.",
    # 2 and 1 of 8: 18.75 ± 79.4, cut at 0
    "pruning-gates": "At the largest penalty, the share of undecided gates is 19% (1 to 87) for encoder heads of "
    "translation; without a penalty it is 100%.",
}


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory):
    run = write_pruned(tmp_path_factory.mktemp("swept"), Swept(seeds=SEEDS), judged=False)
    return {name: figure.words for name, figure in drawn_figures(run, "pruning").items()}


@pytest.mark.parametrize("figure", PRUNED)
def test_pruning(sweeps, figure):
    assert sweeps[figure] == PRUNED[figure]


class Recorded(Recordings):
    """The invented recordings, with numbers of a causal and a masked LM that can be added up by hand."""

    def tables(self) -> dict[str, pd.DataFrame]:
        tables = super().tables()
        own = {
            name: frame[frame["objective"] != "translation"] if "objective" in frame else frame
            for name, frame in tables.items()
        }
        steps, heads, groups, counts = (own[f"allocation_{name}"] for name in ("steps", "heads", "groups", "histogram"))
        feed = steps["component"].isin(["mlp_in", "mlp_out"])
        # Five small parts beside two large ones: 2 × 5 of 15 in the causal LM, 2 × 1 of 7 in the masked LM.
        own["allocation_steps"] = steps.assign(
            value=-1.0 - 4.0 * (feed & (steps["objective"] == "causal-lm")).to_numpy(float)
        ).loc[steps["layer"] >= 0]
        own["allocation_groups"] = groups.assign(
            parameters=(100 * groups["component"].map({"mlp_in": 4, "mlp_out": 4}).fillna(1)).astype(int)
        )
        # Layer 2 of the masked LM has 4 times as much as each of the five others: 4 of 9.
        much = (heads["layer"] == 2) & (heads["objective"] == "masked-lm")
        own["allocation_heads"] = heads.assign(value=-1.0 - 3.0 * much.to_numpy(float))
        # In the masked LM nothing that moved hurt.
        all_helped = (counts["objective"] == "masked-lm") & (counts["low"] >= 0) & (counts["high"] > 0)
        own["allocation_histogram"] = counts.assign(count=counts["count"].mask(all_helped, 0))
        pairs = own["allocation_similarity"]
        pairs = pairs[(pairs["objective_a"] != "translation") & (pairs["objective_b"] != "translation")]
        alike = (pairs["objective_a"] == pairs["objective_b"]).to_numpy(bool)
        number = pairs["seed_a"] + pairs["seed_b"]  # of different seeds 1, 2 or 3
        own["allocation_similarity"] = pairs.assign(value=0.2 + 0.7 * alike + 0.01 * (number - 2))
        return own


RECORDED = {
    "allocation-components": (
        "The share of feed-forward in the blocks' contribution is highest in causal LM, 66.7%; lowest in "
        "masked LM, 28.6%; its share of the blocks' weights is 62%."
    ),
    # 10 × 1e-5 × (1, 1.01, 1.02): .0101% ± 4.303 × .0001% / √3; the first order is 50 times that
    "allocation-loss": (
        "The sum of all allocations misses the loss change by at most 0.0101% (0.0099 to 0.0103) in causal LM, "
        "not clearly different from that in masked LM; to first order, the error is at least 0.505% (0.493 to 0.517) "
        "in causal LM, not clearly different from that in masked LM."
    ),
    "allocation-heads": "The largest share of one layer's heads is 44.4% in layer 2 of masked LM (the "
    "largest of 12, so partly by chance); with equal layers it would be 17%.",
    # 3% × (1, 1.01, 1.02) ± 4.303 × .03% / √3
    "allocation-hurting": "The share of steps in which a component hurt is highest for query in masked LM, 3.03% (2.96 "
    "to 3.11); lowest for embeddings in causal LM, 0.00%, not clearly different from that for embeddings in masked LM "
    "(extremes of 14, so partly by chance); for single parameters it is 47%.",
    "allocation-histogram": "The share that helped, among single-parameter changes that moved the loss, "
    "is highest in masked LM, 100%; lowest in causal LM, 53.0%; with random signs it would be 50%.",
    "allocation-similarity": (
        "The rank correlation of the shares is highest within causal LM: decoder, 0.90 (0.84 to 0.94), not "
        "clearly different from that within masked LM: encoder; lowest between causal LM: decoder and masked LM: "
        "encoder, 0.20 (0.15 to 0.25); for shuffled shares it is 0."
    ),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    run = write_recorded(tmp_path_factory.mktemp("recorded"), Recorded())
    return {name: figure.words for name, figure in drawn_figures(run, "dynamics").items()}


@pytest.mark.parametrize("figure", RECORDED)
def test_training(recorded, figure):
    assert recorded[figure] == RECORDED[figure]
