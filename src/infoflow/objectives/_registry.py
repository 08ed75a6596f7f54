"""Objectives by their names in plans, including the user's own, and what each one does to a typed text."""

import dataclasses
import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np

from infoflow import foundation
from infoflow._subjects import provided
from infoflow.architectures import FAMILIES, Layout, ModelConfig, build
from infoflow.corpus import CLS, MASK, PAD, SEP, SPECIAL_TOKENS, STOPS, Vocabulary, sentences_of, sentinel_names

from . import _text_to_text as t5
from ._batch import UNSUPERVISED, Batch, Corrupted, Noise, Shown
from ._causal_lm import BiLM, CausalLM, PrefixDecoder
from ._encoder_decoder import Bart, Mass, Translation
from ._masked_lm import MaskedLM, NextSentence, SentenceOrder, SpanBert
from ._multitask import MultiTask
from ._objective import OPTION as TOKEN_DROPOUT
from ._objective import AbstractObjective, Family, Metric, with_token_dropout
from ._skip_gram import SkipGram
from ._two_models import Distillation, Electra

_ALL: tuple[type[AbstractObjective], ...] = (
    *(CausalLM, MaskedLM, Translation, NextSentence, SentenceOrder, SpanBert, Electra, t5.PrefixLM, PrefixDecoder),
    *(t5.Seq2SeqLM, t5.DenoiseFull, t5.DenoiseMask, t5.Deshuffling, t5.ReplaceSpans, t5.DropTokens),
    *(t5.SpanCorruption, Mass, Bart, Distillation, BiLM, SkipGram, MultiTask),
)
OBJECTIVES: dict[str, type[AbstractObjective]] = {cls.name: cls for cls in _ALL}
"""The objectives by their names in plans: those of the package, then the user's own (`load_objectives`)."""


def further_objectives() -> dict[str, type[AbstractObjective]]:
    """Objectives of subjects, which need more than text and so cannot be trained on a corpus alone."""
    return {cls.name: cls for own in provided("objectives", "OBJECTIVES") for cls in own}


def metrics_of(name: str) -> tuple[Metric, ...]:
    """The scores of the objective called `name`: none for a subject's, the loss for a user's not yet loaded."""
    if name in further_objectives():
        return ()
    return OBJECTIVES.get(name, AbstractObjective).metrics


def make_objective(name: str, **options: Any) -> AbstractObjective:
    """The objective called `name`, with its options; `token_dropout` is an option of nearly every objective.

    Raises:
        UserError: No objective has this name, it does not have such an option, or an option's value is out of range.
    """
    known_names = OBJECTIVES | further_objectives()
    if name not in known_names:
        meant = foundation.did_you_mean(name, known_names)
        raise foundation.UserError(
            f"No objective is called {name}.{meant} Choose one of: {', '.join(OBJECTIVES)}; or write it in a Python "
            "file and name that: [plugins] objectives in a plan, --objectives in a command."
        )
    cls = known_names[name]
    if TOKEN_DROPOUT in options and name in OBJECTIVES and takes_token_dropout(name):
        cls = cls if TOKEN_DROPOUT in _options(cls) else with_token_dropout(cls)
    known = _options(cls)
    if unknown := [option for option in options if option not in known]:
        raise foundation.UserError(f"{name} has no option {unknown[0]}. Its options: {', '.join(known) or 'none'}.")
    hints = get_type_hints(cls, include_extras=True)
    return cls(
        **{
            option: foundation.read_setting(hints[option], value, f"{name}.{option}", known[option])
            for option, value in options.items()
        }
    )


def takes_token_dropout(name: str) -> bool:
    """Whether an objective allows random tokens in its input.

    Two do not: ELECTRA's task is to find random tokens, and skip-gram draws them itself as negatives.
    """
    return OBJECTIVES[name].family not in ("discriminate", "static")


def _options(cls: type[AbstractObjective]) -> dict[str, Any]:
    return {field.name: field.default for field in dataclasses.fields(cls)}  # type: ignore[arg-type] (all are dataclasses)


_MOST_WORDS = 512
_DRAWS = 20
_OPTIONS: dict[str, dict[str, Any]] = {SkipGram.name: {"min_count": 1, "threshold": 1.0}}  # every word is frequent


