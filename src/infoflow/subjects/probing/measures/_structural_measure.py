"""How much of a sentence's dependency tree the geometry of each layer encodes."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from infoflow.corpus import split_numbers
from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import UserError, block_of, block_sums, current_display, replicate_weights, running_words
from infoflow.representations import Schedule
from infoflow.results import Column, TableSchema, estimate_columns

from ._features import WordFeatures, shared_features
from ._probe_scores import SEED_COLUMNS, replicated, seed_estimate
from ._probed_task import chosen_sentences
from ._structural_probe import (
    STRUCTURES,
    StructuralMaps,
    Structure,
    TreeScores,
    TreeSentence,
    chain,
    depth_scores,
    distance_scores,
    macro_average,
    random_maps,
    structural_probe,
    tree_sentence,
)
from ._tasks import DEV_SHARE, TEST_SHARE

_SCORES = {"distance": distance_scores, "depth": depth_scores}
_HITS = {"distance": "uuas", "depth": "root"}

PROBE_TREES = TableSchema(
    name="probe_trees",
    version=2,
    description="Structural probes: how well distances and depths in the dependency tree follow from a linear map of a "
    "layer's states, on sentences that the map was not trained on.",
    columns=(
        Column(
            "structure", "string", "", "distance: edges between two words; depth: edges between a word and the root"
        ),
        Column(
            "probe",
            "string",
            "",
            "structural: a trained map; random: the map before training; chain: no states, every word is attached to "
            "its neighbour",
        ),
        Column("stack", "string", "", "the stack that reads the text"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings; -1 for the chain"),
        Column(
            "metric",
            "string",
            "",
            "uuas: share of the tree's edges in the minimum spanning tree of predicted distances, without "
            "punctuation; root: share of sentences whose word of smallest predicted depth is the root; spearman: rank "
            "correlation of predicted and gold distances or depths, averaged over sentence lengths 5 to 50",
        ),
        Column("rank", "int64", "", "rank of the map; 0 for the chain"),
        Column("training", "int64", "sentences", "number of sentences that the map is trained on"),
        Column("capacity", "int64", "parameters", "of one map"),
        Column("no_tree", "int64", "sentences", "left out: several roots or none, a cycle, or words without a head"),
        Column(
            "constant",
            "int64",
            "rows",
            "for spearman: words (distance) or sentences (depth) without a correlation, because their "
            "values are all equal; mean over seeds",
        ),
        *estimate_columns(
            "share (uuas, root), correlation (spearman)",
            "see metric",
            "distance: the chain; depth: the random map of the same layer; for a control: its own value",
            "number of edges (uuas) or sentences (root, spearman)",
        ),
        *SEED_COLUMNS,
    ),
)


class StructuralProbe(Intervention):
    r"""UUAS, root accuracy and Spearman correlation of maps whose squared distances approximate tree distances.

    See `structural_probe`: the maps of all layers and seeds train as one batched problem, separately for distances and
    depths. A hash of the text splits the sentences: three fifths train, a fifth is for early stopping, a fifth is
    scored. Punctuation is identified by UPOS, else by XPOS if its tag set is known, else by Unicode. A word without a
    state (truncated, or without a token) is left out, but still counts as a node in distances.

    With the defaults at most 1,200 sentences train for at most 40 epochs of 60 steps, once for distances and once for
    depths.

    Args:
        rank: Rows of the map; 0: the width of the states, at most 64.
        seeds: Number of maps, with consecutive seeds from `seed` on.
        sentences: Maximum number from the corpus, chosen by hash; without heads the table is empty.
        batch: Sentences per step.
        rate: Adam's learning rate.
        epochs: Maximum number of epochs.
        seed: Seeds the choice of sentences, the parts and the maps.

    Source: [@hewitt2019structural].
    """

    table: ClassVar[TableSchema] = PROBE_TREES

    def __init__(
        self,
        rank: int = 0,
        seeds: int = 3,
        sentences: int = 2000,
        batch: int = 20,
        rate: float = 1e-3,
        epochs: int = 40,
        seed: int = 0,
    ) -> None:
        if rank < 0 or min(seeds, batch, epochs) < 1 or sentences < 3 or rate <= 0:
            raise UserError(
                "rank must be at least 0, seeds, batch and epochs at least 1, sentences at least 3, rate above 0. "
                f"Got {rank}, {seeds}, {batch}, {epochs}, {sentences} and {rate}."
            )
        self.rank, self.seeds, self.sentences, self.batch = rank, seeds, sentences, batch
        self.rate, self.epochs, self.seed = rate, epochs, seed

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        if "head" not in reader.corpus.columns:
            return pd.DataFrame(columns=self.table.column_names)
        rows = chosen_sentences(reader, self.sentences, self.seed)
        features = shared_features(reader, reader.corpus, rows, "mean", options)
        trees = _trees(reader, features, self.seed)
        rank = min(features.width, self.rank or 64)
        schedule = Schedule(rate=self.rate, factor=0.1, least=1e-4, epochs=self.epochs)
        seeds = list(range(self.seed, self.seed + self.seeds))
        found: list[dict[str, Any]] = []
        with current_display().progress("Training structural probes", len(STRUCTURES)) as progress:
            for structure in STRUCTURES:
                maps = structural_probe(
                    features.states,
                    trees.parts["train"],
                    trees.parts["dev"],
                    structure,
                    seeds,
                    rank=rank,
                    batch=self.batch,
                    schedule=schedule,
                    device=reader.model.device,
                )
                random = random_maps(seeds, features.num_states, rank, features.width, structure)
                found += self._rows(structure, {"structural": maps, "random": random}, features, trees)
                progress.advance(1)
        return pd.DataFrame(found, columns=self.table.column_names)

    def _rows(
        self, structure: Structure, maps: dict[str, StructuralMaps], features: WordFeatures, trees: "_Trees"
    ) -> list[dict[str, Any]]:
        rank = maps["structural"].maps.shape[2]
        key = {
            "structure": structure,
            "stack": features.stack,
            "training": len(trees.parts["train"]),
            "no_tree": trees.no_tree,
        }
        test = trees.parts["test"]
        scored = {name: _scored(each, features, test) for name, each in maps.items()}
        of_chain = None if structure == "depth" else distance_scores(test, [chain(len(each)) for each in test])
        rows = []
        if of_chain is not None:
            at = {"probe": "chain", "layer": -1, "rank": 0, "capacity": 0}
            rows += [key | at | each for each in _metrics(structure, [of_chain], trees.blocks, None)]
        for name, layers in scored.items():
            for layer, scores in enumerate(layers):
                control = [of_chain] if of_chain is not None else scored["random"][layer]
                at = {"probe": name, "layer": layer, "rank": rank, "capacity": rank * features.width}
                rows += [key | at | each for each in _metrics(structure, scores, trees.blocks, control)]
        return rows


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Trees:
    """Sentences with a valid tree."""

    parts: dict[str, list[TreeSentence]]
    blocks: np.ndarray  # the bootstrap block of each test sentence
    no_tree: int


def _trees(reader: Reader, features: WordFeatures, seed: int) -> _Trees:
    corpus, xpos, no_tree = reader.corpus.select(features.sentences), "xpos" in reader.corpus.columns, 0
    numbers = split_numbers(corpus.column("text"), seed, purpose="probing")
    parts: dict[str, list[TreeSentence]] = {"train": [], "dev": [], "test": []}
    tested = []
    for index, sentence in enumerate(corpus):
        start, end = features.starts[index], features.starts[index + 1]
        words, heads = sentence.words or running_words(sentence.text), sentence.head
        if heads is None or len(heads) != end - start:
            raise UserError(
                f"Each word of {corpus.name} must have one head. The sentence {sentence.text[:80]} has "
                f"{end - start} words and {0 if heads is None else len(heads)} heads.\nCorrect it, or leave it out."
            )
        counted = is_syntax(words, sentence.tags["xpos"] if xpos else None, sentence.upos)
        tree = tree_sentence(heads, int(start), features.present[start:end], counted)
        if tree is None:
            no_tree += 1
            continue
        name = "test" if numbers[index] < TEST_SHARE else "dev" if numbers[index] < TEST_SHARE + DEV_SHARE else "train"
        parts[name].append(tree)
        if name == "test":
            tested.append(index)
    if no_tree:
        current_display().note(f"{no_tree:,} sentences of {corpus.name} are left out: their heads are not one tree.")
    if not all(parts.values()):
        raise UserError(
            "Structural probes need sentences with trees for training, early stopping and scoring. "
            f"{corpus.name} gives {', '.join(f'{len(each)} ({name})' for name, each in parts.items())}."
        )
    blocks = block_of(corpus.content_ids[np.array(tested)])
    return _Trees(parts=parts, blocks=blocks, no_tree=no_tree)


def _scored(maps: StructuralMaps, features: WordFeatures, test: Sequence[TreeSentence]) -> list[list[TreeScores]]:
    """Scores of each seed, by layer."""
    guesses = maps.predict(features.states, test)
    seeds, layers = maps.maps.shape[:2]
    return [
        [_SCORES[maps.structure](test, [each[seed, layer] for each in guesses]) for seed in range(seeds)]
        for layer in range(layers)
    ]


def _metrics(
    structure: Structure, scores: Sequence[TreeScores], blocks: np.ndarray, control: Sequence[TreeScores] | None
) -> list[dict[str, Any]]:
    """Rows of the two metrics over seeds; the baseline is the scores of `control`, or `scores` itself without one."""
    control = control or scores
    hits, counted = np.stack([each.hits for each in scores]), scores[0].num_edges
    with np.errstate(invalid="ignore", divide="ignore"):  # a replicate of few sentences may draw none
        share = replicated(block_sums(hits.T, blocks)) / replicated(block_sums(counted, blocks))[:, None]
    correlated = [_spearman(each, blocks) for each in scores]
    rows = {
        _HITS[structure]: seed_estimate(
            hits.sum(1) / counted.sum(),
            np.ascontiguousarray(share.T),
            float(np.mean([each.hits.sum() / each.num_edges.sum() for each in control])),
            counted.sum(),
            "share",
            independent=int((counted > 0).sum()),  # sentences: the edges of one sentence are dependent
        ),
        "spearman": seed_estimate(
            np.array([value for value, _ in correlated]),
            np.stack([replicates for _, replicates in correlated]),
            float(np.mean([_spearman(each, blocks)[0] for each in control])),
            int(np.mean([each.in_average.sum() for each in scores])),
            "correlation",
        ),
    }
    constant = {"spearman": round(np.mean([each.constant.sum() for each in scores]))}
    return [{"metric": name, "constant": constant.get(name, 0), **row} for name, row in rows.items()]


def _spearman(scores: TreeScores, blocks: np.ndarray) -> tuple[float, np.ndarray]:
    """Spearman's correlation, macro-averaged over sentence lengths, and its replicates."""
    kept = scores.in_average
    if not kept.any():
        return float("nan"), np.full(len(replicate_weights()), np.nan)
    values, lengths = scores.spearman[kept], scores.length[kept]
    weights = replicate_weights()[:, blocks[kept]]
    return macro_average(values, lengths), macro_average(values, lengths, weights)


