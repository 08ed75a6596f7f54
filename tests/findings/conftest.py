"""Tables of an imaginary study, in which every claim is true or false by a known margin."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

SEEDS = (1, 2, 3)
REPLICATES = 40
OBJECTIVES = ("causal-lm", "masked-lm", "translation")
LAYERS = 6

# Voita, Sennrich and Titov 2019, read off the figures: layers 0..6, 1..6, or 1-2..5-6.
INFORMATION = {
    ("causal-lm", "clean", "input"): "5.30 5.285 5.22 5.05 4.81 4.47 3.97",
    ("translation", "clean", "input"): "5.215 5.21 5.20 5.10 4.945 4.765 4.475",
    ("masked-lm", "clean", "input"): "5.215 5.21 5.185 5.045 4.935 4.99 5.10",
    ("causal-lm", "clean", "output"): "1.815 2.10 2.185 2.255 2.305 2.34 2.35",
    ("masked-lm", "training", "input"): "6.9 6.9 6.82 5.4 2.3 1.4 .95",
    ("masked-lm", "training", "output"): ".73 .70 .97 1.34 2.05 2.37 2.385",
}
TASK_DISTANCE = {
    ("translation", "masked-lm"): ".423 .430 .438 .453 .470 .535",
    ("causal-lm", "translation"): ".452 .475 .498 .520 .558 .603",
    ("causal-lm", "masked-lm"): ".408 .438 .463 .488 .523 .603",
}
SEED_DISTANCE = {
    "translation": ".302 .305 .310 .315 .313 .309",
    "causal-lm": ".332 .335 .337 .345 .360 .370",
    "masked-lm": ".257 .275 .290 .303 .323 .370",
}
CHANGE = {
    "translation": ".0645 .0645 .053 .0495 .039",
    "causal-lm": ".075 .067 .065 .079 .0705",
    "masked-lm": ".0895 .077 .063 .0655 .110",
}
IDENTITY = {
    "translation": ".993 .992 .985 .972 .946 .916",
    "causal-lm": ".992 .984 .965 .930 .862 .768",
    "masked-lm": ".995 .993 .984 .973 .974 .976",
}
POSITION = {
    "translation": "1.3 1.6 2.65 3.4 4.15 4.5",
    "causal-lm": "2.65 4.3 5.4 6.3 7.2 7.7",
    "masked-lm": "2.4 4.1 5.5 6.5 7.6 8.0",
}
CONTEXT = {
    "left": {
        "translation": ".142 .192 .234 .246 .250 .240",
        "causal-lm": ".370 .373 .351 .320 .282 .248",
        "masked-lm": ".223 .242 .238 .234 .229 .228",
    },
    "right": {
        "translation": ".170 .235 .250 .240 .225 .233",
        "causal-lm": ".130 .131 .139 .146 .163 .161",
        "masked-lm": ".245 .281 .272 .266 .262 .253",
    },
}
TAGS = {
    "ccg": {
        "translation": ".390 .485 .543 .541 .536 .536",
        "causal-lm": ".442 .463 .479 .476 .463 .440",
        "masked-lm": ".456 .516 .543 .548 .538 .528",
    },
    "ccg_left": {
        "translation": ".381 .464 .529 .533 .530 .520",
        "causal-lm": ".494 .517 .527 .523 .503 .476",
        "masked-lm": ".530 .574 .578 .583 .562 .566",
    },
    "ccg_right": {
        "translation": ".505 .630 .685 .679 .674 .671",
        "causal-lm": ".530 .555 .569 .573 .583 .579",
        "masked-lm": ".597 .675 .689 .700 .695 .684",
    },
}
# Ranks 1-10 and 10k-30k; the bins between them are interpolated.
CHANGE_OF_FREQUENT = {
    "translation": ".114 .135 .103 .090 .066",
    "causal-lm": ".126 .117 .098 .102 .075",
    "masked-lm": ".146 .126 .103 .092 .060",
}
CHANGE_OF_RARE = {
    "translation": ".045 .033 .030 .032 .028",
    "causal-lm": ".040 .039 .044 .059 .066",
    "masked-lm": ".059 .050 .049 .071 .117",
}
RANKS = (1, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)
# Layer 1, from ranks 1-10 to 10k-30k; the ends are published, and the middle of the masked LM.
INFLUENCE = {
    "translation": ".0003 .0004 .0005 .0007 .0009 .0011 .0013 .0016 .0019 .0022 .0059",
    "causal-lm": ".006 .0065 .007 .0075 .008 .0085 .009 .0095 .010 .011 .012",
    "masked-lm": ".0025 .0035 .0040 .0042 .0043 .0042 .0040 .0038 .0037 .0039 .0041",
    "translation+token-dropout": ".0002 .0004 .0005 .0007 .0008 .0009 .0010 .0010 .0010 .0011 .0011",
}
# Ethayarajh 2019, published code, layers 0..12: BERT-base and GPT-2. The translation encoder's curve is invented.
AVERAGE_SIMILARITY = {
    "masked-lm": ".105 .168 .219 .245 .327 .377 .420 .398 .399 .484 .561 .675 .477",
    "causal-lm": ".611 .644 .597 .614 .587 .573 .578 .582 .595 .617 .667 .758 .978",
    "translation": ".20 .21 .22 .23 .24 .25 .26 .27 .28 .29 .30 .31 .55",
}
SELF_SIMILARITY = {
    "masked-lm": ".954 .921 .871 .823 .798 .781 .765 .744 .731 .754 .782 .839 .755",
    "causal-lm": ".917 .921 .900 .908 .884 .865 .850 .842 .838 .840 .852 .887 .985",
}
# Invented; the published claim has no numbers. In the order of ALIGNED; states after the map, gaps before it.
ALIGNED = ("aligned", "unaligned", "shuffled", "regulariser only")
ALIGNMENT = {
    "mse": ".15 .23 .58 .92",
    "retrieval forward": ".35 .15 .001 .0005",
    "retrieval backward": ".38 .15 .001 .0005",
    "rsa": ".88 .75 .30 .32",
    "pwcca": ".78 .65 .53 .60",
    "average similarity gap": ".02 .05 .50 .05",
    "self-similarity gap": ".04 .09 .20 .09",
}
HEADS = {(0, 0, -1): 0.97, (0, 1, 1): 0.95, (1, 0, -1): 0.30, (1, 1, 2): 0.40}  # (layer, head, offset): share
CONFIDENCE = {(0, 0): 0.93, (0, 1): 0.88, (1, 0): 0.4, (1, 1): 0.3}
RELEVANCE = {(0, 0): 0.85, (0, 1): 0.15, (1, 0): 0.8, (1, 1): 0.2}
# Invented: changes by ablation (nats per token), losses with 0, 20, .. 80 % of the heads removed, and two correlations.
ABLATION = {
    "head encoder self": ".002 .004 .001 .002 .030 .003",
    "head decoder self": ".002 .004 .001 .002 .030 .003",
    "head decoder cross": ".006 .004 .030 .050 .020 .030",
    "others encoder self": ".020 .010 .010 .020 .010 .020",
    "others decoder self": ".020 .020 .010 .010 .020 .030",
    "others decoder cross": ".020 .020 .040 .060 .100 .900",
    "curve all importance": "2.00 2.01 2.10 2.40 3.50",
    "curve all oracle": "2.00 2.10 2.30 2.60 3.60",
    "curve all random": "2.00 2.20 2.70 3.60 4.80",
    "curve encoder-self importance": "2.00 2.00 2.01 2.04 2.10",
    "curve encoder-self random": "2.00 2.00 2.10 2.20 2.30",
    "curve decoder-self importance": "2.00 2.00 2.02 2.06 2.20",
    "curve decoder-self random": "2.00 2.00 2.10 2.20 2.40",
    "curve decoder-cross importance": "2.00 2.01 2.10 2.60 4.50",
    "curve decoder-cross random": "2.00 2.20 2.60 3.20 5.00",
    "transfer": ".56",
}
ABLATION_TABLES = ("head_ablation", "head_pruning_curve", "ablation_transfer")
NEIGHBOURS = {"neighbours": 50, "metric": "cosine", "few": "require"}
LOSS = {"causal-lm": (3.5, 5.5), "masked-lm": (3.0, 5.5), "translation": (2.0, 6.0)}  # loss, unigram loss
LOSS["translation+token-dropout"] = LOSS["translation"]


def numbers(text):
    return np.array([float(number) for number in text.split()])


@cache
def drawn(key):
    return np.random.default_rng(key).standard_normal(1 + REPLICATES)


class Study:
    """Builds tables; change the curves before calling `tables`.

    Each model's curve is the published one, plus a shift drawn for the seed (`between`), with bootstrap replicates
    that scatter by `noise` around it. Untrained models have flat curves.
    """

    def __init__(self, seeds=SEEDS, between=0.0, noise=0.0):
        self.seeds, self.between, self.noise = seeds, between, noise
        self.information = {key: numbers(text) for key, text in INFORMATION.items()}
        self.task_distance = {key: numbers(text) for key, text in TASK_DISTANCE.items()}
        self.seed_distance = {key: numbers(text) for key, text in SEED_DISTANCE.items()}
        self.change = {key: numbers(text) for key, text in CHANGE.items()}
        self.identity = {key: numbers(text) for key, text in IDENTITY.items()}
        self.position = {key: numbers(text) for key, text in POSITION.items()}
        self.context = {(side, o): numbers(text) for side, own in CONTEXT.items() for o, text in own.items()}
        self.tags = {(tag, o): numbers(text) for tag, own in TAGS.items() for o, text in own.items()}
        self.untrained_information = {key: np.full(7, 4.0) for key in INFORMATION}
        self.untrained_change = {key: np.full(5, 0.02) for key in CHANGE}
        self.untrained_identity = {key: np.full(6, 0.95) for key in IDENTITY}
        self.change_by_rank = {
            objective: np.geomspace(numbers(CHANGE_OF_FREQUENT[objective]), numbers(text), 11, axis=1)
            for objective, text in CHANGE_OF_RARE.items()
        }
        self.influence_by_rank = {
            objective: numbers(text) * np.linspace(1, 0.5, 6)[:, None] for objective, text in INFLUENCE.items()
        }
        self.average_similarity = {key: numbers(text) for key, text in AVERAGE_SIMILARITY.items()}
        self.self_similarity = {key: numbers(text) for key, text in SELF_SIMILARITY.items()}
        self.shuffled_similarity = {key: self.average_similarity[key] for key in SELF_SIMILARITY}
        self.alignment = {
            (kind, metric): value
            for metric, text in ALIGNMENT.items()
            for kind, value in zip(ALIGNED, numbers(text), strict=True)
        }
        self.heads, self.confidence, self.relevance = dict(HEADS), dict(CONFIDENCE), dict(RELEVANCE)
        self.ablation = {name: numbers(text) for name, text in ABLATION.items()}
        self.loss, self.bleu = dict(LOSS), (30.0, 1.5)

    def tables(self, *names):
        """All tables, or those named."""
        ablated = cache(lambda: ablation_tables(self))
        made = {
            "mutual_information": self._information,
            "layer_distance": lambda: self._curves(self.change, self.untrained_change, 1, 0.8, side="mean"),
            "identity_neighbours": lambda: self._curves(
                self.identity, self.untrained_identity, 1, 0.05, neighbours=50, metric="cosine", few="require"
            ),
            "position_neighbours": lambda: self._curves(
                self.position, self._flat(self.position, 1.0), 1, 8.0, **NEIGHBOURS
            ),
            "context_neighbours": lambda: self._by("side", self.context, 0.1),
            "tag_neighbours": lambda: self._by("tag", self.tags, 0.3),
            "change_by_frequency": lambda: self._by_rank(self.change_by_rank, "layer", 1, side="mean"),
            "influence_by_frequency": lambda: self._by_rank(
                self.influence_by_rank, "block", 0, noise=0.02, side="mean", pool="others"
            ),
            "geometry": self._geometry,
            "alignment": self._alignment,
            "model_distance": self._distances,
            "head_positional": lambda: self._heads(self.heads, ("layer", "head", "offset"), 0.1),
            "head_confidence": lambda: self._heads(self.confidence, ("layer", "head"), 0.1),
            "head_relevance": lambda: self._heads(self.relevance, ("layer", "head"), 0.5),
            **{name: lambda name=name: ablated()[name] for name in ABLATION_TABLES},
            "task_scores": self._scores,
        }
        return {name: make() for name, make in made.items() if not names or name in names}

    def estimate(self, value, baseline, *key, scale=1.0):
        draws = drawn(tuple(sum(map(ord, str(part))) for part in key))
        value = value + scale * self.between * draws[0]
        replicates = value + scale * self.noise * draws[1:]
        return {
            "value": value,
            "low": value - 2 * self.noise,
            "high": value + 2 * self.noise,
            "baseline": baseline,
            "count": 1000,
            "replicates": list(replicates),
        }

    def _models(self, objective):
        for trained in (True, False):
            for seed in self.seeds:
                yield {
                    "model": f"{objective}/seed-{seed}",
                    "objective": objective,
                    "seed": seed,
                    "trained": trained,
                    "stack": "encoder",
                }

    def _information(self):
        rows = []
        for key, curve in self.information.items():
            for model in self._models(key[0]):
                values = curve if model["trained"] else self.untrained_information[key]
                for layer, value in enumerate(values):
                    estimate = self.estimate(value, 0.3, "information", *key, *model.values(), layer)
                    more = {"regime": key[1], "side": key[2], "layer": layer, "clustering_spread": 0.002}
                    rows.append(model | more | estimate)
        return pd.DataFrame(rows)

    def _curves(self, trained, untrained, first_layer, baseline, **settings):
        rows = []
        for objective in trained:
            for model in self._models(objective):
                values = (trained if model["trained"] else untrained)[objective]
                for layer, value in enumerate(values, start=first_layer):
                    estimate = self.estimate(value, baseline, *settings, *model.values(), layer)
                    rows.append(model | settings | {"layer": layer} | estimate)
        return pd.DataFrame(rows)

    def _flat(self, curves, value):
        return {key: np.full(len(curve), value) for key, curve in curves.items()}

    def _by(self, column, curves, baseline):
        parts = []
        for name in dict.fromkeys(key[0] for key in curves):
            own = {objective: curve for (other, objective), curve in curves.items() if other == name}
            flat = self._flat(own, 1.2 * baseline)
            parts.append(self._curves(own, flat, 1, baseline, **{column: name}, **NEIGHBOURS))
        return pd.concat(parts, ignore_index=True)

    def _by_rank(self, grids, name, first, noise=1.0, **settings):
        """Untrained models do the same to all tokens, up to noise that has nothing to do with frequency."""
        rows = []
        for objective, grid in grids.items():
            for model in self._models(objective):
                values = grid if model["trained"] else 0.01 + 0.001 * np.sin(7 + 5 * np.arange(grid.size))
                for (layer, index), value in np.ndenumerate(values.reshape(grid.shape)):
                    keys = {name: layer + first, "bin": index, "rank_low": RANKS[index], "rank_high": RANKS[index + 1]}
                    estimate = self.estimate(value, 0.01, name, *model.values(), *keys.values(), scale=noise)
                    rows.append(model | settings | keys | estimate)
        return pd.DataFrame(rows)

    def _geometry(self):
        """Untrained models have flat curves: all words alike, and occurrences of one word a little more."""
        curves = {
            ("average_similarity", "raw"): (self.average_similarity, 0.4),
            ("average_similarity", "rank"): (self.average_similarity, 0.4),
            ("self_similarity", "raw"): (self.self_similarity, 0.7),
            ("shuffled_self_similarity", "raw"): (self.shuffled_similarity, 0.4),
        }
        rows = []
        for (measure, space), (trained, untrained) in curves.items():
            for objective, curve in trained.items():
                for model in self._models(objective):
                    keys = {"measure": measure, "space": space, "words": "mean"}
                    for layer, value in enumerate(curve if model["trained"] else np.full(len(curve), untrained)):
                        estimate = self.estimate(value, 0.0, *keys.values(), *model.values(), layer)
                        rows.append(model | keys | {"layer": layer} | estimate)
        return pd.DataFrame(rows)

    def _alignment(self):
        rows = []
        for (kind, metric), value in self.alignment.items():
            states = "encoder" if metric.endswith("gap") else "mapped"
            for seed in self.seeds:
                keys = {"seed": seed, "kind": kind, "metric": metric, "states": states}
                rows.append(keys | self.estimate(value, 0.0, *keys.values()))
        return pd.DataFrame(rows)

    def _distances(self):
        rows = []
        for trained in (True, False):
            for (first, second), curve in self.task_distance.items():
                values = curve if trained else np.full(6, 0.0 if first == "translation" else 0.1)
                for seed in self.seeds:
                    rows += self._distance((first, seed), (second, seed), trained, values)
            for objective, curve in self.seed_distance.items():
                for number, seed in enumerate(self.seeds):
                    for other in self.seeds[number + 1 :]:
                        values = curve if trained else np.full(6, 0.5)
                        rows += self._distance((objective, seed), (objective, other), trained, values)
        return pd.DataFrame(rows)

    def _distance(self, first, second, trained, values):
        keys = {"objective_a": first[0], "seed_a": first[1], "objective_b": second[0], "seed_b": second[1]}
        more = {"trained": trained, "stack_a": "encoder", "stack_b": "encoder", "side": "mean"}
        return [
            keys | more | {"layer": layer} | self.estimate(value, 0.8, *keys.values(), trained, layer)
            for layer, value in enumerate(values, start=1)
        ]

    def _heads(self, heads, names, baseline):
        rows = []
        for model in self._models("translation"):
            for key, value in heads.items():
                value = value if model["trained"] else 0.2
                estimate = self.estimate(value, baseline, *names, *key, *model.values())
                rows.append(model | {"kind": "self"} | dict(zip(names, key, strict=True)) | estimate)
        return pd.DataFrame(rows)

    def _scores(self):
        rows = []
        for objective, (loss, unigram) in self.loss.items():
            scores = {"loss": (loss, unigram)} | ({"bleu": self.bleu} if objective.startswith("translation") else {})
            for model in self._models(objective):
                if not model["trained"]:
                    continue
                for metric, (value, baseline) in scores.items():
                    keys = model | {"split": "test", "metric": metric}
                    score = {"value": value, "low": value - 0.1, "high": value + 0.1, "baseline": baseline}
                    rows.append(keys | score | {"count": 1000, "replicates": [value] * 3, "signature": ""})
        return pd.DataFrame(rows)


def ablation_tables(study):
    """Tables of ablated heads: two heads per layer, the second a third dearer; untrained models feel nothing."""
    tables = {name: [] for name in ABLATION_TABLES}
    for name, curve in study.ablation.items():
        table, *keys = name.split()
        for model in study._models("translation"):
            alike = model["trained"] or table == "transfer"
            for index, value in enumerate(curve if alike else np.full(len(curve), curve[0])):
                value = value if alike or table == "curve" else 0.0
                own = {"mode": "zero", "metric": "loss"}
                if table in ("head", "others"):
                    for head in (0, 1):
                        change = value * (1 + head / 3)
                        row = {"stack": keys[0], "kind": keys[1], "layer": index, "head": head, "removed": table}
                        number = study.estimate(change, value * 7 / 6, name, *model.values(), index, head)
                        tables["head_ablation"].append(model | own | row | number)
                    continue
                number = study.estimate(value, 0.0, name, *model.values(), index)
                if table == "curve":
                    row = {"kind": keys[0], "order": keys[1], "draw": 0, "removed": index / 5}
                    tables["head_pruning_curve"].append(model | own | row | number)
                else:
                    tables["ablation_transfer"] += [model | number | {"kind": kind} for kind in ("all", "encoder-self")]
    return {name: pd.DataFrame(rows) for name, rows in tables.items()}


@pytest.fixture
def make_study():
    return Study


@pytest.fixture(scope="session")
def published_tables():
    return Study().tables()


@pytest.fixture
def published(published_tables):
    """The published curves for three seeds, without noise; replace tables, never change them."""
    return dict(published_tables)
