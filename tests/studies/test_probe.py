"""A study that probes its models, on its own sentences or on others with tags."""

import dataclasses
import shutil

import pandas as pd
import pytest

from infoflow.corpus import load_corpus
from infoflow.flow import PassOptions, measure
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.probing import Probe
from infoflow.studies import Run, StudyModels, StudyPlan, graph, prepare, study
from infoflow.studies.stages import MeasureModel
from infoflow.subjects.probing.settings import ProbingPlan
from infoflow.subjects.probing.stages import ProbeModel

pytestmark = pytest.mark.slow


@pytest.fixture
def treebank(tmp_path):
    """Sentences with tags and heads that are not the study's."""
    path = tmp_path / "others.conllu"
    rows = []
    for sentence in load_corpus("grammar:900").select(range(700, 800)):
        words = zip(sentence.words or [], sentence.upos or [], sentence.head or [], sentence.deprel or [], strict=True)
        rows += [f"{n}\t{w}\t_\t{t}\t_\t_\t{h + 1}\t{r}\t_\t_" for n, (w, t, h, r) in enumerate(words, 1)]
        rows.append("")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def probing(plan: StudyPlan, **asked) -> StudyPlan:
    """The plan of translation models that probes too, and does little else."""
    return dataclasses.replace(
        plan,
        objectives=("translation",),
        seeds=(0, 1),
        analysis=dataclasses.replace(plan.analysis, tables=("task_scores",)),
        probing=ProbingPlan(**{"seeds": 1, "sentences": 90, **asked}),
    )


@pytest.fixture
def trained(grown_run: Run, monkeypatch, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(grown_run.path, folder)
    monkeypatch.setattr(StudyModels, "train_into", lambda *args, **kwargs: pytest.fail("trains again"))
    return folder


def test_every_model_is_probed_beside_its_untrained_twin(
    trained, tiny_plan: StudyPlan, treebank, no_drawing, tmp_path
) -> None:
    plan = probing(tiny_plan, tasks=("upos", "position"), probes=("linear", "structural"), corpus=str(treebank))
    run = study(plan, trained, num_processes=1)
    scores = run.tables["probe_scores"]
    assert set(zip(scores["seed"], scores["trained"], strict=True)) == {(s, t) for s in (0, 1) for t in (True, False)}
    assert set(scores["task"]) == {"upos", "position"}
    assert set(run.tables["probe_trees"]["probe"]) == {"structural", "random", "chain"}
    model = load_model(trained / "models" / "translation" / "seed-1")
    probed = prepare(plan, tmp_path / "data").further["probed"]
    assert probed is not None
    options = PassOptions(tokens_per_batch=plan.analysis.tokens_per_batch, decoder_states=False)
    alone = measure(model, probed, [Probe("upos", sentences=90, seeds=1)], options=options)["probe_scores"]
    own = scores[(scores["seed"] == 1) & scores["trained"] & (scores["task"] == "upos")].reset_index(drop=True)
    pd.testing.assert_series_equal(own["value"], alone["value"].reset_index(drop=True))
    assert {"probing:P-1", "probing:P-4"} <= set(run.findings["id"])


def test_a_further_probe_leaves_the_others_as_they_are(trained, tiny_plan: StudyPlan, no_drawing) -> None:
    first = probing(tiny_plan, tasks=("position",))
    study(first, trained, num_processes=1)
    keys = [stage.table_keys() for stage in graph(first, trained) if isinstance(stage, ProbeModel)]
    more = probing(tiny_plan, tasks=("position",), probes=("linear", "edge:position"))
    later = [stage for stage in graph(more, trained) if isinstance(stage, ProbeModel)]
    assert len(later) == len(keys) == 4
    for before, stage in zip(keys, later, strict=True):
        assert stage.table_keys()["probe_scores"] == before["probe_scores"]
        assert not stage.is_done()
        assert stage.cache.missing("measured", stage.table_keys()) == ["probe_mixing", "probe_depth"]


def test_trees_in_attention_are_probed_once(tiny_plan: StudyPlan, treebank, tmp_path) -> None:
    plan = probing(tiny_plan, probes=("attention",), corpus=str(treebank))
    asked = dataclasses.replace(plan.analysis, tables=("task_scores", "head_probe"))
    writing: dict[type, set[str]] = {MeasureModel: set(), ProbeModel: set()}
    for stage in graph(dataclasses.replace(plan, analysis=asked), tmp_path):
        if isinstance(stage, MeasureModel | ProbeModel):
            writing[type(stage)] |= set(stage.by_table)
    assert "head_probe" not in writing[MeasureModel]
    assert writing[ProbeModel] == {"head_probe"}


def test_nothing_is_probed_unless_asked(tiny_plan: StudyPlan, tmp_path) -> None:
    assert not tiny_plan.probing.on
    assert not [stage for stage in graph(tiny_plan, tmp_path) if isinstance(stage, ProbeModel)]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"tasks": ("coreference",)}, "coreference needs the column entity"),
        ({"tasks": ("sintax",)}, 'No task "sintax"'),
        ({"tasks": ("upos",), "corpus": "no-such.conllu"}, "No corpus no-such.conllu"),
    ],
)
def test_what_cannot_be_asked_is_told_before_training(tiny_plan: StudyPlan, asked, message, tmp_path) -> None:
    with pytest.raises(UserError, match=message):
        graph(probing(tiny_plan, **asked), tmp_path)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"tasks": ("upos",), "probes": ("mlp:word",)}, "probing.probes must be among upos. Got"),
        ({"probes": ("cubic",)}, "probing.probes must be among linear, mlp"),
        ({"sizes": (0.0,)}, "probing.sizes"),
    ],
)
def test_probes_that_are_not_known_are_refused(asked, message) -> None:
    with pytest.raises(UserError, match=message):
        ProbingPlan(**asked)
