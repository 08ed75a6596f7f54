"""A compiler from programs of heads to Transformers: which head does what, and which matter, is known.

Every head moves the token that it attends to into a part of the residual stream of its own. `evidence` says how much
that token speaks for each next (or hidden) token: the model's logits are the sum of the evidence of all heads, so that
exactly the heads with evidence, and those that they build on, matter. `sampled` draws the sentences of a causal model
from the model itself, which is therefore calibrated.

The Transformers are Hugging Face's GPT-2 and BERT with their norms. Every dimension of the residual stream has a twin
of opposite sign, so its mean is 0, and the norms' epsilon is so large that they change nothing (to about 1e-6).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from infoflow.models import Model, load_model

SPECIAL = ("BOS", "PAD", "MASK", "EOS")
_SHARP, _RANDOM = 30.0, 2.0  # largest attention score of a head with a purpose, and standard deviation of others'
_EPSILON = 1e6
_NEVER = -30.0  # logit of special tokens

Attends = Literal["offset", "token", "same", "after-same", "even", "random"]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadProgram:
    """What a head attends to, and what the token that it moves says of the token to predict.

    | attends      | to                                                                                     |
    |--------------|----------------------------------------------------------------------------------------|
    | `offset`     | the position `offset` away; the first where there is none                              |
    | `token`      | all positions of the word `word`; all positions alike where there is none              |
    | `same`       | all positions of the query's token, its own included                                   |
    | `after-same` | all positions after the query's token, by what head `reads` of the layer below, which  |
    |              | attends to the previous token, moved there (an induction head)                         |
    | `even`       | all positions alike                                                                    |
    | `random`     | by random queries and keys of tokens and positions                                     |
    """

    attends: Attends
    offset: int = 0
    word: int = 0
    reads: int = 0
    evidence: float = 0.0
    """In nats; 0: the head is idle. Random by pairs of tokens with this standard deviation, or as `copies` says."""
    copies: bool = False
    """The evidence is for the moved token itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    layers: Sequence[Sequence[HeadProgram]]  # as many heads in each
    causal: bool = True
    words: int = 8
    length: int = 12
    seed: int = 0

    def matters(self) -> dict[tuple[int, int], bool]:
        """Whether a head, by layer and number, has evidence or is read by one that has."""
        found = {
            (layer, head): each.evidence > 0
            for layer, heads in enumerate(self.layers)
            for head, each in enumerate(heads)
        }
        for layer, heads in enumerate(self.layers):
            for each in heads:
                if each.attends == "after-same" and each.evidence > 0:
                    found[layer - 1, each.reads] = True
        return found


def compiled(program: Program) -> Model:
    """The program as weights of a GPT-2 (causal) or a BERT with a masked-LM head."""
    return load_model(_Compiler(program).module(), tokenizer=_tokenizer(program))


def random_program(seed: int, heads: int = 4) -> Program:
    """A program of one or two layers; of every ten seven are causal. Between a quarter and half of its heads matter."""
    rng = np.random.default_rng(seed)
    if seed % 10 >= 7:
        period = int(rng.integers(2, 5))
        idle = [HeadProgram(attends="random"), HeadProgram(attends="even"), HeadProgram(attends="same")]
        idle += [HeadProgram(attends="offset", offset=other) for other in (-1, 0, 1, 5) if other != period]
        moved = [HeadProgram(attends="offset", offset=by, evidence=4.0, copies=True) for by in (-period, period)]
        chosen = [idle[i] for i in rng.choice(len(idle), 2 * heads - 2)] + moved
        mixed = [chosen[i] for i in rng.permutation(2 * heads)]
        layers = [mixed[:heads], mixed[heads:]]
        return Program(layers=layers, causal=False, length=4 * period, seed=seed)
    layers = [[_random_head(rng) for _ in range(heads)] for _ in range(int(rng.integers(1, 3)))]
    if len(layers) == 2 and rng.random() < 0.5:
        layers[0][0] = HeadProgram(attends="offset", offset=-1)
        layers[1][0] = HeadProgram(attends="after-same", evidence=4.0, copies=True)
    matter = [each.evidence > 0 for layer in layers for each in layer]
    if not any(matter):
        layers[0][1] = HeadProgram(attends="offset", offset=-2, evidence=2.0)
    if all(matter):
        layers[0][1] = HeadProgram(attends="random")
    return Program(layers=layers, seed=seed)


def _random_head(rng: np.random.Generator) -> HeadProgram:
    attends: Attends = str(rng.choice(["offset", "token", "same", "even", "random"], p=[0.4, 0.15, 0.1, 0.1, 0.25]))  # type: ignore[assignment]
    evidence = float(rng.uniform(1, 3)) if attends != "random" and rng.random() < 0.4 else 0.0
    return HeadProgram(attends=attends, offset=-int(rng.integers(0, 4)), word=int(rng.integers(8)), evidence=evidence)


