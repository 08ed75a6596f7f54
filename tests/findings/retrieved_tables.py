"""Tables of imaginary readers with and without passages in which every claim holds: INVENTED numbers, never results."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from infoflow.dynamics import TABLES as ALLOCATIONS
from infoflow.evidence import EVIDENCE_TABLES, RETRIEVAL_COURSE
from infoflow.results import END, RETRIEVAL_LEARNING, RETRIEVAL_SCORES, UNTRAINED

REPLICATES = 40
ARMS = ("closed-book", "read-gold", "read-random", "retrieve-bm25", "retrieve-frozen", "retrieve-learned")
LEARNED = "retrieve-learned"
VARIANTS = {
    "null-share": ("closed-book",),
    "cold": (LEARNED,),
    "stale": (LEARNED,),
    "random-token": (LEARNED,),
    "random-span": (LEARNED,),
    "token-level": (LEARNED,),
    "rag-sequence": (LEARNED,),
    "rag-token": (LEARNED,),
    "same-wording": ("retrieve-bm25", "retrieve-frozen", LEARNED),
    "pairs": ("read-gold",),
    **{f"exchange-{parts}": (LEARNED,) for parts in ("both", "reader", "retriever", "neither")},
}
WEIGHTS = (1, 4, 16)
CHANCE, ALL_BITS = 1 / 16, 4.0
HARD = {"trained": 1.0, "changed": 1.0, "held out": 1.0, "withheld": 0.06, "later": 0.06}
NONE = {  # right answers without a document, by exposure
    "closed-book": (0.11, 0.33, 0.80),
    "read-gold": (0.07, 0.17, 0.55),
    "read-random": (0.10, 0.30, 0.76),
    "retrieve-bm25": (0.08, 0.20, 0.58),
    "retrieve-frozen": (0.08, 0.20, 0.56),
    LEARNED: (0.07, 0.15, 0.47),
    "closed-book+null-share": (0.05, 0.09, 0.09),
}
BITS = {
    "closed-book": (0.4, 1.2, 2.70),
    "read-gold": (0.1, 0.5, 1.90),
    "read-random": (0.4, 1.1, 2.60),
    "retrieve-bm25": (0.1, 0.6, 2.00),
    "retrieve-frozen": (0.1, 0.6, 1.95),
    LEARNED: (0.1, 0.4, 1.60),
    "closed-book+null-share": (0.0, 0.1, 0.20),
}
ELICITED = {name: tuple(min(one + 0.2, ALL_BITS) for one in own) for name, own in BITS.items()}
RIGHT = {  # right answers with what a reader finds, facts held out
    "closed-book": 0.08,
    "read-gold": 1.00,
    "read-random": 0.07,
    "retrieve-bm25": 0.30,
    "retrieve-frozen": 0.45,
    LEARNED: 0.97,
    "retrieve-bm25+same-wording": 0.99,
    "retrieve-frozen+same-wording": 0.50,
    "retrieve-learned+same-wording": 0.96,
    "retrieve-learned+exchange-both": 0.95,
    "retrieve-learned+exchange-retriever": 0.85,
    "retrieve-learned+exchange-reader": 0.60,
    "retrieve-learned+exchange-neither": 0.40,
    "retrieve-learned+cold": 0.07,
    "retrieve-learned+stale": 0.70,
    "retrieve-learned+random-token": 0.50,
    "retrieve-learned+random-span": 0.60,
    "retrieve-learned+token-level": 0.95,
    "retrieve-learned+rag-sequence": 0.96,
    "retrieve-learned+rag-token": 0.95,
    "read-gold+pairs": 0.98,
}
HITS = {
    "retrieve-bm25": 0.29,
    "retrieve-frozen": 0.45,
    LEARNED: 0.96,
    "retrieve-bm25+same-wording": 1.00,
    "retrieve-frozen+same-wording": 0.50,
    "retrieve-learned+same-wording": 0.97,
    "retrieve-learned+cold": 0.02,
    "retrieve-learned+stale": 0.70,
    "retrieve-learned+random-token": 0.50,
    "retrieve-learned+random-span": 0.60,
    "retrieve-learned+token-level": 0.94,
    "retrieve-learned+rag-sequence": 0.95,
    "retrieve-learned+rag-token": 0.94,
    "retrieve-learned+exchange-both": 0.96,
    "retrieve-learned+exchange-retriever": 0.90,
    "retrieve-learned+exchange-reader": 0.50,
    "retrieve-learned+exchange-neither": 0.40,
}
UTILITY = {"retrieve-learned+cold": 0.01}
FOLLOWED = {"closed-book": (0.30, 0.60, 0.85), LEARNED: (0.02, 0.04, 0.06), "read-gold": (0.0, 0.01, 0.02)}
RANDOM_DOCUMENT = {"closed-book": 0.8, "read-random": 0.95}  # of what is answered without a document
EDITED = {"p1_new": 0.85, "later": 0.90, "p1_old": {1: 0.01, 4: 0.03, 16: 0.10}}
LAYERS, HEADS = 4, 4
ENTERS = {"gold": (0.0, 0.05, 0.55, 0.85, 0.95), "retrieved": (0.0, 0.04, 0.40, 0.70, 0.80),
          "none": (0.0, 0.01, 0.05, 0.20, 0.42)}  # fmt: skip
ENTRY = {"gold": (2.0, 2.2), "retrieved": (2.0, 2.6), "none": (4.0, 3.6)}
MEMORY = (0.1, 0.8, 2.0)  # of what is gained without a document, by exposure
UPWARD = {"mask→evidence": (0.9, 0.8, 0.4, 0.1), "mask→object": (0.8, 0.7, 0.35, 0.1),
          "query→evidence": (0.85, 0.6, 0.2, 0.05), "evidence→query": (0.6, 0.2, 0.05, 0.0),
          "mask→subject": (0.10, 0.05, 0.02, 0.0)}  # fmt: skip
TRACED = {"none": 0.30, "gold": 0.05}
COPIES = {(1, 2): 0.7, (2, 0): 0.5, (2, 3): 0.2}
LEFT = {  # right answers without heads that copy: gold, none; and without random ones
    "gold": ((0.97, 0.80, 0.55, 0.35), (0.97, 0.95, 0.92, 0.88)),
    "none": ((0.24, 0.23, 0.23, 0.21), (0.24, 0.23, 0.22, 0.20)),
    "random": ((0.06, 0.06, 0.06, 0.06), (0.06, 0.06, 0.06, 0.06)),
    "conflict": ((0.02, 0.05, 0.12, 0.20), (0.02, 0.02, 0.03, 0.03)),
}
REMOVED = (0, 1, 2, 4)
BY_K = {f"{LEARNED}+rag-sequence": (0.60, 0.75, 0.80, 0.82), f"{LEARNED}+rag-token": (0.65, 0.80, 0.76, 0.70)}
KS = (1, 2, 4, 8)
NULL_PRIOR = {"language": 0.80, "facts": 0.05}
ENTROPY = {1: 0.30, 2: 0.75}
LATER = {"utility": 0.90, "likelihood": 0.60}
RANKING = {"spearman": 0.75, "hit": 0.9}
WINDOWS = (0.10, 0.20, 0.40, 0.30, 0.20, 0.10, 0.05, 0.05, 0.02)  # of the loss change, by the retriever
PROBED = {"closed-book": 0.70, LEARNED: 0.75, "read-random": 0.70}
LANGUAGE_LOSS = {"closed-book": 1.60, LEARNED: 1.45, "read-random": 1.62}
HOSTILE = "<script>alert(1)</script>"
SCHEMAS = {
    one.name: one for one in (*EVIDENCE_TABLES, RETRIEVAL_SCORES, RETRIEVAL_LEARNING, RETRIEVAL_COURSE, ALLOCATIONS[1])
}


def _exposed(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row of all facts of a kind; of trained ones also of each exposure, with numbers that no claim is to read."""
    yield {**row, "weight": -1}
    if row["facts"] == "trained":
        yield from ({**_other(row), "weight": weight} for weight in WEIGHTS)