_UNIVERSAL = frozenset({"PUNCT", ".", "PU"})
"""Part-of-speech tags of punctuation: Universal Dependencies, its 2012 predecessor, Chinese Treebank."""
_PENN = frozenset(
    {"''", "``", ",", ".", ":", "(", ")", "-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-", "HYPH", "NFP"}
)
_STTS = frozenset({"$,", "$.", "$(", "$["})
_UNKNOWN = frozenset({"", "_", "-", "--"})


def is_syntax(words: Sequence[str], xpos: Sequence[str] | None, upos: Sequence[str] | None) -> np.ndarray:
    """Mask of the words that are not punctuation.

    UPOS decides or, if it is missing, XPOS with a known tag set (Penn Treebank, STTS, Chinese Treebank). Otherwise a
    word is punctuation if it consists only of Unicode punctuation.
    """
    unknown = ("_",) * len(words)
    rows = zip(words, xpos or unknown, upos or unknown, strict=True)
    return np.array([not _is_punctuation(*row) for row in rows], dtype=bool)


def _is_punctuation(word: str, xpos: str, upos: str) -> bool:
    if upos not in _UNKNOWN:
        return upos in _UNIVERSAL
    if xpos in _UNIVERSAL | _PENN | _STTS:
        return True
    if xpos == "POS":  # the apostrophe of a possessive
        return False
    return all(char in "`´" or unicodedata.category(char)[0] == "P" for char in word)