def show_text(
    text: str, objectives: Sequence[str] = (), translation: str | None = None, seed: int = 0
) -> dict[str, Shown]:
    """What each objective does to a text, by name: the inputs of its model and the targets of its loss.

    The objectives' own code corrupts the text, as in training. Words and signs are the tokens, and random tokens are
    other words of the text. If the noise leaves a short text unchanged, it is drawn again, at most 20 times.

    Args:
        text: One sentence or more. Objectives on pairs of segments read its halves.
        objectives: Names; if empty, all objectives, except those that translate if there is no `translation`.
        translation: The text in another language.
        seed: Seed of the noise.

    Raises:
        UserError: There are no words or too many, an objective is unknown, or an objective needs a translation.

    >>> show_text("Time flies", ["causal-lm"])["causal-lm"].targets
    {'causal-lm': ['Time', 'flies', '[SEP]', '·']}
    """
    read = [foundation.words_and_signs(sentence) for sentence in sentences_of(_words_in(text, "The text"))]
    written = [] if translation is None else foundation.words_and_signs(_words_in(translation, "The translation"))
    shown = {}
    for name, objective in _chosen(objectives, translates=bool(written)).items():
        made = batch_of_text(objective, read, written, seed)
        shown[name] = objective.shown(made.batch, made.names, made.target_names)
    return shown


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TextBatch:
    """A batch of one typed text, its vocabularies, and the name of each id on both sides."""

    batch: Batch
    source: Vocabulary
    target: Vocabulary
    names: list[str]
    target_names: list[str]


def batch_of_text(
    objective: AbstractObjective, read: Sequence[Sequence[str]], written: Sequence[str], seed: int = 0
) -> TextBatch:
    joint, prefixes = objective.one_vocabulary, objective.prefixes if isinstance(objective, MultiTask) else ()
    sentinels = objective.num_sentinels(2 * _MOST_WORDS)
    source, names = _vocabulary([*read, *([written] if joint else [])], sentinels, prefixes)
    apart = objective.needs_translation and not joint
    target, target_names = _vocabulary([written]) if apart else (source, names)
    rows = [_ids(sentence, names) for sentence in read]
    example = objective.example(rows, source, _ids(written, target_names) if objective.needs_translation else None)
    drawn = [objective.corrupt(example, foundation.stream("shown-noise", seed, n), source) for n in range(_DRAWS)]
    # Use the first draw that changes something or, if none does, the first with a target other than the end.
    made = max(drawn, key=lambda one: (one.selected.any(), _num_targets(one) > 1))
    batch = objective.collate([made], source, target, Noise(((seed,),)))
    return TextBatch(batch=batch, source=source, target=target, names=names, target_names=target_names)


def _chosen(names: Sequence[str], translates: bool) -> dict[str, AbstractObjective]:
    """The objectives by name; an objective with several tasks is replaced by its tasks."""
    every = names or [*OBJECTIVES, *further_objectives()]
    objectives = [make_objective(name, **_OPTIONS.get(name, {})) for name in dict.fromkeys(every)]
    silent = [one.name for one in objectives if one.needs_translation and not translates]
    if names and silent:
        raise foundation.UserError(f"{silent[0]} needs the text's translation. Got none.\nGive it: --translation TEXT.")
    chosen = dict[str, AbstractObjective]()
    for one in objectives:
        if one.name not in silent:
            chosen |= {f"{one.name}: {task}": part for task, part in one.parts.items()} or {one.name: one}
    return chosen


def _num_targets(made: Corrupted) -> int:
    return int((np.asarray(made.arrays.get("labels", ())) != UNSUPERVISED).sum())


def _words_in(text: str, what: str) -> str:
    number = len(foundation.words_and_signs(text))
    if not 1 <= number <= _MOST_WORDS:
        raise foundation.UserError(f"{what} must have 1 to {_MOST_WORDS} words and signs. Got {number:,}.")
    return text


def _vocabulary(
    sentences: Sequence[Sequence[str]], sentinels: int = 0, prefixes: Sequence[str] = ()
) -> tuple[Vocabulary, list[str]]:
    """The words of text and prefixes as a vocabulary with special tokens and sentinels, and the name of each id."""
    words = [word for sentence in sentences for word in sentence]
    prefix_words = {prefix: foundation.words_and_signs(prefix) for prefix in prefixes}
    known = [*SPECIAL_TOKENS, *dict.fromkeys([*words, *chain.from_iterable(prefix_words.values())])]
    names = [*known, *sentinel_names(sentinels)[::-1]]
    marks = range(len(names) - 1, len(known) - 1, -1)
    vocabulary = Vocabulary(
        size=len(names),
        pad=names.index(PAD),
        start=names.index(CLS),
        end=names.index(SEP),
        mask=names.index(MASK),
        special=(*range(len(SPECIAL_TOKENS)), *marks),
        sentinels=tuple(marks),
        full_stops=tuple(id for id, name in enumerate(known) if name in STOPS),
        counts=np.bincount(_ids(words, names), minlength=len(names)),
        ids={prefix: _ids(said, names) for prefix, said in prefix_words.items()},
    )
    return vocabulary, names