def attention_of(program: Program, layer: int, head: int, words: Sequence[int]) -> np.ndarray:
    """Attention (query, key) of a head with a purpose by its definition, on BOS and these words."""
    each, tokens = program.layers[layer][head], [-1, *words]
    num = len(tokens)
    visible = np.tril(np.ones((num, num), bool)) if program.causal else np.ones((num, num), bool)
    asked = np.zeros((num, num), bool)
    for i in range(num):
        for j in range(num):
            asked[i, j] = {
                "offset": j == (i + each.offset if 0 <= i + each.offset < num else 0),
                "token": tokens[j] == each.word,
                "same": tokens[j] == tokens[i],
                "after-same": j > 0 and tokens[j - 1] == tokens[i],
                "even": True,
            }[each.attends]
    asked &= visible
    asked[~asked.any(axis=1)] = visible[~asked.any(axis=1)]
    return asked / asked.sum(axis=1, keepdims=True)


def sampled(model: Model, program: Program, sentences: int, seed: int) -> list[str]:
    """Sentences that the causal model writes, of the program's length."""
    generator = torch.Generator().manual_seed(seed)
    ids, seen = torch.zeros(sentences, 1, dtype=torch.long), None
    with torch.no_grad():
        for _ in range(program.length):
            found = model.module(input_ids=ids[:, -1:], past_key_values=seen, use_cache=True)
            seen, probabilities = found.past_key_values, found.logits[:, -1].softmax(-1)
            ids = torch.cat([ids, torch.multinomial(probabilities, 1, generator=generator)], dim=1)
    return [" ".join(_word(token - len(SPECIAL)) for token in row) for row in ids[:, 1:].tolist()]


