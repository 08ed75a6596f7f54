"""A reader's answers about facts: with each document, and with what it retrieves."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from infoflow._transformers import EncoderDecoderModel, PreTrainedModel
from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import UserError, hash64

from ..models import NULL, Library, Passages, RetrievalModel, marginal_log_likelihood, num_positions
from ._inputs import DOCUMENTS, FactInputs, fact_inputs

# A reader's answers: log-probabilities over the possible objects of a relation.

BATCH = 128
_SEQUENCES = 4096  # answers per decoder pass


def answer_log_probabilities(reader: PreTrainedModel, inputs: FactInputs, batch: int = BATCH) -> np.ndarray:
    r"""Each object's log-probability in nats, renormalised over the objects of the relation, (row, choice).

    $$ \log p(o) = \sum_j \log p(o_j \mid x) - \log \sum_{o'} \exp \sum_j \log p(o'_j \mid x) $$

    j runs over the masks, which are all filled at once. For an encoder-decoder, j runs over the generated tokens,
    including the end token, each conditioned on those before it. Choices outside the relation get −∞.
    """
    return renormalised(choice_token_log_probabilities(reader, inputs, batch))


@torch.no_grad()
def choice_token_log_probabilities(reader: PreTrainedModel, inputs: FactInputs, batch: int = BATCH) -> np.ndarray:
    r"""\(\log p(o_j \mid x)\) of each token of each object, over the whole vocabulary, (row, choice, target).

    The value is 0 where the object has no such token and −∞ for choices outside the relation. An encoder-decoder has
    one more target, the end token.
    """
    if isinstance(reader, EncoderDecoderModel):
        return written_token_log_probabilities(reader, inputs)
    found = []
    for part in inputs.batches(batch):
        longest = int(part.attention_mask.sum(axis=1).max())
        named = {name: tensor[:, :longest] for name, tensor in part.tensors(reader.device).items()}
        states = reader.base_model(**named).last_hidden_state
        rows = torch.arange(len(part), device=states.device)[:, None]
        masks = torch.from_numpy(part.masks).to(states.device)
        found.append(_of_choices(reader.get_submodule("cls")(states[rows, masks.clamp(min=0)]), part))
    return np.concatenate(found)


def choice_log_probabilities(logits: Tensor, inputs: FactInputs) -> np.ndarray:
    """`answer_log_probabilities` from existing logits (row, token, vocabulary)."""
    masks = torch.from_numpy(inputs.masks).to(logits.device)
    rows = torch.arange(len(inputs), device=logits.device)[:, None]
    return renormalised(_of_choices(logits[rows, masks.clamp(min=0)], inputs))


def choice_log_probabilities_at_masks(logits: Tensor, inputs: FactInputs) -> np.ndarray:
    """`choice_log_probabilities` from logits (row, target, vocabulary) at the masks; undefined at positions −1."""
    return renormalised(_of_choices(logits, inputs))


def renormalised(token_logs: np.ndarray) -> np.ndarray:
    """Log-probabilities over choices (row, choice) from those of their tokens (row, choice, target)."""
    return torch.from_numpy(token_logs).sum(dim=-1).log_softmax(dim=-1).numpy()


def _of_choices(logits: Tensor, inputs: FactInputs) -> np.ndarray:
    at_masks = logits.double().log_softmax(dim=-1)
    candidates = torch.from_numpy(inputs.candidates).to(logits.device)  # (row, choice, target)
    spelt = at_masks.gather(2, candidates.clamp(min=0).transpose(1, 2)).transpose(1, 2)
    there = (candidates >= 0).any(dim=-1, keepdim=True)
    return torch.where(candidates >= 0, spelt, torch.where(there, 0.0, -torch.inf)).cpu().numpy()


@torch.no_grad()
def written_token_log_probabilities(reader: EncoderDecoderModel, inputs: FactInputs) -> np.ndarray:
    r"""`choice_token_log_probabilities` of an encoder-decoder: \(\log p(o_j \mid x, o_{<j})\). Each question is encoded
    once, and the decoder's first step, which all objects share, runs once.
    """
    num_choices = inputs.candidates.shape[1]
    batch = max(1, _SEQUENCES // num_choices)
    return np.concatenate([_of_rows(reader, part) for part in inputs.batches(batch)])


def _of_rows(reader: Any, part: FactInputs) -> np.ndarray:
    longest = int(part.attention_mask.sum(axis=1).max())
    named = {name: tensor[:, :longest] for name, tensor in part.tensors(reader.device).items()}
    spelt, predicted = _spelt(part, int(reader.config.eos_token_id))
    _, num_choices, num_targets = spelt.shape
    logits = _logits(reader, named, torch.from_numpy(spelt).to(reader.device).flatten(0, 1), num_choices)
    logs = logits.double().log_softmax(dim=-1).cpu()
    of_tokens = logs.gather(2, torch.from_numpy(spelt).reshape(-1, num_targets, 1))[:, :, 0]
    there = predicted.any(axis=2, keepdims=True)
    return np.where(predicted, of_tokens.numpy().reshape(spelt.shape), np.where(there, 0.0, -np.inf))


def _logits(reader: Any, named: dict[str, Tensor], answers: Tensor, num_choices: int) -> Tensor:
    """Logits before each token of the answers, (row and choice, target, word)."""
    mask = named["attention_mask"]
    states = reader.encoder(**named).last_hidden_state
    start = mask.new_full((len(mask), 1), int(reader.config.decoder_start_token_id))
    first = reader.decoder(input_ids=start, encoder_hidden_states=states, encoder_attention_mask=mask, use_cache=True)
    known = first.past_key_values
    known.batch_repeat_interleave(num_choices)
    later = reader.decoder(
        input_ids=answers[:, :-1],
        encoder_hidden_states=states.repeat_interleave(num_choices, dim=0),
        encoder_attention_mask=mask.repeat_interleave(num_choices, dim=0),
        past_key_values=known,
        use_cache=True,
    ).logits
    return torch.cat([first.logits.repeat_interleave(num_choices, dim=0), later], dim=1)


def _spelt(part: FactInputs, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of every object and its end token, int64 (row, choice, target), 0 if missing; mask of existing tokens."""
    words = part.candidates >= 0
    num = words.sum(axis=2, keepdims=True)
    places = np.arange(words.shape[2] + 1)
    spelt = np.concatenate([np.where(words, part.candidates, 0), np.zeros_like(num)], axis=2)
    return np.where((places == num) & (num > 0), end, spelt), (places <= num) & (num > 0)


