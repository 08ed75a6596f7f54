"""How often BM25 finds the right passage first: worlds of other words and of the same, by whether the query has its own
passage's word for the relation. A few seconds on one core: python experiments/studies/retrieval/words.py"""

import numpy as np

from infoflow.corpus import FactConfig, FactWorld
from infoflow.retrieval import bm25_scores

SEEDS = (0, 1, 2)


def found_first(wording: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each question for testing, whether its passage is ranked first, and whether it has that passage's word."""
    world = FactWorld(FactConfig(entities=1000, relations=6, wording=wording), seed)
    facts = world.of_kind("trained", "held out")
    passages = [set(passage["text"].split()) for passage in world.passages()]
    questions = [(fact, question) for fact in facts for question in world.questions([fact])]
    asked = [[w for w, role in zip(q.words, q.roles, strict=True) if role != "object"] for _, q in questions]
    gold = np.array([world.gold(fact) for fact, _ in questions])
    word = [next(w for w, role in zip(q.words, q.roles, strict=True) if role == "relation") for _, q in questions]
    scores = bm25_scores(asked, [passage["text"].split() for passage in world.passages()])
    return scores.argmax(1) == gold, np.array([w in passages[p] for w, p in zip(word, gold, strict=True)])


for wording in ("different", "same"):
    for seed in SEEDS:
        first, own = found_first(wording, seed)
        groups = {"of all": np.ones_like(own), "of its own word": own, "of another word": ~own}
        rates = ", ".join(f"{first[of].mean():.3f} {name}" for name, of in groups.items() if of.any())
        print(f"{wording} words, seed {seed}, {len(first):,} questions: first passage right {rates}")
