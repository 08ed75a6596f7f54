"""Pretrained or external models in an analysis, their controls, and how well they predict text."""

# S sentence, T token

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import torch

from infoflow import foundation, models
from infoflow.corpus import RENDERED, Corpus, Lines, length_batches
from infoflow.foundation import LATER
from infoflow.heads import prune
from infoflow.objectives import AbstractObjective, MaskedLM
from infoflow.results import GIVEN_SCORES, UNTRAINED, Recipe, Spec, Subject, ratio_estimate
from infoflow.training import trained_objective

from ._plan_sections import AnalysisPlan, with_sections

_LONGEST_NAME = 80  # characters
_TEXTS, _LISTS = ("corpus", "test", "labels", "own"), ("only", "tags", "names")  # fields of `AnalyzeOptions`


@dataclass(frozen=True, kw_only=True, slots=True)
class CoreOptions:
    """What `analyze` reads and how, as plain values that run.json stores so that shards can be merged later."""

    corpus: foundation.RequiredFile = "tatoeba-en-fr"
    text_column: foundation.OwnWord = ""  # column of the sentences, in a table or dataset
    translation_column: foundation.OwnWord = ""
    lines: Lines = field(default="sentences", metadata=LATER)  # "paragraphs" are split into sentences
    label_column: foundation.OwnWord = ""  # column of each sentence's class, for the task sentence-label
    bad_column: foundation.OwnWord = ""  # column of the contrasting sentence of each minimal pair
    labels: foundation.File = ""  # a file with one sentence class per line, in place of label_column
    tags: foundation.OwnWords = ()  # column names of a tagged file
    chat: bool = field(default=False, metadata=LATER)  # the corpus holds conversations, see `load_chat`
    where: foundation.OwnWord = field(default="", metadata=LATER)  # TAG=VALUE: count only tokens of these words
    test: foundation.File = ""  # test corpus for probes; empty: a part of `corpus`
    parser: foundation.File = ""  # spaCy pipeline that parses the sentences; empty: the corpus's own trees, if any
    only: tuple[str, ...] = ()  # tables to compute; empty: all
    own: foundation.File = ""  # a Python file with the user's own measures, run in addition to those of `only`
    sentences: foundation.CountOrNone = 5000  # maximum number, chosen by hash; 0: all
    control: bool = True  # also measure the same architecture with random weights
    seed: foundation.Seed = 0
    device: foundation.Device = "auto"
    tokenizer: foundation.File | None = None
    source_language: str = field(default="", metadata=LATER)  # language code, for models of several languages
    target_language: str = field(default="", metadata=LATER)
    prefix: foundation.OwnWord = field(default="", metadata=LATER)  # prepended to each text
    max_length: foundation.MaxLength = 512
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"  # of weights and states
    quantize: Literal["", "int8"] = field(default="", metadata=LATER)
    names: tuple[str, ...] = field(default=(), metadata=LATER)  # of the models, instead of their paths
    anonymous: bool = False  # omit all paths and names of local files from the output
    measures: AnalysisPlan = field(default_factory=AnalysisPlan)

    def __post_init__(self) -> None:
        foundation.check_settings(self)
        where_of(self)


if TYPE_CHECKING:
    from infoflow.subjects.probing.settings import ProbingPlan

    @dataclass(frozen=True, kw_only=True, slots=True)
    class AnalyzeOptions(CoreOptions):
        """Core options and the sections of all subjects; only type checkers and editors see this class."""

        probing: ProbingPlan = field(default_factory=ProbingPlan)

else:
    AnalyzeOptions = with_sections(CoreOptions, "AnalyzeOptions", "OPTIONS", CoreOptions.__doc__)


def where_of(options: CoreOptions) -> tuple[str, str] | None:
    """The tag that selects the tokens to count, and its required value."""
    if not options.where:
        return None
    tag, equals, value = options.where.partition("=")
    if not (tag and equals and value):
        raise foundation.UserError(
            f"--where must be TAG=VALUE, such as role=assistant. Got {foundation.as_written(options.where)}."
        )
    return tag, value