# What a retrieval model retrieves for questions about facts, and its answers from all of it.

_BATCH = 1024
_DRAWS = 1 << 62


@final
@dataclass(frozen=True, slots=True, eq=False)
class QuestionCandidates:
    """Candidates of each question, in the order of `world.questions(facts)`; the last one is the null passage."""

    ids: np.ndarray  # int64 (question, candidate), numbers of the world's passages
    there: np.ndarray  # bool (question, candidate)
    log_prior: np.ndarray  # (question, candidate), log π; −∞ where there is no candidate

    def best(self) -> np.ndarray:
        """The passage with the highest prior, without the null passage; −1 if nothing was found."""
        if self.ids.shape[1] == 1:
            return self.ids[:, 0]
        chosen = self.log_prior[:, :-1].argmax(axis=1)
        return np.take_along_axis(self.ids, chosen[:, None], axis=1)[:, 0]


@torch.no_grad()
def question_candidates(
    model: RetrievalModel,
    world: FactWorld,
    tokenizer: Any,
    facts: Collection[Fact],
    *,
    edited: bool = False,
    k: int = 2,
    seed: int = 0,
    library: Library | None = None,
) -> QuestionCandidates:
    """What a model retrieves for every fact, in the test wordings.

    The index is built here from the current model, so it is not stale; the model's own index is unchanged. A `library`
    replaces the world's passages, with the same ids. If the library has an index, that index is used; otherwise one is
    built and kept, so that several calls with the same model can share it.
    """
    inputs = fact_inputs(world, tokenizer, facts, "none", limit=limit_of(model))
    passages = library or Library(Passages.from_rows(world.passages(edited)), tokenizer, limit_of(model))
    gold = np.array([world.gold(fact, edited) for fact in inputs.facts])
    draws = np.array([hash64("own-candidates", seed, fact.number) % _DRAWS for fact in inputs.facts])
    parts = []
    with reading_from(model, passages):
        for start in range(0, len(inputs), _BATCH):
            rows = np.arange(start, min(start + _BATCH, len(inputs)))
            ids, mask = inputs.take(rows).queries(model.device)
            choice = model.choose(ids, mask, k, gold[rows], draws[rows])
            scores = model.logits(ids, mask, choice).double().cpu()
            prior = scores.masked_fill(~torch.from_numpy(choice.there), -torch.inf).log_softmax(dim=1)
            parts.append((choice.ids, choice.there, prior.numpy()))
    return QuestionCandidates(*(np.concatenate(one) for one in zip(*parts, strict=True)))


def own_log_probabilities(
    model: RetrievalModel,
    world: FactWorld,
    tokenizer: Any,
    facts: Collection[Fact],
    found: QuestionCandidates,
    *,
    edited: bool = False,
    level: Literal["sequence", "token"] = "sequence",
) -> np.ndarray:
    r"""Each object's log-probability, marginalised over passages and renormalised over the relation's objects.

    $$ \log p(o) \propto \log \sum_z \pi(z) \prod_j p(o_j \mid z, x) $$

    The formula is for the sequence level; see `marginal_log_likelihood` for the token level. The result is (question,
    choice), in nats, −∞ for choices outside the relation. `found` comes from `question_candidates` for the same facts.
    """
    batch = inputs_with_candidates(model, world, tokenizer, facts, found, edited)
    logs = [choice_token_log_probabilities(model.reader, inputs) for inputs in batch]
    likely = np.stack(logs, axis=2)  # (question, choice, candidate, target)
    num_questions, num_choices, num_candidates, num_targets = likely.shape
    marginal = marginal_log_likelihood(
        np.repeat(found.log_prior, num_choices, axis=0),
        likely.reshape(-1, num_candidates, num_targets),
        level=level,
        candidates=np.repeat(found.there, num_choices, axis=0),
    )
    return marginal.reshape(num_questions, num_choices).log_softmax(dim=1).numpy()


