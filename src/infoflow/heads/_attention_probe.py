"""How much of a syntax tree all attention heads together encode: probes on attention, with and without word vectors."""

# K head of the model (all layers), W word, E width of a word vector, F = 2K features of a pair

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from infoflow.flow import Intervention, PassOptions, Reader, Stream, forward
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, current_display, dealt, hash64, hash64_array, stream
from infoflow.models import Model, tap, weight_of
from infoflow.representations import first_choice
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._attention_rows import Annotation, membership, word_attention

PROBES = ("attention", "attention+words", "distance+words")
_BATCH = 32  # sentences whose attention is in memory at a time; probes see them one by one

HEAD_PROBE = TableSchema(
    name="head_probe",
    version=2,
    description="Share of words that a probe attaches to their head (unlabelled attachment score, the root included), "
    "on sentences that it was not trained on; m words with the same highest score count 1/m each.",
    made_by="it needs a corpus with trees: the built-in grammar, a CoNLL-U treebank, or text parsed by spaCy, and a "
    "plan that does not leave it out",
    columns=(
        Column("stack", "string", "", "the stack that reads the text"),
        Column("probe", "string", "", "what the probe reads: " + ", ".join(PROBES)),
        *estimate_columns("share", "share of words", "each word attached to its neighbour on the better side", "words"),
    ),
)
ROOT = -1
_HIDDEN = 256


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbeSentence:
    """One sentence and its dependency tree, in the form that probes read."""

    maps: Float[Tensor, "head word word"]  # attention between words, from row to column
    ends: Float[Tensor, "head word 2"]
    """Attention from each word to the first special token (CLS) and to the last one (SEP); 0 where there is none."""
    vectors: Float[Tensor, "word width"]  # context-free word vectors
    governors: Int[Tensor, " word"]  # index of each word's head; −1 for the root
    present: Bool[Tensor, " word"]  # words that have tokens and whose head has tokens

    @property
    def targets(self) -> Int[Tensor, " word"]:
        """For each word, the column of the right answer in a probe's logits; the last column is the root."""
        return torch.where(self.governors == ROOT, len(self.governors), self.governors)


class TreeProbe(nn.Module, ABC):
    """Scores each word as the head of each dependent: logits (dependent, word + 1); the last column is the root."""

    @abstractmethod
    def pairs(self, sentence: ProbeSentence) -> Float[Tensor, "word candidate"]:
        """Scores of all pairs, before impossible answers are removed."""

    def forward(self, sentence: ProbeSentence) -> Float[Tensor, "word candidate"]:
        scores = self.pairs(sentence)
        num = len(sentence.governors)
        itself = torch.eye(num, num + 1, dtype=torch.bool, device=scores.device)
        absent = torch.cat([~sentence.present, sentence.present.new_zeros(1)])
        return scores.masked_fill(itself | absent, -torch.inf)

    def loss(self, sentence: ProbeSentence) -> Tensor:
        """Cross-entropy, summed over the words."""
        logits = self(sentence)[sentence.present]
        return nn.functional.cross_entropy(logits, sentence.targets[sentence.present], reduction="sum")