def changed(options: AnalyzeOptions, changes: Mapping[str, Any]) -> AnalyzeOptions:
    """The options with changed fields; lists become tuples, and path objects become texts."""
    names = [one.name for one in fields(options)]
    for name, value in changes.items():
        if name not in names:
            raise foundation.UserError(
                f"There is no option {name[:80]}.{foundation.did_you_mean(name, names)} "
                f"Known options: {', '.join(names)}."
            )
        if name in _TEXTS and not isinstance(value, str | Path):
            raise foundation.UserError(
                f"{name} must be a name or a path, because the run records it. Got {foundation.as_written(value)}."
            )
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in changes.items()}
    plain |= {name: (value,) for name, value in plain.items() if name in _LISTS and isinstance(value, str)}
    plain |= {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
    return replace(options, **plain)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExternalModel:
    source: str
    name: str
    trained: bool

    def load(self, options: AnalyzeOptions) -> models.Model:
        model = models.load_model(
            self.source,
            tokenizer=options.tokenizer,
            device=options.device,
            dtype=getattr(torch, options.dtype),
            quantize=options.quantize or None,
            source_language=options.source_language,
            target_language=options.target_language,
            prefix=options.prefix,
        )
        model = model if self.trained else untrained(model, options.seed)
        return replace(model, name=self.name)

    def subject(self, model: models.Model) -> Subject:
        """The keys that identify the loaded model in tables."""
        return external_subject(model, self.name, trained=self.trained)

    @property
    def corruption(self) -> AbstractObjective | None:
        """The corruption from the model's training if its folder records it; it is never assumed."""
        objective = trained_objective(self.source)
        return None if objective == MaskedLM() else objective


def external_subject(model: models.Model, name: str = "", *, trained: bool = True) -> Subject:
    """How tables identify a model that was not trained in a study.

    `name` replaces the model's own name; with `trained=False`, the subject is the control with random weights.
    """
    recipe = Recipe(objective=Spec(model.task), architecture=Spec(family_of(model)), seed=0)
    return Subject(recipe=recipe, update=None if trained else UNTRAINED, given=name or model.name)


def family_of(model: models.Model) -> str:
    return str(getattr(model.module.config, "model_type", ""))


def external_models(sources: Sequence[str], options: AnalyzeOptions) -> list[ExternalModel]:
    kinds = (True, False) if options.control else (True,)
    names = distinct_names(sources, options.anonymous, options.names)
    return [
        ExternalModel(source=str(source), name=name, trained=trained)
        for trained in kinds
        for source, name in zip(sources, names, strict=True)
    ]


def distinct_names(sources: Sequence[str], anonymous: bool = False, given_names: Sequence[str] = ()) -> list[str]:
    """The models' names: `given_names`, or `model_name_of` each, with as many parts as are needed to tell models apart.

    With `anonymous`, local models are numbered instead, unless names are given.
    """
    if given_names:
        return _given_names(sources, given_names)
    parts = [Path(foundation.absolute(source) if exists(source) else source).parts for source in sources]
    depths = range(1, max(map(len, parts)) + 1)
    by_rule = [[foundation.model_name_of(source, depth) for source in sources] for depth in depths]
    for names in (*by_rule, *(["/".join(part[-depth:]) for part in parts] for depth in depths)):
        if len(set(names)) < len(names):
            continue
        if not anonymous:
            return names
        local = [name for source, name in zip(sources, names, strict=True) if exists(source)]
        return [f"model-{local.index(name) + 1}" if name in local else name for name in names]
    raise foundation.UserError(f"Models must be distinct. Got {', '.join(map(str, sources))}.")


def _given_names(sources: Sequence[str], given: Sequence[str]) -> list[str]:
    if len(given) != len(sources) or len(set(given)) < len(given):
        raise foundation.UserError(
            f"--name must be given once for each model, in their order, with distinct names. Got {len(sources)} "
            f"model{'s' * (len(sources) > 1)} and {foundation.as_written(list(given))}."
        )
    if wrong := [name for name in given if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable()]:
        raise foundation.UserError(
            f"--name must have 1 to {_LONGEST_NAME} printable characters. Got {foundation.as_written(wrong[0][:100])}."
        )
    return list(given)


def exists(path: str | Path) -> bool:
    """Whether a file or folder of this name exists; False if the name is too long for one."""
    return os.path.exists(path)  # noqa: PTH110 (that of pathlib raises before Python 3.12)


def untrained(model: models.Model, seed: int) -> models.Model:
    """A control that has learned nothing: the same architecture with random weights, not quantised."""
    if models.unusual_weights(model.module):
        size = sum(one.numel() for one in model.module.parameters()) * model.module.dtype.itemsize
        foundation.require_memory(size, f"The untrained control of {model.name} is made in memory", "Use --no-control.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(foundation.hash64("untrained", seed))
        config = copy.deepcopy(model.module.config)
        vars(config).pop("quantization_config", None)
        module = models.place_like(type(model.module)(config).to(model.module.dtype), model.module)
    device = "auto" if models.is_placed(module) else model.device
    fresh = models.load_model(module, tokenizer=model.tokenizer, device=device)
    if (kept := models.kept_heads(model.module)) is not None:
        gone = [
            (a.stack, a.kind, a.layer, head)
            for a in fresh.anatomy.attentions()
            for head in range(a.num_heads)
            if head not in kept[a.stack, a.kind, a.layer]
        ]
        fresh = prune(fresh, gone)
    return replace(fresh, target_tokenizer=model.target_tokenizer)


SENTENCES = 200
"""Maximum number of sentences on which a model is scored."""
_SHARES = 7  # a masked LM has every 7th token masked at a time, close to the 15 % of its training
_TOKENS = 2048


def external_scores(model: models.Model, corpus: Corpus, max_length: int = 512) -> pd.DataFrame:
    r"""The loss of a model on sentences, in nats per token; claims use it to decide whether the model is trained.

    $$ \mathrm{loss} = -\frac{1}{N} \sum_t \log p(w_t \mid c_t), \qquad
       \mathrm{baseline} = -\sum_w f_w \log f_w $$

    The context c of a token is the preceding text (causal LM), or the sentence with every 7th token masked (masked LM,
    each token once). f are the frequencies of the same N tokens. No model that ignores context can do better, so the
    baseline is strict. Special tokens are neither predicted nor counted. Encoder-decoders and models without a head for
    token prediction get NaN.

    At most 200 sentences are used, chosen by hash, and sentences longer than `max_length` are cut.

    Returns:
        The table `given_scores`, one row.

    Source: ours; the threshold is that of `task_scores`.
    """
    sums, counts, entropy = np.zeros(foundation.NUM_BLOCKS), np.zeros(foundation.NUM_BLOCKS), float("nan")
    if _predicts(model):
        order = np.argsort(foundation.hash64_array(("given-scores",), corpus.content_ids), kind="stable")
        part = corpus.select(np.sort(order[:SENTENCES]))
        blocks = foundation.block_of(part.content_ids)
        tokens: list[np.ndarray] = []
        added = RENDERED not in part.columns  # a chat template has written its own special tokens
        for sentences, losses, targets in _losses(model, _rows(model, list(part.column("text")), max_length, added)):
            np.add.at(sums, blocks[sentences], losses)
            np.add.at(counts, blocks[sentences], 1.0)
            tokens.append(targets)
        if tokens:
            shares = np.unique(np.concatenate(tokens), return_counts=True)[1] / counts.sum()
            entropy = float(-(shares * np.log(shares)).sum())
    row = {"metric": "loss", **ratio_estimate(sums, counts, entropy)}
    return GIVEN_SCORES.conform(pd.DataFrame([row]))


def _predicts(model: models.Model) -> bool:
    if model.tokenizer is None:
        return False
    return model.task == "causal-lm" or (model.task == "masked-lm" and model.tokenizer.mask_token_id is not None)


def _rows(
    model: models.Model, texts: Sequence[str], max_length: int, special_tokens: bool
) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Rows of (sentence, input ids, target or −1 at each position); a masked LM gets several rows per sentence."""
    tokenizer = model.require_tokenizer()
    longest = max_length if model.max_tokens is None else min(max_length, model.max_tokens)
    how = {"truncation": True, "max_length": longest, "add_special_tokens": special_tokens}
    encoded = tokenizer(list(texts), **how)["input_ids"]
    special = set(tokenizer.all_special_ids)
    found = []
    for sentence, row in enumerate(encoded):
        ids = np.array(row, dtype=np.int64)
        if model.task == "causal-lm":
            said = np.append(ids[1:], -1)
            said[np.isin(said, list(special))] = -1
            found.append((sentence, ids, said))
            continue
        places = np.flatnonzero(~np.isin(ids, list(special)))
        for first in range(_SHARES):
            hidden = places[first::_SHARES]
            read, said = ids.copy(), np.full(len(ids), -1)
            read[hidden], said[hidden] = int(tokenizer.mask_token_id), ids[hidden]  # type: ignore[arg-type]
            found.append((sentence, read, said))
    return [one for one in found if (one[2] >= 0).any()]


def _losses(
    model: models.Model, rows: Sequence[tuple[int, np.ndarray, np.ndarray]]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, batch by batch, the sentence, the loss and the id of each predicted token."""
    lengths = np.array([len(ids) for _, ids, _ in rows], dtype=np.int64)
    for batch in length_batches(lengths, _TOKENS, None if model.pads else 1):
        chosen = [rows[index] for index in batch]
        ids, mask = models.pad_rows([read.tolist() for _, read, _ in chosen], model.pad_token_id)
        said = torch.full(ids.shape, -1)
        for at, (_, _, targets) in enumerate(chosen):
            said[at, : len(targets)] = torch.from_numpy(targets)
        with torch.no_grad():
            logits = model.module(**models.model_inputs(model, ids, mask)).logits
        has_target = said >= 0
        targets = said[has_target].to(model.device)
        wanted = logits[has_target.to(model.device)].float()
        losses = wanted.logsumexp(1) - wanted.gather(1, targets[:, None])[:, 0]
        sentences = np.repeat([sentence for sentence, _, _ in chosen], has_target.sum(dim=1).numpy())
        yield sentences, losses.double().cpu().numpy(), targets.cpu().numpy()