def inputs_with_candidates(
    model: RetrievalModel,
    world: FactWorld,
    tokenizer: Any,
    facts: Collection[Fact],
    found: QuestionCandidates,
    edited: bool,
) -> Iterator[FactInputs]:
    """All questions with their first candidate, then with their second, and so on; missing candidates are empty."""
    for ids in np.where(found.there, found.ids, NULL).T:
        options: Any = {"passages": ids.tolist(), "edited": edited, "limit": limit_of(model)}
        yield fact_inputs(world, tokenizer, facts, "retrieved", **options)


def limit_of(model: Any) -> int:
    """The maximum number of tokens that the model can read."""
    return num_positions(model.config)


@contextmanager
def reading_from(model: RetrievalModel, library: Library) -> Iterator[None]:
    """Let a model read another library's passages inside the `with` block."""
    before = model.passage_library
    model.passage_library = library
    try:
        yield
    finally:
        model.passage_library = before


# A model's inputs and answers for facts, with each document.

OWN = "own"  # the document of a model that reads everything it retrieved, marginalised over passages
Level = Literal["sequence", "token"]


def reader_of(model: Any) -> Any:
    """The masked LM of a `RetrievalModel`, or the model itself."""
    return model.reader if isinstance(model, RetrievalModel) else model


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class FactReadings:
    """A model, and the facts to test."""

    model: Any  # a masked LM, or a `RetrievalModel`
    world: FactWorld
    tokenizer: Any
    facts: Collection[Fact]
    edited: bool = False  # whether to use the passages of the edited index
    k: int = 2  # passages per search
    level: Level = "sequence"  # level at which passages are marginalised
    seed: int = 0  # seeds random documents
    passage_library: Library | None = None  # see `question_candidates`; None: a library is built for these facts

    @property
    def reader(self) -> Any:
        return reader_of(self.model)

    @property
    def available(self) -> tuple[str, ...]:
        """Documents for this model: `own` needs a `RetrievalModel`, and `retrieved` also needs a source of passages."""
        if not isinstance(self.model, RetrievalModel):
            return DOCUMENTS[:-1]
        return (*DOCUMENTS[:-1], OWN) if self.model.source == "none" else (*DOCUMENTS, OWN)

    def require(self, documents: Collection[str]) -> None:
        """Raise a `UserError` if one of these documents is not available."""
        if wrong := [one for one in documents if one not in self.available]:
            raise UserError(
                f"documents must be among {', '.join(self.available)} for a {type(self.model).__name__}. Got "
                f'"{wrong[0]}".\nFor retrieved and own use a RetrievalModel that retrieves passages.'
            )

    def has(self, document: str) -> bool:
        """Whether one of the facts has a document of this kind."""
        if document not in ("gold", "conflict"):
            return True
        return any(self.world.gold(fact, self.edited) >= 0 for fact in self.facts)

    def inputs(self, document: str) -> FactInputs:
        """The questions with a document, or without one for `own`."""
        passages = self.found.best().tolist() if document == "retrieved" else None
        kind: Any = "none" if document == OWN else document
        options = {"edited": self.edited, "limit": limit_of(self.reader), "seed": self.seed}
        return fact_inputs(self.world, self.tokenizer, self.facts, kind, passages=passages, **options)

    def answers(self, document: str, inputs: FactInputs) -> np.ndarray:
        """Log-probabilities of objects, (question, choice)."""
        if document != OWN:
            return answer_log_probabilities(self.reader, inputs)
        options: Any = {"edited": self.edited, "level": self.level}
        return own_log_probabilities(self.model, self.world, self.tokenizer, self.facts, self.found, **options)

    def read(self, documents: Collection[str]) -> Iterator[tuple[str, FactInputs, np.ndarray]]:
        """Yield each of these documents that at least one fact has, with its inputs and answers."""
        self.require(documents)
        for document in documents:
            if self.has(document):
                inputs = self.inputs(document)
                yield document, inputs, self.answers(document, inputs)

    @cached_property
    def found(self) -> QuestionCandidates:
        """What the model retrieves: from the given library, or from an index built now."""
        options: Any = {"edited": self.edited, "k": self.k, "seed": self.seed, "library": self.passage_library}
        return question_candidates(self.model, self.world, self.tokenizer, self.facts, **options)