class AttentionProbe(Intervention):
    """Unlabelled attachment score of probes that read the attention of all heads, words, or both.

    - `attention`: two weights for each head (see `AttentionTree`).
    - `attention+words`: these weights depend on the two words' vectors.
    - `distance+words`: the control without attention.

    Word vectors are the model's own input embeddings, averaged over a word's tokens and scaled to unit spread, so they
    are context-free. (The paper uses GloVe.) Each probe is trained one sentence at a time, with Adam at a rate of
    0.002; the model is frozen. Attention is recomputed for each group of sentences, and not stored.

    Args:
        sentences: Maximum number of sentences, chosen by hash; without trees the table is empty.
        held_out: Share of the sentences that are held out for scoring.
        epochs: Passes over the training sentences. The paper's single pass is over 40,000 sentences; with a few
            hundred, one pass leaves the weights near 0.
        rate: Adam's learning rate.
        seed: Seeds the choice of sentences and the probes' initial weights.

    Source: [@clark2019], the authors' code.
    """

    table: ClassVar[TableSchema] = HEAD_PROBE

    def __init__(
        self, sentences: int = 1000, held_out: float = 0.3, epochs: int = 3, rate: float = 0.002, seed: int = 0
    ) -> None:
        if sentences < 2 or not 0 < held_out < 1 or epochs < 1 or rate <= 0:
            raise UserError(
                "sentences must be at least 2, held_out lie between 0 and 1, epochs be at least 1, rate be above 0. "
                f"Got {sentences}, {held_out}, {epochs} and {rate}."
            )
        self.sentences, self.held_out, self.epochs, self.rate, self.seed = sentences, held_out, epochs, rate, seed

    @property
    def of_heads(self) -> bool:
        return True

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        trees = Annotation.of(reader.corpus, ("head",))
        train, test = self._split(reader)
        if trees is None or len(train) == 0 or len(test) == 0:
            return pd.DataFrame(columns=self.table.column_names)
        probes = self._probes(reader.model, reader.source_stack)
        optimisers = {
            name: torch.optim.Adam(probe.parameters(), lr=self.rate, foreach=False) for name, probe in probes.items()
        }
        adjacent = np.zeros(2)  # numbers of words whose head is the previous word, and the next word
        total = self.epochs * len(train)
        with current_display().progress("Training probes on attention", total, "sentences") as progress:
            for epoch in range(self.epochs):
                order = stream("attention-probe", self.seed, epoch).permutation(train)
                for _, sentence in _sentences(reader, trees, order):
                    _step(probes, optimisers, sentence)
                    adjacent += _neighbours(sentence).sum(0)
                    progress.advance(1)
        return self._scored(reader, trees, test, probes, side=int(adjacent.argmax()))

    def _split(self, reader: Reader) -> tuple[np.ndarray, np.ndarray]:
        rows, ids = reader.rows, reader.corpus.content_ids
        order = np.argsort(hash64_array(("attention-probe", self.seed), ids[rows]), kind="stable")
        chosen = rows[order[: self.sentences]]
        text = dealt(reader.corpus.text_ids[chosen], max(len(chosen), 1))  # 0 is the first text; copies stay together
        held_out = text < round((text.max(initial=-1) + 1) * self.held_out)
        return chosen[~held_out], chosen[held_out]

    def _probes(self, model: Model, stack: str) -> dict[str, TreeProbe]:
        heads = sum(model.anatomy.head_numbers()[stack, "self"])
        width = _embeddings(model, stack).shape[1]
        state = torch.get_rng_state()
        torch.manual_seed(hash64("attention-probe", self.seed) % 2**63)
        made = (AttentionTree(heads), AttentionWordsTree(heads, width), DistanceWordsTree(width))
        torch.set_rng_state(state)
        return {name: probe.to(model.device) for name, probe in zip(PROBES, made, strict=True)}

    def _scored(
        self, reader: Reader, trees: Annotation, rows: np.ndarray, probes: dict[str, TreeProbe], side: int
    ) -> pd.DataFrame:
        hits = np.zeros((len(probes) + 1, NUM_BLOCKS))
        count = np.zeros(NUM_BLOCKS)
        for row, sentence in _sentences(reader, trees, rows):
            block = int(block_of(reader.corpus.content_ids[[row]])[0])
            right = sentence.targets[sentence.present]
            with torch.no_grad():
                for index, probe in enumerate(probes.values()):
                    hits[index, block] += float(first_choice(probe(sentence)[sentence.present], right).sum())
            hits[-1, block] += int(_neighbours(sentence)[:, side].sum())
            count[block] += len(right)
        baseline = float(hits[-1].sum() / count.sum())
        stack = reader.source_stack
        table = [
            {"stack": stack, "probe": name, **ratio_estimate(hits[index], count, baseline, "share")}
            for index, name in enumerate(probes)
        ]
        return pd.DataFrame(table, columns=self.table.column_names)


