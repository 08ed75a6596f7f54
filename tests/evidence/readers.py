"""Readers of which every answer is known."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from transformers import BertConfig, PreTrainedModel

from infoflow.corpus import Fact, FactWorld

Rule = Callable[[Fact, int | None], int]
"""From a fact, and the object that its passage gives it if there is one, to the object that is answered."""


class _Body(torch.nn.Module):
    """States are what is said: 9 at the token of the answer, at every mask; 0 elsewhere. State 0 says nothing."""

    def __init__(self, world: FactWorld, tokenizer, rule: Rule) -> None:
        super().__init__()
        self.tokenizer, self.rule, self.world = tokenizer, rule, world
        self.fact = {one.masked(): world.facts[one.fact] for one in world.questions(world.facts)}
        self.number = {
            (relation, answer): number
            for relation in range(world.config.relations)
            for number, answer in enumerate(world.answers(relation))
        }

    def forward(self, input_ids, attention_mask, token_type_ids, output_hidden_states=False):
        states = torch.zeros(*input_ids.shape, len(self.tokenizer))
        for row, (ids, real, segments) in enumerate(zip(input_ids, attention_mask, token_type_ids, strict=True)):
            words = self.tokenizer.convert_ids_to_tokens(ids[(real == 1) & (segments == 0)])[1:-1]
            passage = self.tokenizer.convert_ids_to_tokens(ids[(real == 1) & (segments == 1)])[:-1]
            fact = self.fact.get(" ".join(word for word in words if word != "[SEP]"))
            if fact is None:  # a sentence of the language
                continue
            said = self.world.words.object_words(fact.relation, self.rule(fact, self._read(fact, passage)))
            places = [place for place, id in enumerate(ids) if id == self.tokenizer.mask_token_id]
            for place, word in zip(places, said, strict=True):
                states[row, place, self.tokenizer.convert_tokens_to_ids(word)] = 9.0
        hidden = (torch.zeros_like(states), states) if output_hidden_states else None
        return SimpleNamespace(last_hidden_state=states, hidden_states=hidden)

    def _read(self, fact: Fact, passage: list[str]) -> int | None:
        """The object in the passage's sentence about the fact's subject and relation."""
        for sentence in " ".join(passage).split(" ."):
            words = sentence.split()
            asked = self.world.names[fact.entity], self.world.words.relations[fact.relation]
            if not {*asked[0]} <= {*words} or not {*asked[1]} & {*words}:
                continue
            for answer in self.world.answers(fact.relation):
                if answer in sentence:
                    return self.number[fact.relation, answer]
        return None


class Speaker(PreTrainedModel):
    """A masked LM of one layer that follows a rule; its head leaves states as they are."""

    config_class = BertConfig
    base_model_prefix = "bert"

    def __init__(self, world: FactWorld, tokenizer, rule: Rule) -> None:
        size = len(tokenizer)
        super().__init__(
            BertConfig(
                vocab_size=size,
                hidden_size=size,
                num_attention_heads=1,
                num_hidden_layers=1,
                max_position_embeddings=64,
            )
        )
        self.bert, self.cls = _Body(world, tokenizer, rule), torch.nn.Identity()
        self.anchor = torch.nn.Parameter(torch.zeros(1))  # whose device is the model's


def copier(fact: Fact, read: int | None) -> int:
    """Says what the passage says, and the first object without one."""
    return 0 if read is None else read


def memoriser(fact: Fact, read: int | None) -> int:
    """Says what training said."""
    return fact.object
