"""How much of a tree all attention heads encode together: probes on attention, with and without word vectors."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow.flow import Intervention, PassOptions, Reader, Stream, forward
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, current_display, dealt, hash64, hash64_array, stream
from infoflow.heads import Annotation, membership, word_attention
from infoflow.models import Model, tap
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._first_choice import first_choice
from ._tree_probes import ROOT, AttentionTree, AttentionWordsTree, DistanceWordsTree, ProbeSentence, TreeProbe

PROBES = ("attention", "attention+words", "distance+words")
_BATCH = 32  # sentences whose attention is held at a time; probes see them one by one

HEAD_PROBE = TableSchema(
    name="head_probe",
    version=2,
    description="Share of words that a probe attaches to their head (unlabelled attachment score, the root included), "
    "on sentences that it was not trained on; m words with the same highest score count 1/m each.",
    made_by="it needs a corpus with trees: grammar, a CoNLL-U treebank, or text parsed by spaCy, and a plan that "
    "does not leave it out",
    columns=(
        Column(name="stack", dtype="string", unit="", description="the stack that reads the text"),
        Column(name="probe", dtype="string", unit="", description="what it reads: " + ", ".join(PROBES)),
        *estimate_columns("share", "share of words", "every word's head is its neighbour, on the better side", "words"),
    ),
)


class AttentionProbe(Intervention):
    """Unlabelled attachment of probes that read the attention of all heads, words, or both.

    - `attention`: two weights for each head (see `AttentionTree`).
    - `attention+words`: these weights depend on the two words' vectors.
    - `distance+words`: the control without attention.

    Word vectors are the model's own input embeddings, averaged over a word's tokens and scaled to unit spread, so they
    are context-free. (The paper uses GloVe.) Each probe is trained one sentence at a time, with Adam at a rate of
    0.002; the model is frozen. Attention is recomputed for each group of sentences and never stored.

    Args:
        sentences: Maximum number, chosen by hash; without trees the table is empty.
        held_out: Share of the sentences for scoring.
        epochs: Passes over the training sentences. The paper's one pass is over 40,000 sentences; a few hundred at its
            rate leave the weights near 0.
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
        beside = np.zeros(2)  # words whose head is the previous, the next one
        total = self.epochs * len(train)
        with current_display().progress("Training probes on attention", total, "sentences") as progress:
            for epoch in range(self.epochs):
                order = stream("attention-probe", self.seed, epoch).permutation(train)
                for _, sentence in _sentences(reader, trees, order):
                    _step(probes, optimisers, sentence)
                    beside += _neighbours(sentence).sum(0)
                    progress.advance(1)
        return self._scored(reader, trees, test, probes, side=int(beside.argmax()))

    def _split(self, reader: Reader) -> tuple[np.ndarray, np.ndarray]:
        rows, ids = reader.rows, reader.corpus.content_ids
        order = np.argsort(hash64_array(("attention-probe", self.seed), ids[rows]), kind="stable")
        chosen = rows[order[: self.sentences]]
        text = dealt(reader.corpus.text_ids[chosen], max(len(chosen), 1))  # 0 is the first: copies are on one side
        held_out = text < round((text.max(initial=-1) + 1) * self.held_out)
        return chosen[~held_out], chosen[held_out]

    def _probes(self, model: Model, stack: str) -> dict[str, TreeProbe]:
        layers = model.anatomy.stack(stack).layers
        heads = sum(layer.attentions["self"].num_heads for layer in layers)
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
    """The sentences in this order, a few at a time; grouped by length if the model allows no padding."""
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
    """Sentences without special tokens have no attention on them."""
    missing = size - merged.shape[3]
    return torch.nn.functional.pad(merged, (0, missing, 0, missing))


def _embeddings(model: Model, stack: str) -> Tensor:
    """The stack's input embeddings (vocabulary, width)."""
    module = model.module.get_encoder() if stack == "encoder" and len(model.anatomy.stacks) > 1 else model.module
    return module.get_input_embeddings().weight.detach().float()