def _ids(words: Sequence[str], names: Sequence[str]) -> np.ndarray:
    ids = {name: id for id, name in enumerate(names)}
    return np.array([ids[word] for word in words], dtype=np.int64)


# The user's own objectives are classes in a Python file, registered by name along with those of the package.
_SENTENCE = "Well, the old cat that the dogs see every single day sleeps under the kitchen table again."
_SMALL = ModelConfig(width=8, layers=1, heads=1, feedforward=8)
_LAYOUTS = tuple(name for part in get_args(Layout) for name in (get_args(part) or (part,)))


def load_objectives(path: Path | str) -> dict[str, type[AbstractObjective]]:
    """The objectives of a Python file, or of an entry point in `infoflow.objectives`; they are added to `OBJECTIVES`.

    **The code is executed**: name only what you trust. Each objective then computes its loss on one sentence, so that
    mistakes are reported before any work. Models are keyed by the text of the file: a changed file is trained again,
    but changes in its imports are not noticed.
    """
    module, file = foundation.own_module(path, "objectives")
    classes = dict.fromkeys(value for value in vars(module).values() if isinstance(value, type))
    found = [one for one in classes if issubclass(one, AbstractObjective) and one.__module__ == module.__name__]
    found = [one for one in found if not one.__name__.startswith("Abstract")]
    if not found:
        raise foundation.UserError(
            f"{path} holds no objective: no class derived from infoflow.objectives.AbstractObjective. Write one."
        )
    code, before = foundation.file_digest(file), dict(OBJECTIVES)
    for name in [name for name, one in OBJECTIVES.items() if one.__module__ == module.__name__]:
        del OBJECTIVES[name]  # it comes from an earlier version of the file
    try:
        for one in found:
            if fault := _fault(one):
                raise foundation.UserError(
                    f"The objective {one.__name__} in {path} cannot be used: {fault}. Correct it."
                )
            one.own_code = code
            OBJECTIVES[one.name] = one
            _try(one, file)
    except foundation.UserError:
        OBJECTIVES.clear()
        OBJECTIVES.update(before)
        raise
    return {one.name: one for one in found}


def _fault(cls: type[AbstractObjective]) -> str:
    """Why the objective is unusable, or ""; nothing else checks types in user code."""
    if inspect.isabstract(cls):
        return f"it lacks methods: {', '.join(sorted(cls.__abstractmethods__))}"
    if "__dataclass_fields__" not in vars(cls):
        return "it must be a dataclass: write @dataclass(frozen=True, kw_only=True) above it"
    if missing := [name for name in ("name", "layout", "family", "term_weights") if not hasattr(cls, name)]:
        return f"it must state its {missing[0]}"
    if not isinstance(cls.name, str) or not re.fullmatch(r"[a-z][a-z0-9-]{0,40}", cls.name):
        return f"its name must consist of small letters, digits and hyphens, got {foundation.as_written(cls.name)}"
    if cls.name in OBJECTIVES or cls.name in further_objectives():
        return f"the name {cls.name} is taken"
    for name, known in (("layout", _LAYOUTS), ("family", get_args(Family))):
        if (value := getattr(cls, name)) not in known:
            return f"its {name} must be one of {', '.join(known)}, got {foundation.as_written(value)}"
    if not isinstance(cls.term_weights, dict) or not cls.term_weights:
        return 'its term_weights must give a weight to each term of its loss, such as {"loss": 1.0}'
    if needed := [one.name for one in dataclasses.fields(cls) if one.default is one.default_factory]:  # type: ignore[arg-type] (both MISSING)
        return f"its option {needed[0]} needs a default"
    return ""


def _try(cls: type[AbstractObjective], file: Path) -> None:
    """Compute the loss on one sentence, and raise a UserError if that fails or the loss terms are wrong."""
    try:
        objective = make_objective(cls.name)
        made = batch_of_text(objective, [foundation.words_and_signs(_SENTENCE)], foundation.words_and_signs(_SENTENCE))
        family = next(name for name, one in FAMILIES.items() if cls.layout in one.layouts)
        module = build(family, cls.layout, _SMALL, made.source, made.target if cls.needs_translation else None).eval()
        terms = objective.loss(module, made.batch, made.batch.noise)
        if (given := set(terms)) != (weighted := set(cls.term_weights)):
            raise foundation.UserError(
                f"The terms of the loss of {cls.name} in {file} must be those of term_weights, "
                f"{', '.join(sorted(weighted))}. Got {', '.join(sorted(given))}. Correct one of them."
            )
    except (foundation.UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # includes exceptions that would end the process silently
        raise foundation.UserError(
            f"The objective {cls.name} in {file} fails on one sentence: "
            f"{foundation.described_in_file(error, file)}. Correct it."
        ) from error
