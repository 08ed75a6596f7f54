"""The inverse cloze task: find the passage that a sentence was taken from (the warm start of a retriever)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from infoflow._transformers import PreTrainedModel
from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import Probability, UserError
from infoflow.objectives._batch import Batch, Corrupted, Example, Field, LossTerm, Noise, Shown, tokens_of
from infoflow.objectives._objective import AbstractObjective, Family

from ..models import Retriever, in_batch_loss


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class InverseCloze(AbstractObjective):
    """The query is a random sentence of a passage, the positive is that passage, and the batch has the negatives.

    The sentence is removed from its passage with probability `mask_rate`. A passage that would be left without any
    sentence does not count. Passages with the same text as the query's own are not negatives; its softmax omits them.
    The batch is one forward pass, so make `micro_tokens` large enough for a whole update. With several processes, each
    computes the whole batch.

    Source: [@lee2019latent].
    """

    name: ClassVar[str] = "inverse-cloze"
    layout: ClassVar[Layout] = "encoder"
    family: ClassVar[Family] = "discriminate"
    uses_all_parameters: ClassVar[bool] = False  # if no query counts
    compares_examples: ClassVar[bool] = True
    term_weights: ClassVar[dict[str, float]] = {"inverse-cloze": 1.0}
    fields: ClassVar[Mapping[str, Field]] = {
        "input_ids": Field(pad="source"),  # [CLS] sentence [SEP]
        "passage_ids": Field(pad="source"),  # [CLS] title [SEP] body [SEP]
        "passage_mask": Field(),
        "passage_segments": Field(),
        "key": Field(),  # key of the whole passage's text
        "counted": Field(pad=False),
    }

    mask_rate: Probability = 0.9  # probability that the sentence is removed from its passage

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Choose a sentence, and whether it stays in its passage."""
        if "title" not in example.labels:
            raise UserError(
                f"{self.name} reads passages. Got a plain sentence.\nMake rows with "
                "infoflow.subjects.retrieval.training.PassageRows."
            )
        sentences = list(example.texts)
        chosen = int(generator.integers(len(sentences)))
        removed = bool(generator.random() < self.mask_rate)
        counted = not (removed and len(sentences) == 1)
        rest = sentences[:chosen] + sentences[chosen + 1 :] if removed and counted else sentences
        title, body = example.labels["title"], np.concatenate(rest)
        start, end = [vocabulary.start], [vocabulary.end]
        query = np.concatenate([start, sentences[chosen], end]).astype(np.int64)
        passage = np.concatenate([start, title, end, body, end]).astype(np.int64)
        arrays = {
            "input_ids": query,
            "passage_ids": passage,
            "passage_mask": np.ones(len(passage), dtype=np.int64),
            "passage_segments": np.repeat([0, 1], [len(title) + 2, len(body) + 1]),
            "key": example.labels["key"],
            "counted": np.array(counted),
        }
        return Corrupted(arrays=arrays, selected=np.zeros(len(query), dtype=bool))

    def counts(self, batch: Batch) -> dict[str, int]:
        return {self.name: int(batch["counted"].sum())}

    def guesses(self, batch: Batch, unigram: np.ndarray) -> dict[str, float]:
        """Chance: every passage of the batch is equally likely."""
        counted = int(batch["counted"].sum())
        return {self.name: counted * float(np.log(len(batch)))}

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """The in-batch loss, summed over the queries that count."""
        if not isinstance(module, Retriever):
            raise UserError(
                f"{self.name} trains a Retriever. Got a {type(module).__name__}.\nMake one with build_retriever."
            )
        if label_smoothing:
            raise UserError(f"training.label_smoothing must be 0 with {self.name}. Got {label_smoothing}.")
        counted = batch["counted"]
        if not counted.any():
            return {self.name: LossTerm(total=0.0 * module.queries.norm.bias.sum(), count=0)}
        queries = module.queries(batch.input_ids, batch.attention_mask)[counted]
        passages = module.passages(batch["passage_ids"], batch["passage_mask"], batch["passage_segments"])
        own = counted.nonzero()[:, 0]
        same = batch["key"][counted][:, None] == batch["key"][None]
        same[own.new_tensor(range(len(own))), own] = False
        mean = in_batch_loss(module.scores(queries, passages), own, same)
        return {self.name: LossTerm(total=mean * len(own), count=len(own))}

    def example(
        self, sentences: Sequence[np.ndarray], vocabulary: Vocabulary, translation: np.ndarray | None = None
    ) -> Example:
        """A passage without a title."""
        labels = {"title": sentences[0][:0], "key": np.array(0)}
        return Example(texts=tuple(sentences), labels=labels)

    def shown(self, batch: Batch, names: Sequence[str], target_names: Sequence[str]) -> Shown:
        """The query and its passage."""
        target = "this passage, not the others of the update" if batch["counted"] else "none: the passage is empty"
        return Shown(
            inputs={"query": tokens_of(batch.input_ids, names), "passage": tokens_of(batch["passage_ids"], names)},
            targets={self.name: [target]},
        )