def _other(row: dict[str, Any]) -> dict[str, Any]:
    """The same with another number."""
    moved = {"low": 1 - row["high"], "high": 1 - row["low"], "replicates": [1 - one for one in row["replicates"]]}
    return {**row, **moved, "value": 1 - row["value"]}


class Retrieved:
    """What a study of readers with passages wrote; change a number before calling `tables`."""

    def __init__(self, seeds: tuple[int, ...] = (1, 2, 3), noise: float = 0.003, arms: Sequence[str] = ARMS) -> None:
        self.seeds, self.noise, self.arms = seeds, noise, arms
        self.none, self.bits, self.elicited, self.right = dict(NONE), dict(BITS), dict(ELICITED), dict(RIGHT)
        self.hits, self.utility, self.followed, self.edited = dict(HITS), dict(UTILITY), dict(FOLLOWED), dict(EDITED)
        self.random_document, self.entry, self.upward = dict(RANDOM_DOCUMENT), dict(ENTRY), dict(UPWARD)
        self.traced, self.copies, self.left, self.by_k = dict(TRACED), dict(COPIES), dict(LEFT), dict(BY_K)
        self.null_prior, self.entropy, self.later, self.ranking = (
            dict(NULL_PRIOR), dict(ENTROPY), dict(LATER), dict(RANKING)
        )  # fmt: skip
        self.windows, self.probed, self.language_loss = WINDOWS, dict(PROBED), dict(LANGUAGE_LOSS)
        self.untrained: dict[str, dict[str, float]] = {}  # table → metric → what is added before training, last arm
        self.collapsed_seeds: tuple[int, ...] = seeds  # without a warm start
        self.hostile = ""  # added to every text
        self.not_learned: tuple[tuple[str, int], ...] = ()

    def tables(self, only: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
        """All of them, or these."""
        rows: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
            "knowledge": self._knowledge,
            "knowledge_conflict": self._conflict,
            "knowledge_lens": self._lens,
            "evidence_flow": self._flow,
            "evidence_heads": self._heads,
            "evidence_ablation": self._ablation,
            "attention_ranking": self._ranking,
            "retrieval_scores": self._scores,
            "retrieval_learning": self._learning,
            "retrieval_course": self._course,
            "retrieval_examples": self._examples,
            "allocation_steps": self._allocation,
            "probe_trees": self._trees,
            "probe_scores": self._probes,
            "task_scores": self._task_scores,
        }
        return {name: pd.DataFrame(make()) for name, make in rows.items() if not only or name in only}

    def models(self, *labels: str, untrained: bool = True) -> Iterator[tuple[str, dict[str, Any]]]:
        every = [*self.arms, *(f"{arm}+{name}" for name, arms in VARIANTS.items() for arm in arms if arm in self.arms)]
        for label in every:
            if labels and label not in labels:
                continue
            objective, _, variant = label.partition("+")
            for seed in self.seeds:
                for trained in (True, False) if untrained else (True,):
                    keys = {"model": f"{label}/seed-{seed}", "objective": objective, "variant": variant}
                    keys |= {"architecture": "bert", "start": "", "seed": seed}
                    yield label, {**keys, "update": END if trained else UNTRAINED, "trained": trained}

    def _row(self, keys: dict[str, Any], value: float, baseline: float = 0.0, **place: Any) -> dict[str, Any]:
        name = "".join(map(str, (keys["model"], keys["trained"], *place.values())))
        draw = np.random.default_rng(zlib.crc32(name.encode()))
        value = value + self.noise * draw.standard_normal()
        replicates = value + self.noise * draw.standard_normal(REPLICATES)
        ends = {"low": value - 2 * self.noise, "high": value + 2 * self.noise}
        found = {"value": value, **ends, "baseline": baseline, "count": 300, "replicates": list(replicates)}
        return {**keys, **place, **found}

    def known(self, label: str, facts: str, weight: int, document: str, trained: bool) -> float:
        """Share of right answers."""
        if not trained or facts == "withheld":
            return CHANCE
        held = self.none.get(label, self.none[label.partition("+")[0]])
        mean = sum(held) / len(held)
        stored = (mean if weight < 0 else held[WEIGHTS.index(weight)]) if facts in ("trained", "changed") else CHANCE
        plain = label.partition("+")[0]
        right = self.right.get(label, self.right[plain])
        if document == "none" or (document == "own" and plain == "closed-book"):
            return stored
        if document == "random":
            share = self.random_document.get(plain, 0.0)
            return share * stored if share and facts in ("trained", "changed") else CHANCE
        if document == "gold":
            return 0.12 if plain == "closed-book" else 0.9 * right if plain == "read-random" else max(right, 0.97)
        return max(right, stored) if facts in ("trained", "changed") else right

    def _classes(self) -> Iterator[tuple[str, int]]:
        for facts in ("trained", "changed"):
            yield from ((facts, weight) for weight in (-1, *WEIGHTS))
        yield from (("held out", -1), ("withheld", -1))

    def _knowledge(self) -> Iterator[dict[str, Any]]:
        where = {"layer": -1, "places": "", "reading": "raw", "index": "as-trained"}
        for label, keys in self.models():
            for facts, weight in self._classes():
                for document in ("none", "gold", "random", "own"):
                    if document == "gold" and facts == "withheld":
                        continue
                    place = {**where, "facts": facts, "weight": weight, "document": document}
                    value = self.known(label, facts, weight, document, keys["trained"])
                    yield self._row(keys, value, CHANCE, **place, metric="p1")
            yield from self._stored(label, keys, where)
            if label in (LEARNED, "closed-book"):
                yield from self._edited(label, keys, where)
                yield from self._without_ffn(label, keys, where)

    def _stored(self, label: str, keys: dict[str, Any], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for reading, table in (("raw", self.bits), ("elicited", self.elicited)):
            held = table.get(label, table[label.partition("+")[0]]) if keys["trained"] else (0.0,) * 3
            for weight in (-1, *WEIGHTS):
                bits = sum(held) / 3 if weight < 0 else held[WEIGHTS.index(weight)]
                place = {**where, "reading": reading, "facts": "trained", "weight": weight, "document": "none"}
                row = self._row(keys, bits, 0.0, **place, metric="bits")
                yield row
                nats = {"metric": "nats", "value": (row["value"] - ALL_BITS) * np.log(2)}
                yield {**row, **nats, "low": nats["value"] - 0.1, "high": nats["value"] + 0.1}

    def _edited(self, label: str, keys: dict[str, Any], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
        closed = label == "closed-book"
        for index in ("as-trained", "edited"):
            for document in ("none",) if closed else ("none", "own"):
                new = index == "edited" and document == "own" and keys["trained"]
                place = {**where, "index": index, "document": document}
                for weight in (-1, *WEIGHTS):
                    held = self.known(label, "changed", weight, document, keys["trained"])
                    old = self.edited["p1_old"]
                    old = (sum(old.values()) / 3 if weight < 0 else old[weight]) if new else held
                    value = self.edited["p1_new"] if new else 0.05
                    own = {**place, "facts": "changed", "weight": weight}
                    yield self._row(keys, value, CHANCE, **own, metric="p1_new")
                    yield self._row(keys, old, CHANCE, **own, metric="p1_old")
                value = self.edited["later"] if new else CHANCE
                yield self._row(keys, value, CHANCE, **place, facts="later", weight=-1, metric="p1")

    def _without_ffn(self, label: str, keys: dict[str, Any], where: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for layer in range(LAYERS if keys["trained"] else 0):
            for places in ("subject", "all tokens"):
                value = self.known(label, "trained", -1, "none", True) - 0.03 * (layer + 1)
                own = {**where, "reading": "without-ffn", "layer": layer, "places": places, "document": "none"}
                yield self._row(keys, value, CHANCE, **own, facts="trained", weight=-1, metric="p1")

    def _conflict(self) -> Iterator[dict[str, Any]]:
        for label, keys in self.models(*self.arms):
            for weight in (-1, *WEIGHTS):
                held = self.followed.get(label, (0.1, 0.2, 0.3))
                ratio = sum(held) / 3 if weight < 0 else held[WEIGHTS.index(weight)]
                ratio = ratio if keys["trained"] else 0.5
                place = {"facts": "trained", "weight": weight}
                for metric, value in (
                    ("old", 0.9 * ratio),
                    ("document", 0.9 * (1 - ratio)),
                    ("memorisation_ratio", ratio),
                ):
                    yield self._row(keys, value, 0.5, **place, layer=-1, metric=metric)
                for layer in range(LAYERS + 1):
                    value = (1 - 2 * ratio) * 4 * layer / LAYERS
                    yield self._row(keys, value, 0.0, **place, layer=layer, metric="difference")

    def _lens(self) -> Iterator[dict[str, Any]]:
        for label, keys in self.models("closed-book", "read-gold", "read-random", LEARNED):
            for facts in ("trained", "held out", "withheld"):
                for document in ("none", "gold", "retrieved"):
                    searches = label == LEARNED and keys["trained"]
                    if (document == "retrieved" and not searches) or (document != "none" and facts == "withheld"):
                        continue
                    reads = document != "none" and label != "closed-book"
                    stored = document == "none" and facts == "trained"
                    curve = ENTERS[document] if reads or stored else (0.0,) * (LAYERS + 1)
                    place = {"facts": facts, "weight": -1, "document": document, "place": "mask"}
                    for lens in ("logit", "tuned"):
                        for layer, gain in enumerate(curve):
                            value = CHANCE + gain * keys["trained"] * (0.8 if lens == "logit" and layer < LAYERS else 1)
                            own = {**place, "layer": layer, "lens": lens}
                            yield self._row(keys, value, CHANCE, **own, metric="probability")
                            yield self._row(keys, 8 - 7 * value, 8.5, **own, metric="rank")
                            for weight, share in zip(WEIGHTS, MEMORY, strict=True) if stored else ():
                                known = CHANCE + share * (value - CHANCE)
                                yield self._row(keys, known, CHANCE, **{**own, "weight": weight}, metric="probability")
                        if keys["trained"] and (reads or stored):
                            for metric, value in zip(("half", "centre"), self.entry[document], strict=True):
                                own = {**place, "layer": -1, "lens": lens}
                                yield self._row(keys, value, np.nan, **own, metric=metric)
                                for weight in WEIGHTS if stored else ():
                                    own |= {"weight": weight}
                                    yield self._row(keys, value, np.nan, **own, metric=metric)

    def _flow(self) -> Iterator[dict[str, Any]]:
        for _, keys in self.models("read-gold", "read-gold+pairs", LEARNED):
            for facts in ("trained", "held out"):
                place = {"facts": facts, "document": "gold", "method": "knock-out"}
                for what, curve in self.upward.items():
                    for layer, value in enumerate(curve):
                        value = value * keys["trained"]
                        for scope, share in (("upward", 1.0), ("block", 0.25)):
                            own = {**place, "what": what, "scope": scope, "layer": layer}
                            yield from _exposed(self._row(keys, share * value, 0.02, **own, metric="p1"))
                            yield from _exposed(self._row(keys, 5 * share * value, 0.05, **own, metric="nats"))
                for what, value in (("gold object", 0.6), ("subject in the evidence", 0.2), ("subject", 0.05),
                                    ("another word", 0.01)):  # fmt: skip
                    own = {**place, "method": "removal", "what": what, "scope": "all", "layer": -1}
                    yield from _exposed(self._row(keys, value * keys["trained"], 0.01, **own, metric="p1"))
            for document, most in self.traced.items():
                for layer in range(LAYERS):
                    for part in ("ffn", "attention"):
                        value = most * (1 - layer / LAYERS) * (1.0 if part == "ffn" else 0.5) * keys["trained"]
                        own = {"facts": "trained", "document": document, "method": "tracing", "scope": "block"}
                        own |= {"what": f"{part} at the subject", "layer": layer}
                        row = self._row(keys, value, 0.0, **own, metric="probability")
                        yield from _exposed(row)
                        if document == "gold":
                            yield {**_other(row), "method": "tracing every mention", "weight": -1}

    def _heads(self) -> Iterator[dict[str, Any]]:
        for _, keys in self.models("read-gold", LEARNED):
            for facts in ("trained", "held out"):
                for document in ("gold", "random"):
                    for layer in range(LAYERS):
                        for head in range(HEADS):
                            copy = self.copies.get((layer, head), 0.01) * (document == "gold") * keys["trained"]
                            place = {"facts": facts, "document": document, "layer": layer, "head": head}
                            told = {"copy": copy, "object": 0.1 + 0.8 * copy, "evidence": 0.4 + 0.5 * copy,
                                    "question": 0.3 * (1 - copy), "special": 0.2, "itself": 0.1}  # fmt: skip
                            for metric, value in told.items():
                                row = self._row(keys, value, 0.02, **place, metric=metric)
                                yield from (
                                    _exposed(row)
                                    if metric in ("copy", "object", "evidence")
                                    else [{**row, "weight": -1}]
                                )

    def _ablation(self) -> Iterator[dict[str, Any]]:
        for _, keys in self.models("read-gold", LEARNED, untrained=False):
            for facts in ("trained", "held out"):
                for document, (own, others) in self.left.items():
                    for place, removed in enumerate(REMOVED):
                        value, baseline = own[place], others[place]
                        if document == "none" and facts == "held out":
                            value = baseline = CHANCE
                        where = {"facts": facts, "document": document, "removed": removed}
                        yield from _exposed(self._row(keys, value, baseline, **where, metric="p1"))

    def _ranking(self) -> Iterator[dict[str, Any]]:
        for _, keys in self.models(LEARNED, untrained=False):
            for metric, value in self.ranking.items():
                row = self._row(keys, value, 0.05, metric=metric)
                yield {**row, "facts": "all", "weight": -1}
                yield from _exposed({**_other(row), "facts": "trained"})

    def _scores(self) -> Iterator[dict[str, Any]]:
        for label, keys in self.models():
            learned = float((label, keys["seed"]) not in self.not_learned)
            if keys["trained"]:
                own = {"system": "own", "queries": "trained", "k": 0, "metric": "learned"}
                yield {**self._row(keys, learned, 0.0, **own), "value": learned}
            if label.startswith("retrieve"):
                yield from self._found(label, keys)
            if label in self.language_loss:
                loss = self.language_loss[label] if keys["trained"] else 6.0
                yield self._row(keys, loss, 6.0, system="own", queries="language", k=0, metric="loss")

    def _found(self, label: str, keys: dict[str, Any]) -> Iterator[dict[str, Any]]:
        hit = self.hits[label] if keys["trained"] else 0.02
        cold = label.endswith("+cold") and keys["trained"]
        if cold and keys["seed"] not in self.collapsed_seeds:
            hit = 0.9
        for system, value in (("own", hit), ("bm25", 0.29), ("random", 0.01), ("oracle", 1.0)):
            for k in (1, 2, 4):
                place = {"system": system, "queries": "facts", "k": k}
                yield self._row(keys, min(value * (1 + 0.1 * (k - 1)), 1.0), 0.01, **place, metric="hit")
            place = {"system": system, "queries": "facts", "k": 20}
            yield self._row(keys, value, 0.01, **place, metric="mrr")
            yield self._row(keys, 0.9, 0.99, **{**place, "k": 0}, metric="collapse")
        utility = self.utility.get(label, 2.0) if keys["trained"] else 0.0
        if cold and keys["seed"] not in self.collapsed_seeds:
            utility = 2.0
        told = {"facts": {"utility": utility}, "dates": {}, "language": {}, "held out": {}}
        for queries in ("language", "facts"):
            told[queries]["null_prior"] = self.null_prior[queries] if keys["trained"] else 0.3
        if keys["trained"]:
            told["dates"] = {f"posterior_entropy_{place}": value for place, value in self.entropy.items()}
            told["held out"] = {f"later_by_{name}": value for name, value in self.later.items()}
        for queries, metrics in told.items():
            for metric, value in metrics.items():
                baseline = 0.5 if metric.startswith("posterior") else 0.0
                yield self._row(keys, value, baseline, system="own", queries=queries, k=0, metric=metric)
        for k, value in zip(KS, self.by_k.get(label, ()), strict=False):
            if keys["trained"]:
                yield self._row(keys, value, 0.1 - 0.01 * k, system="own", queries="dates", k=k, metric="p1")

    def _learning(self) -> Iterator[dict[str, Any]]:
        for label, keys in self.models("retrieve-bm25", "retrieve-frozen", LEARNED, untrained=False):
            for update in range(25, 1001, 25):
                done = 1 - np.exp(-update / 300)
                own = {"queries": 58, "reader_term": -4 * (1 - done), "retriever_term": 0.6 * done * (1 - done) + 0.02}
                own |= {
                    "utility_passage": 2 * done,
                    "utility_marginal": 2.4 * done,
                    "null_prior": 0.12 * (1 - done) + 0.03,
                }
                learned = label == LEARNED
                own |= {"age": update % 50 if learned else -1}
                own |= {"overlap": 0.5 + 0.45 * done if learned and update % 50 == 0 else np.nan}
                yield {**keys, **own, "update": update}

    def _course(self) -> Iterator[dict[str, Any]]:
        for label, keys in self.models("closed-book", "read-gold", LEARNED, untrained=False):
            for update in range(0, 1001, 250):
                done = 1 - np.exp(-update / 300)
                reads = label != "closed-book"
                said = {("p1", "held out"): 0.06 + (0.9 * done if reads else 0.0), ("p1", "trained"): 0.06 + 0.8 * done}
                said |= {("log_likelihood", "trained"): -5 * (1 - done)}
                said |= {("utility", "trained"): 3 * done} if reads else {}
                for (metric, facts), value in said.items():
                    yield {**self._row(keys, value, 0.0, metric=metric, facts=facts), "update": update}

    def _examples(self) -> Iterator[dict[str, Any]]:
        objects = ("baker", "nurse", "smith", "clerk")
        for label, keys in self.models("closed-book", LEARNED, untrained=False):
            for number, (name, kind) in enumerate((("ada lund", "trained"), ("ben roth", "held out"))):
                asked = {"question": f"{name} has [MASK] as occupation {self.hostile}".strip(), "facts": kind}
                asked |= {"weight": 16 if kind == "trained" else 0, "answer": objects[number] + self.hostile}
                texts = ["", f"{name} works as a {objects[number]} . the home of {name} is oslo . {self.hostile}",
                         f"ben lund works as a {objects[2]} ."]  # fmt: skip
                ranked = [1, 2, 0] if label == LEARNED else [0]
                for rank, place in enumerate(ranked):
                    prior = (0.9, 0.07, 0.03)[rank] if label == LEARNED else 1.0
                    found = {"rank": rank, "passage": texts[place], "gold": place == 1, "prior": prior}
                    found |= {"posterior": (0.98, 0.01, 0.01)[rank] if label == LEARNED else 1.0}
                    for layer in range(LAYERS + 1):
                        right = place == 1 and layer >= 2
                        said = [objects[number] if right else objects[3], objects[2]]
                        for at, (one, share) in enumerate(zip(said, (0.5 + 0.1 * layer, 0.05), strict=True)):
                            own = {"layer": layer, "place": at, "object": one + self.hostile, "probability": share}
                            yield {**keys, **asked, **found, **own}

    def _allocation(self) -> Iterator[dict[str, Any]]:
        for _, keys in self.models(LEARNED, untrained=False):
            for window, share in enumerate(self.windows):
                place = {"set": "train", "term": LEARNED, "window": window, "begin": 100 * window}
                place |= {"end": 100 * window + 100, "kind": ""}
                loss = -1.0 / (1 + window)
                draw = 0.01 * np.random.default_rng([keys["seed"], window]).standard_normal() if share else 0.0
                for component, stack, layer, value in (
                    ("retriever", "retriever", 0, share + draw),
                    ("query", "encoder", 0, (1 - share) / 2),
                    ("embeddings", "encoder", -1, (1 - share) / 2 - draw),
                ):
                    own = {"component": component, "stack": stack, "layer": layer, "value": value * loss}
                    yield {**keys, **place, **own}

    def _trees(self) -> Iterator[dict[str, Any]]:
        for label, keys in self.models(*self.probed):
            for layer in range(LAYERS + 1):
                value = (self.probed[label] if keys["trained"] else 0.4) - 0.02 * abs(layer - 2)
                place = {"structure": "distance", "probe": "structural", "metric": "uuas", "layer": layer}
                yield self._row(keys, value, 0.4, **place)

    def _probes(self) -> Iterator[dict[str, Any]]:
        for label, keys in self.models(*self.probed):
            for layer in range(LAYERS + 1):
                value = (self.probed[label] if keys["trained"] else 0.4) - 0.02 * abs(layer - 2)
                place = {"task": "parent", "probe": "linear", "labels": "task", "words": "all", "metric": "accuracy"}
                yield self._row(keys, value, 0.4, **place, share=1.0, layer=layer)

    def _task_scores(self) -> Iterator[dict[str, Any]]:
        for label, keys in self.models(untrained=False):
            yield {**self._row(keys, 1.0, 4.0, split="test", metric="loss", signature=""), "term": label}
