"""Facts in blanks: the share that a model fills in correctly, by relation, prompt and layer."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import UserError, current_display, replicate_weights
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.representations import TunedLens, no_readout
from infoflow.results import Column, TableSchema, estimate, estimate_columns, ratio_estimate

from ._blanks import BlankWriter, Standing, common_objects, object_tokens, way_of, written_by
from ._facts import Facts, read_facts
from ._relation_answers import ENSEMBLES, TOGETHER, Asking, BlankReader, Ensemble, RelationAnswers, RelationAsker

FILL_IN = TableSchema(
    name="fill_in",
    version=2,
    description="Share of facts whose object a model fills into a blank, when the answer is read off each layer.",
    columns=(
        Column("stack", "string", "", "the stack that has the output head"),
        Column("asked", "string", "", "how: mask; next (token); sentinel, rewrite, continue, write (encoder–decoders)"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings, L = the model's output"),
        Column("lens", "string", "", "logit (states as they are) or tuned (translated)"),
        Column("prompts", "string", "", f"family of the templates: manual, mined, paraphrased, ...; {TOGETHER}: all"),
        Column(
            "ensemble",
            "string",
            "",
            "uniform: mean log-probability over the prompts; optimised: weighted by training facts; best: "
            "only the prompt that answers most training facts correctly",
        ),
        Column("relation", "string", "", "the relation, or all"),
        Column("average", "string", "", "relation: a single one; macro: mean over relations; micro: mean over facts"),
        *estimate_columns(
            "share of facts",
            "P@1: the object's token is the most likely one in the common vocabulary",
            "the most frequent object of each relation as the answer to all of its facts",
            "facts",
        ),
        Column(
            "without_subject",
            "float64",
            "share of facts",
            "the same prompts with the subject masked (left out where there is no mask): what the template alone "
            "reveals; absent where such a prompt cannot be read (an average is over the others)",
        ),
        Column("templates", "float64", "templates", "number of templates per relation, on average"),
        Column("vocabulary", "int64", "tokens", "candidates for the blank"),
        Column(
            "left_out",
            "int64",
            "facts",
            "facts of these relations that were not queried, because their object is not one token or their "
            "sentence cannot be read; for all, also those of relations without a usable template",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FillInOptions:
    """Which prompts and how many facts to use."""

    prompts: tuple[str, ...] = ()  # families; if empty, each one and all combined
    ensembles: tuple[Ensemble, ...] = ENSEMBLES  # best and optimised need training facts
    facts_per_relation: int = 200  # chosen by hash, also for training facts; 0: all
    prompts_per_family: int = 10  # the first ones; 0: all
    tokens_per_batch: int = 4096

    def __post_init__(self) -> None:
        if self.facts_per_relation < 0 or self.prompts_per_family < 0 or self.tokens_per_batch < 1:
            raise UserError(
                "facts_per_relation and prompts_per_family must be 0 (all) or more, tokens_per_batch 1 or more. Got "
                f"{self.facts_per_relation}, {self.prompts_per_family} and {self.tokens_per_batch}."
            )
        if not self.ensembles or not set(self.ensembles) <= set(ENSEMBLES):
            raise UserError(f"ensembles are among {', '.join(ENSEMBLES)}. Got {', '.join(self.ensembles) or 'none'}.")


def fill_in(
    model: Model,
    facts: Facts,
    options: FillInOptions | None = None,
    *,
    vocabulary: Sequence[str] | None = None,
    lens: TunedLens | None = None,
    trained: AbstractObjective | None = None,
) -> pd.DataFrame:
    r"""The share of facts that a model fills in correctly, layer by layer.

    $$ P@1 = \frac{1}{N} \sum_n \Big[ \hat c_n = y_n \Big], \qquad
       \hat c_n = \arg\max_{c \in V} \sum_p w_p \log P_l(c \mid \mathrm{prompt}_p(x_n)) $$

    $V$ is a vocabulary of single tokens that compared models share (`common_objects`), and $P_l$ is the model's own
    head on the states of layer l (`logit_lens`, or through a tuned lens). $w$ are the weights of the prompts: uniform,
    learned on training facts, or all on the best one. Facts whose object is not a single token are dropped and counted.

    A masked LM gets one mask, a causal LM predicts the next token (only templates that end with the object), T5
    continues after `<extra_id_0>`, and BART and other denoisers that write whole sentences continue after the text
    before the object. Translation models are refused. The input is running text with a blank in place of the object's
    token, to which many tokenizers add the preceding space. Templates that begin with the object, or have no space
    before it, are used only if every candidate is also a single token there.

    Args:
        model: A model with its output head and tokenizer.
        facts: From `read_facts`.
        options: Which prompts and how many facts to use.
        vocabulary: Candidate objects, each a single token of this model. Default: all objects that are single tokens.
        lens: A tuned lens, read in addition to the logit lens.
        trained: The training objective of an encoder–decoder that infoflow trained.

    Returns:
        The table `fill_in`: a row per layer, lens, family of prompts, ensemble and relation, and the averages.

    Raises:
        UserError: The model cannot fill blanks, or no fact is left.

    Source: [@petroni2019]; ensembles of prompts [@jiang2020]. The interval is over subjects.
    """
    options = options or FillInOptions()
    writer = BlankWriter(model, trained)
    tokens = _candidates(model, facts, vocabulary)
    known = facts.with_objects(tuple(tokens))
    ids = sorted(set(tokens.values()))
    gold = {word: ids.index(token) for word, token in tokens.items()}
    lenses = {"logit": None} | ({"tuned": lens} if lens is not None else {})
    reader = BlankReader(model, _everywhere(model, tokens, ids), lenses, options.tokens_per_batch)
    asker = RelationAsker(writer, reader, gold, len(ids))
    families = _families(facts, options.prompts)
    answers = list(_answers(asker, known, families, options))
    _tell(model, known, answers)
    if not answers:
        raise UserError(
            f"None of {len(known.relations)} relations has a template that {model.name} can fill in. "
            + ("It answers with the next token: templates must end with [Y]." if writer.way == "next" else "")
        )
    dropped = _dropped(facts, known)
    facts_of = {"stack": model.anatomy.predicts.name, "asked": writer.way, "vocabulary": len(ids)}
    rows = [{**facts_of, **row} for row in _rows(reader, answers, dropped)]
    return FILL_IN.conform(pd.DataFrame(rows))


class FillIn(Intervention):
    """`fill_in` as a measure: the facts come from a file and do not depend on the corpus.

    Args:
        facts: Path of a file or folder, see `read_facts`.
        prompts: Families of prompts; default: each one, and all combined.
        facts_per_relation: Maximum number, by hash; 0: all.
        prompts_per_family: Maximum number; 0: all.
        vocabulary: Candidate objects; compared models need a common list. Default: the model's own.
    """

    table: ClassVar[TableSchema] = FILL_IN

    def __init__(
        self,
        facts: str,
        prompts: tuple[str, ...] = (),
        facts_per_relation: int = 200,
        prompts_per_family: int = 10,
        vocabulary: tuple[str, ...] = (),
    ) -> None:
        self._facts = read_facts(facts)
        self._options = FillInOptions(
            prompts=prompts, facts_per_relation=facts_per_relation, prompts_per_family=prompts_per_family
        )
        _families(self._facts, prompts)
        self.content = self._facts.digest  # the path does not determine the content
        self.prompts, self.vocabulary = prompts, vocabulary
        self.facts_per_relation, self.prompts_per_family = facts_per_relation, prompts_per_family

    def refusal(self, model: Model) -> str | None:
        try:
            if model.task != "seq2seq":  # an encoder–decoder's training objective is known only at run time
                way_of(model)
        except UserError as error:
            return str(error)
        return no_readout(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        reading = replace(self._options, tokens_per_batch=options.tokens_per_batch)
        words = self.vocabulary or None
        try:
            return fill_in(reader.model, self._facts, reading, vocabulary=words, trained=options.corruption)
        except UserError as error:
            current_display().note(f"{self.name} of {reader.model.name} is skipped: {error}")
            return pd.DataFrame(columns=self.table.column_names)


def _candidates(model: Model, facts: Facts, vocabulary: Sequence[str] | None) -> dict[str, int]:
    words = common_objects([model], facts.objects) if vocabulary is None else tuple(dict.fromkeys(vocabulary))
    tokens = object_tokens(written_by(model), words)
    if unknown := [word for word in words if word not in tokens]:
        raise UserError(
            f"The vocabulary must consist of single tokens of {model.name}. {unknown[0][:80]} is not, nor are "
            f"{len(unknown) - 1} others. Use common_objects(models, words)."
        )
    return tokens


def _everywhere(model: Model, tokens: dict[str, int], ids: Sequence[int]) -> dict[Standing, list[int]]:
    """The candidates' tokens in every position where all candidates are single tokens."""
    found: dict[Standing, list[int]] = {"space": list(ids)}
    for stands in ("start", "glued"):
        own = object_tokens(written_by(model), tuple(tokens), stands)
        if len(own) == len(tokens):
            of_token = {token: own[word] for word, token in tokens.items()}
            found[stands] = [of_token[token] for token in ids]
    return found


