"""The plan of a study: plain values from a TOML file or from Python."""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from infoflow import foundation
from infoflow._subjects import provided
from infoflow.architectures import FAMILIES
from infoflow.objectives import AbstractObjective, Reads, make_objective, takes_token_dropout
from infoflow.results import Recipe, RunFolder, Spec
from infoflow.training import Match, ModelConfig, TrainConfig

from . import _plan_sections
from ._plugins import PluginsPlan, UnnamedCode, code_may_run, load_plugins, with_paths

_LARGEST_PLAN = 1_000_000
_MOST_TABLES = 1000  # tables with the same name


def read_plan(path: Path) -> str:
    if (size := path.stat().st_size) > _LARGEST_PLAN:
        raise foundation.UserError(
            f"A study plan has at most {_LARGEST_PLAN:,} bytes. {path} has {size:,}. Name a plan."
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise foundation.UserError(f"{path} is not UTF-8 text, so it is not a TOML file. Save it as UTF-8.") from None


def parse_toml(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise foundation.UserError(
            f"{source} is not valid TOML: {str(error).rstrip('.')}. Correct that line."
        ) from None
    except RecursionError:
        raise foundation.UserError(
            f"{source} nests lists too deeply for a plan. Write name = value under [table]."
        ) from None
    except ValueError:  # the limit of Python
        raise foundation.UserError(f"{source} holds a number of more than 4,300 digits. Shorten it.") from None


def build_settings(cls: type, values: Any, path: str = "") -> Any:
    """Build the dataclass from plain values; `path` precedes the names of its settings in messages."""
    if not isinstance(values, dict):
        name = path.removesuffix(".")
        what = f"{name} must be a table of settings, written [{name}]" if name else "A plan must be a table of settings"
        raise foundation.UserError(f"{what}. Got {foundation.as_written(values)}.")
    hints, defaults = get_type_hints(cls, include_extras=True), foundation.default_settings(cls)
    arguments = {}
    for name, value in values.items():
        if name not in hints:
            meant = foundation.did_you_mean(name, hints, path)
            raise foundation.UserError(
                f"The plan has no setting {path}{str(name)[:80]}.{meant} Known settings: {', '.join(hints)}."
            )
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            arguments[name] = build_settings(hint, value, f"{path}{name}.")  # type: ignore[arg-type]
        elif (table := _table_of(hint)) is not None:
            arguments[name] = _build_tables(table, value, f"{path}{name}")
        else:
            arguments[name] = foundation.read_setting(hint, value, f"{path}{name}", defaults.get(name))
    return cls(**arguments)


def _table_of(hint: Any) -> type | None:
    """The dataclass of each item of a list, for tables written as [[NAME]]."""
    items = get_args(hint) if get_origin(hint) is tuple else ()
    return items[0] if items and dataclasses.is_dataclass(items[0]) else None  # type: ignore[return-value]


def _build_tables(cls: type, values: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple) or len(values) > _MOST_TABLES:
        raise foundation.UserError(
            f"{path} must be a list of at most {_MOST_TABLES:,} tables, each written [[{path}]]. "
            f"Got {foundation.as_written(values)}."
        )
    return tuple(build_settings(cls, one, f"{path}[{number}].") for number, one in enumerate(values))


PRESETS = ("quick", "laptop", "paper", "replicate", "zoo", "architectures", "adaptation", "retrieval")
"""Names of the plans that are part of the package."""
_RETIRED: Mapping[str, Mapping[str, Any]] = {
    "training": {"keep_log_spaced": ...},
    "dynamics": {"lags": ...},
    "retrieval": {"retriever_layers": 2},
}
"""Settings of earlier versions, by section, with the value that now holds for all plans; `...`: had no effect."""
Architectures = Annotated[tuple[str, ...], foundation.Limits(filled=True, distinct=True)]
Variants = Mapping[str, Mapping[str, Any]]
Seeds = Annotated[tuple[foundation.Seed, ...], foundation.Limits(filled=True, distinct=True)]
OpenShare = Annotated[float, foundation.Limits(above=0, below=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class CorePlan:
    """The core's settings: one corpus, one budget, several objectives, and several architectures if they are named."""

    title: str = "How the objective shapes a Transformer"
    objectives: foundation.DistinctNames = ("causal-lm", "masked-lm", "translation")
    variants: Variants = field(default_factory=dict)  # options by variant name: objectives = ["NAME+VARIANT"]
    architectures: Architectures = ("bert",)  # families of blocks, each trained on every objective
    text: Literal["sentences", "windows"] = "sentences"  # windows: consecutive sentences, up to model.positions tokens
    seeds: Seeds = (0,)  # of initialisation, data order and noise; shared by all objectives
    match: Match = "encoder"  # every stack has `model.layers` layers; "depth": single stacks have twice as many
    pairs: tuple[str, ...] = ("objectives",)  # models to compare: "objectives", "neighbours", or "NAME|NAME"
    token_dropout: OpenShare = 0.1  # share of input tokens replaced in training of `NAME+token-dropout` (an ablation)
    corpus: _plan_sections.CorpusPlan = field(default_factory=_plan_sections.CorpusPlan)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    analysis: _plan_sections.AnalysisPlan = field(default_factory=_plan_sections.AnalysisPlan)
    checkpoints: _plan_sections.CheckpointsPlan = field(default_factory=_plan_sections.CheckpointsPlan)
    context: _plan_sections.ContextPlan = field(default_factory=_plan_sections.ContextPlan)
    engine: _plan_sections.EnginePlan = field(default_factory=_plan_sections.EnginePlan)
    plugins: PluginsPlan = field(default_factory=PluginsPlan)

    def __post_init__(self) -> None:
        foundation.check_settings(self)
        load_plugins(self.plugins)
        _plan_sections.check_plan(self)
        for check in (check for own in provided("settings", "CHECKS") for check in own):
            check(self)

    def for_models(self, **changes: Any) -> "StudyPlan":
        """The plan with `changes`, for single models: it has no pairs and no sections that name objectives."""
        sections = ("context", "pruning", "transplant", "retrieval")
        plain = {one.name: one.default_factory() for one in fields(self) if one.name in sections}  # type: ignore[misc]
        plan: Any = replace(self, **{"pairs": (), **plain, **changes})
        return plan

    def spec(self, name: str) -> Spec:
        """The objective and options that a name in the plan stands for.

        The name is `NAME`, `NAME+VARIANT` with the options of `[variants.VARIANT]`, or `NAME+token-dropout` for
        training on partly replaced input.
        """
        base, plus, variant = name.partition("+")
        make_objective(base)
        if not plus:
            return Spec(base)
        if variant in self.variants:
            return Spec(base, variant, dict(self.variants[variant]))
        if variant != _plan_sections.TOKEN_DROPOUT:
            known = ", ".join([*self.variants, _plan_sections.TOKEN_DROPOUT])
            raise foundation.UserError(
                f"objectives: {foundation.as_written(name)} names no variant of this plan. Known: {known}. "
                "Write the options of a new one under [variants.NAME]."
            )
        if not takes_token_dropout(base):
            raise foundation.UserError(
                f"{base} already learns to detect random tokens: it has no variant {name}. Leave it out."
            )
        return Spec(base, _plan_sections.TOKEN_DROPOUT, {"token_dropout": self.token_dropout})

    def objective(self, name: str) -> AbstractObjective:
        """The objective called `name` (see `spec`)."""
        spec = self.spec(name)
        return make_objective(spec.name, **spec.options)

    def recipes(self, objectives: Sequence[str] | None = None) -> list[Recipe]:
        """The training runs, objective by objective, each with every seed; `objectives` selects some of them."""
        names = self.objectives if objectives is None else objectives
        specs, families = [self.spec(name) for name in names], [Spec(name) for name in self.architectures]
        return [
            Recipe(objective=spec, architecture=family, seed=seed)
            for family in families
            for spec in specs
            for seed in self.seeds
            if self.fits(spec.label, family.name)
        ]

    def reads(self, objective: AbstractObjective) -> Reads:
        """What one example of the objective is, such as a sentence, or a window if the plan says so."""
        windows = self.text == "windows" and objective.reads == "sentence" and not objective.needs_translation
        return "window" if windows else objective.reads

    def fits(self, objective: str, architecture: str) -> bool:
        """Whether the architecture has the objective's layout and, for translation, a vocabulary for both languages."""
        chosen, family = self.objective(objective), FAMILIES[architecture]
        both = family.two_vocabularies or self.corpus.joint_vocabulary
        return chosen.layout in family.layouts and (both or not chosen.needs_translation)

    @classmethod
    def load(cls, source: str | Path, **plugins: str | Path | None) -> "StudyPlan":
        """The plan in a TOML file or in a preset. **The Python files that its section `[plugins]` names are executed.**

        Presets: quick, laptop, paper, replicate, zoo, architectures, adaptation, retrieval. `measures`, `objectives`
        and `claims` name your own code instead of that section.
        """
        if str(source) in PRESETS:
            text = (resources.files(__package__) / "presets" / f"{source}.toml").read_text(encoding="utf-8")
        elif Path(source).is_file():
            text = read_plan(Path(source))
        else:
            raise foundation.UserError(
                f"No study plan {source}: neither a TOML file nor a preset ({', '.join(PRESETS)})."
                f"{foundation.did_you_mean(source, PRESETS)}"
            )
        values = with_paths(parse_toml(text, str(source)), Path(source).parent, plugins)
        return cls.from_json(values, run_code=True)

    @classmethod
    def from_json(cls, values: dict[str, Any], run_code: bool = False) -> "StudyPlan":
        """The plan from plain values: the output of `to_json`, or a parsed TOML file."""
        with code_may_run(run_code):
            if isinstance(values, dict) and isinstance(pairs := values.get("pairs"), str):
                values = {**values, "pairs": [pairs]}  # a single word becomes a list
            return build_settings(cls, _without_retired(values))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


if TYPE_CHECKING:
    from infoflow.subjects.adaptation.settings import DomainPlan, TunePlan
    from infoflow.subjects.alignment.settings import AlignmentPlan
    from infoflow.subjects.allocation.settings import DynamicsPlan
    from infoflow.subjects.probing.settings import ProbingPlan
    from infoflow.subjects.pruning.settings import PruningPlan
    from infoflow.subjects.retrieval.settings import RetrievalPlan
    from infoflow.subjects.transplant.settings import TransplantPlan

    @dataclass(frozen=True, kw_only=True, slots=True)
    class StudyPlan(CorePlan):
        """The sections of all subjects, for type checkers and editors."""

        alignment: AlignmentPlan = field(default_factory=AlignmentPlan)
        domain: DomainPlan = field(default_factory=DomainPlan)
        dynamics: DynamicsPlan = field(default_factory=DynamicsPlan)
        probing: ProbingPlan = field(default_factory=ProbingPlan)
        pruning: PruningPlan = field(default_factory=PruningPlan)
        retrieval: RetrievalPlan = field(default_factory=RetrievalPlan)
        transplant: TransplantPlan = field(default_factory=TransplantPlan)
        tune: tuple[TunePlan, ...] = ()

else:
    StudyPlan = _plan_sections.with_sections(
        CorePlan,
        "StudyPlan",
        "SECTIONS",
        "One corpus and one budget; the objective varies, and so does the architecture if several are named.",
    )


def stored_plan(run: RunFolder, run_code: bool = False) -> StudyPlan:
    """The plan in a run's run.json; the user's own code that it names is executed only if `run_code` is true."""
    path = run.path / "run.json"
    if (plan := run.read().get("plan")) is None:
        raise foundation.UserError(f"{path} is damaged: it has no plan. Start again in a new folder.")
    try:
        return StudyPlan.from_json(plan, run_code)
    except UnnamedCode:
        raise
    except foundation.UserError as error:
        raise foundation.UserError(
            f"The plan in {path} cannot be read: {error}\n"
            "It is damaged, or from another version of infoflow. Run the command that started it again."
        ) from None


def _without_retired(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {
        section: {name: value for name, value in given.items() if not _is_retired(section, name, value)}
        if section in _RETIRED and isinstance(given, dict)
        else given
        for section, given in values.items()
    }


def _is_retired(section: str, name: str, value: Any) -> bool:
    retired = _RETIRED[section]
    return name in retired and retired[name] in (..., value)