def _step(probes: dict[str, TreeProbe], optimisers: dict[str, torch.optim.Adam], sentence: ProbeSentence) -> None:
    if not bool(sentence.present.any()):
        return
    with torch.inference_mode(False), torch.enable_grad():
        for name, probe in probes.items():
            optimisers[name].zero_grad()
            probe.loss(sentence).backward()
            optimisers[name].step()


def _neighbours(sentence: ProbeSentence) -> np.ndarray:
    """(word, 2): whether the word's head is the previous or the next one."""
    offset = (sentence.governors - torch.arange(len(sentence.governors)).to(sentence.governors)).cpu().numpy()
    rooted = (sentence.governors != ROOT).cpu().numpy()
    counted = sentence.present.cpu().numpy() & rooted
    return np.stack([(offset == o) & counted for o in (-1, 1)], axis=1)


def _sentences(reader: Reader, trees: Annotation, rows: np.ndarray) -> Iterator[tuple[int, ProbeSentence]]:
    """The sentences in the order of `rows`, a few at a time; grouped by length if padding changes the results."""
    stack, model = reader.source_stack, reader.model
    table = _embeddings(model, stack)
    spread = table.std()
    for index in reader.even(rows, np.split(np.arange(len(rows)), range(_BATCH, len(rows), _BATCH))):
        batch = reader.padded(rows[index]).to(model.device)
        with torch.no_grad(), tap(model, attention=True) as seen:
            forward(model, batch)
            layers = list(seen.attention[stack, "self"])
        read = batch.streams[stack]
        vectors = table[read.input_ids] / spread
        annotation = [row[0] for row in trees.rows(batch.sentence_ids)]
        yield from zip(rows[index].tolist(), _built(read, layers, vectors, annotation), strict=True)


def _built(read: Stream, layers: list[Tensor], vectors: Tensor, annotation: list[list[int]]) -> Iterator[ProbeSentence]:
    words = read.words
    num = max(int(words.max()) + 1, 1)
    last = read.position.amax(1, keepdim=True)
    special = read.real & ~read.valid
    # Two more words: the first and the last special token of each sentence.
    extended = torch.where(special & (read.position == last), num + 1, words)
    extended = torch.where(special & (read.position == 0), num, extended)
    extended = extended.masked_fill(~read.real, -1)
    merged = torch.cat([_padded(word_attention(layer.float(), extended), num + 2) for layer in layers], dim=1)
    member = membership(words).to(vectors)
    means = (member / member.sum(1, keepdim=True).clamp(min=1)).mT @ vectors
    there = membership(words).any(1)
    for b, heads in enumerate(annotation):
        size = min(len(heads), num)
        governors = torch.tensor(heads[:size], device=words.device)
        attached = (governors == ROOT) | ((governors < size) & there[b][governors.clamp(0, num - 1)])
        yield ProbeSentence(
            maps=merged[b, :, :size, :size],
            ends=merged[b, :, :size, num:],
            vectors=means[b, :size],
            governors=governors,
            present=there[b, :size] & attached,
        )


def _padded(merged: Tensor, size: int) -> Tensor:
    """Attention padded with zeros to `size`; sentences without special tokens have no attention on them."""
    missing = size - merged.shape[3]
    return torch.nn.functional.pad(merged, (0, missing, 0, missing))


def _embeddings(model: Model, stack: str) -> Tensor:
    """The stack's input embeddings (vocabulary, width)."""
    module = model.module.get_encoder() if stack == "encoder" and len(model.anatomy.stacks) > 1 else model.module
    return weight_of(module.get_input_embeddings()).float()