def _families(facts: Facts, wanted: Sequence[str]) -> list[str]:
    families = facts.families
    if odd := [name for name in wanted if name not in (*families, TOGETHER)]:
        raise UserError(f"No prompt is of the family {odd[0]}. The families here: {', '.join(families)}.")
    if wanted:
        return list(dict.fromkeys(wanted))
    return [*families, TOGETHER] if len(families) > 1 else list(families)


def _answers(
    asker: RelationAsker, facts: Facts, families: Sequence[str], options: FillInOptions
) -> Iterator[RelationAnswers]:
    askings = [
        Asking(family, ensemble)
        for family in families
        for ensemble in (options.ensembles if _several(facts, family, options) else ("uniform",))
    ]
    read = facts.families if TOGETHER in families else families
    relations, num = facts.relations, options.facts_per_relation
    with current_display().progress("Relations", len(relations), "relations") as progress:
        for relation in relations:
            prompts = facts.prompts_of(relation, read, options.prompts_per_family)
            train = facts.chosen(relation, num, train=True)
            if found := asker.ask(prompts, facts.chosen(relation, num), train, askings):
                yield found
            progress.advance(1)


def _several(facts: Facts, family: str, options: FillInOptions) -> bool:
    """Whether a relation has more than one prompt of a family; with one prompt, all ensembles are equal."""
    if family == TOGETHER:
        return True
    counts = Counter(prompt.relation for prompt in facts.prompts if prompt.family == family)
    return max(counts.values()) > 1 and options.prompts_per_family != 1