def repeating(program: Program, period: int, sentences: int, seed: int) -> list[str]:
    """Sentences whose words come again after `period` positions, for programs that are not causal."""
    starts = np.random.default_rng(seed).integers(program.words, size=(sentences, period))
    rows = np.tile(starts, -(-program.length // period))[:, : program.length]
    return [" ".join(map(_word, row)) for row in rows.tolist()]


def _word(number: int) -> str:
    return f"w{number}"


def _tokenizer(program: Program) -> PreTrainedTokenizerFast:
    names = [*SPECIAL, *map(_word, range(program.words))]
    plain = Tokenizer(models.WordLevel({name: at for at, name in enumerate(names)}, unk_token="PAD"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    plain.post_processor = processors.TemplateProcessing(single="BOS $A", special_tokens=[("BOS", 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, bos_token="BOS", eos_token="EOS", pad_token="PAD", unk_token="PAD", mask_token="MASK"
    )


class _Compiler:
    """Weights of a program. The residual stream holds token, position, what each head moved, and a constant 1."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.tokens, self.positions = program.words + len(SPECIAL), program.length + 1
        self.layers, self.heads = len(program.layers), len(program.layers[0])
        self.one = self.tokens + self.positions + self.layers * self.heads * self.tokens
        least = max(self.tokens, self.positions, -(-2 * (self.one + 1) // self.heads))
        self.head_size = least + least % 2
        self.width = self.heads * self.head_size
        self.random = np.random.default_rng(program.seed)

    def slot(self, layer: int, head: int) -> int:
        return self.tokens + self.positions + (layer * self.heads + head) * self.tokens

    def written(self, logical: np.ndarray) -> np.ndarray:
        """(rows, logical dimension) as (rows, width): each dimension and its twin."""
        found = np.zeros((len(logical), self.width))
        found[:, : 2 * logical.shape[1] : 2] = logical
        found[:, 1 : 2 * logical.shape[1] : 2] = -logical
        return found

    def logical(self, rows: int) -> np.ndarray:
        return np.zeros((rows, self.one + 1))

    def query_and_key(self, layer: int, each: HeadProgram) -> tuple[np.ndarray, np.ndarray]:
        """(logical dimension, head size): what queries and keys read."""
        query, key = np.zeros((2, self.one + 1, self.head_size))
        places, token, at = np.arange(self.positions), np.arange(self.tokens), self.tokens
        if each.attends == "offset":
            wanted = places + each.offset
            query[at + places, np.where((wanted >= 0) & (wanted < self.positions), wanted, 0)] = 1
            key[at + places, places] = 1
        elif each.attends == "token":
            query[self.one, 0] = key[len(SPECIAL) + each.word, 0] = 1
        elif each.attends in ("same", "after-same"):
            query[token, token] = 1
            start = 0 if each.attends == "same" else self.slot(layer - 1, each.reads)
            key[start + token, token] = 1
        elif each.attends == "random":
            read = self.tokens + self.positions
            query[:read], key[:read] = self.random.standard_normal((2, read, self.head_size))
            query *= _RANDOM / _SHARP / np.sqrt(4 * self.head_size)  # a token and a position in query and key each
        return query * _SHARP * np.sqrt(self.head_size), key

    def evidence(self) -> np.ndarray:
        """(logical dimension, token): logits."""
        found = np.zeros((self.one + 1, self.tokens))
        found[self.one, : len(SPECIAL)] = _NEVER
        words = slice(len(SPECIAL), self.tokens)
        for layer, heads in enumerate(self.program.layers):
            for head, each in enumerate(heads):
                own = self.random.standard_normal((self.program.words, self.program.words))
                of_words = each.evidence * (np.eye(self.program.words) if each.copies else own)
                found[self.slot(layer, head) : self.slot(layer, head) + self.tokens][words, words] = of_words
        return found

    def attention(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights (width, 3 × width) of queries, keys and values, and (width, width) of the output."""
        inner, outer = np.zeros((3, self.width, self.width)), np.zeros((self.width, self.width))
        token = np.arange(self.tokens)
        for head, each in enumerate(self.program.layers[layer]):
            own = slice(head * self.head_size, (head + 1) * self.head_size)
            value = np.zeros((self.one + 1, self.head_size))
            value[token, token] = 1
            for part, logical in enumerate((*self.query_and_key(layer, each), value)):
                inner[part, : 2 * len(logical) : 2, own] = logical
            moved = self.logical(self.head_size)
            moved[token, self.slot(layer, head) + token] = 1
            outer[own] = self.written(moved)
        return np.concatenate(list(inner), axis=1), outer

    def embeddings(self) -> tuple[np.ndarray, np.ndarray]:
        token, place = self.logical(self.tokens), self.logical(self.positions)
        token[:, : self.tokens], token[:, self.one] = np.eye(self.tokens), 1
        place[:, self.tokens : self.tokens + self.positions] = np.eye(self.positions)
        return self.written(token), self.written(place)

    def module(self) -> torch.nn.Module:
        sizes = {"vocab_size": self.tokens, "pad_token_id": 1}
        if self.program.causal:
            config = GPT2Config(
                **sizes, n_embd=self.width, n_layer=self.layers, n_head=self.heads, n_inner=1, bos_token_id=0,
                n_positions=self.positions, layer_norm_epsilon=_EPSILON, tie_word_embeddings=False, eos_token_id=None,
            )  # fmt: skip
            return self.filled_gpt2(_without_weights(GPT2LMHeadModel(config)))
        config = BertConfig(
            **sizes, hidden_size=self.width, num_hidden_layers=self.layers, num_attention_heads=self.heads,
            intermediate_size=1, max_position_embeddings=self.positions, type_vocab_size=1, hidden_act="linear",
            layer_norm_eps=_EPSILON, tie_word_embeddings=False,
        )  # fmt: skip
        return self.filled_bert(_without_weights(BertForMaskedLM(config)))

    def filled_gpt2(self, module: torch.nn.Module) -> torch.nn.Module:
        tokens, places = self.embeddings()
        _put(module.transformer.wte.weight, tokens)
        _put(module.transformer.wpe.weight, places)
        for layer, block in enumerate(module.transformer.h):
            inner, outer = self.attention(layer)
            _put(block.attn.c_attn.weight, inner)
            _put(block.attn.c_proj.weight, outer)
        _put(module.lm_head.weight, self.read(self.evidence()).T)
        return module

    def filled_bert(self, module: torch.nn.Module) -> torch.nn.Module:
        tokens, places = self.embeddings()
        _put(module.bert.embeddings.word_embeddings.weight, tokens)
        _put(module.bert.embeddings.position_embeddings.weight, places)
        for layer, block in enumerate(module.bert.encoder.layer):
            inner, outer = self.attention(layer)
            own = block.attention.self
            for linear, weights in zip((own.query, own.key, own.value), np.split(inner, 3, axis=1), strict=True):
                _put(linear.weight, weights.T)
            _put(block.attention.output.dense.weight, outer.T)
        _put(module.cls.predictions.transform.dense.weight, np.eye(self.width))
        _put(module.cls.predictions.decoder.weight, self.read(self.evidence()).T)
        return module

    def read(self, logical: np.ndarray) -> np.ndarray:
        found = np.zeros((self.width, logical.shape[1]))
        found[: 2 * len(logical) : 2] = logical
        return found


def _without_weights(module: torch.nn.Module) -> torch.nn.Module:
    """All weights 0, and norms that change nothing."""
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    for part in module.modules():
        if isinstance(part, torch.nn.LayerNorm):
            torch.nn.init.constant_(part.weight, _EPSILON**0.5)
    return module.eval()


def _put(parameter: torch.nn.Parameter, values: np.ndarray) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(values).float())