class AttentionTree(TreeProbe):
    r"""Word j has head i with $p(i \mid j) \propto \exp(\sum_k w_k a^k_{ij} + u_k a^k_{ji})$, k over attention heads.

    The root's score is the mean attention from j to CLS and to SEP, each multiplied by a learned weight. (The paper has
    two such scalars, but does not say what they multiply.)

    Source: [@clark2019], the authors' code.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(2, num_heads))
        self.root = nn.Parameter(torch.zeros(2))

    def pairs(self, sentence: ProbeSentence) -> Float[Tensor, "word candidate"]:
        from_head = torch.einsum("k,kij->ji", self.weights[0], sentence.maps)
        from_dependent = torch.einsum("k,kji->ji", self.weights[1], sentence.maps)
        return torch.cat([from_head + from_dependent, _root(sentence, self.root)], dim=1)


class AttentionWordsTree(TreeProbe):
    r"""`AttentionTree` with weights that depend on both words, $[w; u]_{ij} = P v_i + Q v_j + b$; the root has v = 0.

    Source: [@clark2019], the authors' code; they take 100-dimensional GloVe vectors.
    """

    def __init__(self, num_heads: int, width: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, 2 * num_heads, bias=False)
        self.dependent = nn.Linear(width, 2 * num_heads)
        self.root = nn.Parameter(torch.zeros(2))

    def pairs(self, sentence: ProbeSentence) -> Float[Tensor, "word candidate"]:
        of_head, of_dependent = self.head(sentence.vectors), self.dependent(sentence.vectors)
        num_heads = len(sentence.maps)
        toward, back = sentence.maps.permute(2, 1, 0), sentence.maps.permute(1, 2, 0)  # [j, i]: i to j, j to i
        features = torch.cat([toward, back], dim=2)
        scores = torch.einsum("jif,if->ji", features, of_head) + torch.einsum("jif,jf->ji", features, of_dependent)
        on_cls = (of_dependent[:, num_heads:] * sentence.ends[:, :, 0].T).sum(1, keepdim=True)
        return torch.cat([scores, on_cls + _root(sentence, self.root)], dim=1)


class DistanceWordsTree(TreeProbe):
    """The baseline without attention: word vectors and eight features of the distance, 256 hidden units (tanh).

    Source: [@clark2019], the authors' code. The paper does not name the eight features; ours are `distance_features`.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, _HIDDEN, bias=False)
        self.dependent = nn.Linear(width, _HIDDEN)
        self.distance = nn.Linear(8, _HIDDEN, bias=False)
        self.root = nn.Parameter(torch.zeros(_HIDDEN))
        self.out = nn.Linear(_HIDDEN, 1)

    def pairs(self, sentence: ProbeSentence) -> Float[Tensor, "word candidate"]:
        of_head, of_dependent = self.head(sentence.vectors), self.dependent(sentence.vectors)
        place = torch.arange(len(of_head), device=of_head.device)
        distance = self.distance(distance_features(place - place.unsqueeze(1)).to(of_head))
        words = of_dependent.unsqueeze(1) + of_head + distance
        root = (of_dependent + self.root).unsqueeze(1)
        return self.out(torch.tanh(torch.cat([words, root], dim=1))).squeeze(2)


def distance_features(distance: Int[Tensor, "*pair"]) -> Float[Tensor, "*pair 8"]:
    """Eight features of a distance d: d > 0; d = 1, −1, 2, −2; 3 to 5 away on either side; ln of the distance."""
    d, size = distance, distance.abs()
    flags = [d > 0, d == 1, d == -1, d == 2, d == -2, (d >= 3) & (d <= 5), (d <= -3) & (d >= -5)]
    return torch.stack([*(flag.float() for flag in flags), size.clamp(min=1).float().log()], dim=-1)


def _root(sentence: ProbeSentence, weights: Float[Tensor, " 2"]) -> Float[Tensor, "word 1"]:
    return (sentence.ends.mean(0) @ weights).unsqueeze(1)