def _tell(model: Model, facts: Facts, answers: Sequence[RelationAnswers]) -> None:
    counts = dict(facts.left_out)
    counts["facts whose sentence cannot be read"] = sum(one.left_out for one in answers)
    counts["templates that go on after the object, or where it is not one token"] = sum(
        sum(one.unasked.values()) for one in answers
    )
    counts["relations without a usable template"] = len(facts.relations) - len(answers)
    text = "; ".join(f"{num:,} {name}" for name, num in counts.items() if num)
    if text:
        current_display().note(f"Left out for {model.name}: {text}.")


def _dropped(facts: Facts, known: Facts) -> dict[str, int]:
    """Number of facts of each relation whose object is not a single token."""
    counts = dict.fromkeys(facts.relations, 0)
    for fact in set(facts.facts) - set(known.facts):
        counts[fact.relation] += 1
    return counts


def _rows(reader: BlankReader, answers: Sequence[RelationAnswers], dropped: dict[str, int]) -> Iterator[dict[str, Any]]:
    for asking in dict.fromkeys(asking for one in answers for asking in one.right):
        having = [one for one in answers if asking in one.right]
        for view, (lens, layer) in enumerate(reader.views):
            keys = {"layer": layer, "lens": lens, "prompts": asking.family, "ensemble": asking.ensemble}
            for one in having:
                number = ratio_estimate(one.right[asking][view], one.counts, _majority(one), "share")
                yield {**keys, **_of_relation(one, asking, view, dropped), **number}
            yield {**keys, **_macro(having, asking, view, dropped)}
            yield {**keys, **_micro(having, asking, view, dropped)}


def _majority(one: RelationAnswers) -> float:
    return float(one.majority.sum() / one.counts.sum())


def _of_relation(one: RelationAnswers, asking: Asking, view: int, dropped: dict[str, int]) -> dict[str, Any]:
    return {
        "relation": one.relation,
        "average": "relation",
        "without_subject": float(one.blind[asking][view]),
        "templates": float(one.prompts[asking]),
        "left_out": dropped[one.relation] + one.left_out,
    }


def _over_relations(having: Sequence[RelationAnswers], asking: Asking, dropped: dict[str, int]) -> dict[str, Any]:
    return {
        "relation": "all",
        "templates": float(np.mean([one.prompts[asking] for one in having])),
        "left_out": sum(dropped.values()) + sum(one.left_out for one in having),
    }


def _macro(having: Sequence[RelationAnswers], asking: Asking, view: int, dropped: dict[str, int]) -> dict[str, Any]:
    right = np.stack([one.right[asking][view] for one in having])
    counts = np.stack([one.counts for one in having])
    weights = replicate_weights()
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = (weights @ right.T) / (weights @ counts.T)
    # A relation with few facts may be absent from a replicate; its own value is then used.
    values = right.sum(axis=1) / counts.sum(axis=1)
    replicates = np.where(np.isnan(drawn), values, drawn).mean(axis=1)
    baseline = float(np.mean([_majority(one) for one in having]))
    return {
        **_over_relations(having, asking, dropped),
        "average": "macro",
        "without_subject": _mean_of_counted(having, asking, view, np.ones(len(having))),
        **estimate(float(values.mean()), replicates, baseline, float(counts.sum()), scale="share"),
    }


def _micro(having: Sequence[RelationAnswers], asking: Asking, view: int, dropped: dict[str, int]) -> dict[str, Any]:
    counts = np.stack([one.counts for one in having])
    sizes = counts.sum(axis=1)
    return {
        **_over_relations(having, asking, dropped),
        "average": "micro",
        "without_subject": _mean_of_counted(having, asking, view, sizes),
        **ratio_estimate(
            np.sum([one.right[asking][view] for one in having], axis=0),
            counts.sum(axis=0),
            float(sum(one.majority.sum() for one in having) / sizes.sum()),
            "share",
        ),
    }


def _mean_of_counted(having: Sequence[RelationAnswers], asking: Asking, view: int, sizes: np.ndarray) -> float:
    """The template bias, averaged over relations whose prompts work without a subject."""
    blind = np.array([one.blind[asking][view] for one in having])
    counted = ~np.isnan(blind)
    return float(np.average(blind[counted], weights=sizes[counted])) if counted.any() else math.nan
