"""Loss change allocation of arms: against trapezoids written out, and without a trace in the training."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from retrieval.tiny_arms import ARMS, tiny_arm, tiny_config, tiny_data

from infoflow.dynamics import LossChangeRecorder, RecordConfig, Recording, evaluation_set, undisturbed
from infoflow.foundation import UserError
from infoflow.objectives import UNSUPERVISED
from infoflow.retrieval import NULL, bm25_scores, fixed_choice, retrieval_anatomy
from infoflow.subjects.retrieval.training import IndexRefresh
from infoflow.training import TrainingHook, train

pytestmark = pytest.mark.slow

TOKENS, PARTS, NEGATIVES = 150, 2, 2
OPTIONS = {"freeze_retriever": 0.4, "refresh_every": 3, "null_share": 0.2}
PLAIN = RecordConfig(parameters=False, check_rules=False, windows=8)
SEARCHING = {"retrieve-learned": OPTIONS}


def arm(name):
    return tiny_arm(name, **SEARCHING.get(name, {}))


def sample_of(objective):
    fixed = dataclasses.replace(objective, fixed_negatives=NEGATIVES)
    return evaluation_set("train", fixed, tiny_data(), TOKENS, PARTS)


def recorder_of(objective, model, config=PLAIN, out=None):
    return LossChangeRecorder([sample_of(objective)], retrieval_anatomy(model.eval()), config, out)


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def trained(name, folder, config=PLAIN, out=None, recorded=True, extra=()):
    objective, model = arm(name)
    hooks = [IndexRefresh(model), *([recorder_of(objective, model, config, out)] if recorded else []), *extra]
    train(objective, tiny_config(), tiny_data(), model, folder, hooks=hooks)
    return model, (hooks[1] if recorded else None), hooks[0]


# -- candidates --------------------------------------------------------------------------------------------------------


def candidates_by_hand(model, x, gold, excluded):
    """The right passage, the best others by BM25 (ties by id), the empty one."""
    if model.source == "none":
        return [NULL]
    library = model.passage_library
    special = library.vocabulary.is_special
    words = [token for token in x.tolist() if not special[token]]
    scores = bm25_scores([words], [library.body(id).tolist() for id in range(len(library))])[0]
    ranked = sorted(range(len(library)), key=lambda id: (-scores[id], id))
    others = [id for id in ranked if scores[id] > 0 and id != gold and id not in excluded][:NEGATIVES]
    return [*([gold] if gold != NULL else []), *others, NULL]


def logits_by_hand(model, x, ids):
    """f(x, z) of each candidate."""
    library, zero = model.passage_library, torch.zeros(())
    if model.source == "none":
        return [zero]
    if model.source in ("gold", "random"):
        return [*(zero for _ in ids[:-1]), model.null_logit]
    if model.source == "bm25":
        special = library.vocabulary.is_special
        scores = bm25_scores([[token for token in x.tolist() if not special[token]]],
                             [library.body(id).tolist() for id in range(len(library))])[0]  # fmt: skip
        return [*(model.scale.exp() * torch.tensor(scores[id]).float() for id in ids[:-1]), model.null_logit]

    def score(id):
        tokens, segments = (torch.from_numpy(part)[None] for part in library.encoded(id))
        query = model.retriever.queries(x[None])[0]
        return query @ model.retriever.passages(tokens, token_type_ids=segments)[0] / math.sqrt(len(query))

    if model.source == "frozen":
        return [*(model.scale.exp() * score(id).detach() for id in ids[:-1]), model.null_logit]
    return [score(id) for id in ids]


def loss_by_hand(model, batches):
    """−log p(y|x) per masked token, query by query and candidate by candidate, without padding."""
    total, count = 0.0, 0
    for batch in batches:
        for row in range(len(batch)):
            real = batch.real[row]
            x, labels = batch.input_ids[row][real], batch.labels[row][real]
            excluded = batch["excluded"][row].tolist()
            ids = candidates_by_hand(model, x, batch["gold"][row].item(), excluded)
            prior = torch.stack(logits_by_hand(model, x, ids)).softmax(dim=0)
            places = (labels != UNSUPERVISED).nonzero()[:, 0]
            likely = []
            for id in ids:
                z = torch.from_numpy(model.passage_library.body(id)) if id != NULL else x.new_empty(0)
                segments = torch.tensor([0] * len(x) + [1] * (len(z) + 1))
                logits = model.reader(input_ids=torch.cat([x, z, x[-1:]])[None], token_type_ids=segments[None]).logits
                likely.append(logits[0].log_softmax(dim=-1)[places, labels[places]].sum())
            total = total - (prior * torch.stack(likely).exp()).sum().log()
            count += len(places)
    return total / count


@pytest.mark.parametrize("name", ARMS)
def test_the_loss_is_that_of_the_definition(name):
    objective, model = arm(name)
    sample = sample_of(objective)
    model.eval()
    with torch.no_grad():
        found = sum(float(sample.objective.loss(model, b, b.noise)[name].total) for part in sample.parts for b in part)
    assert found / sample.totals[name] == pytest.approx(
        float(loss_by_hand(model, [batch for part in sample.parts for batch in part]).detach()), rel=1e-5
    )


def choice_of(model, batch, excluded=None, **changes):
    num = len(batch)
    arguments = {"negatives": NEGATIVES, "gold": batch["gold"].numpy(), "exclude": excluded or [[]] * num}
    arguments |= {"null_only": np.zeros(num, dtype=bool), **changes}
    return fixed_choice(model, batch.input_ids, batch.attention_mask, **arguments)


def test_candidates_depend_on_no_weight_and_none_is_read_twice():
    objective, model = arm("retrieve-learned")
    batch = tiny_data().batch(objective, np.arange(24), ("test",), 0)
    before = choice_of(model, batch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    after = choice_of(model, batch)
    assert (before.ids == after.ids).all()
    assert (before.ids[:, 0] == batch["gold"].numpy()).all()
    assert (before.ids[:, 0] == NULL).any(), "a sentence of the language has no right passage"
    for row in before.ids:
        there = [id for id in row.tolist() if id != NULL]
        assert len(set(there)) == len(there)
    assert before.there[:, -1].all()
    first = [[int(row[1])] for row in before.ids]
    assert not (choice_of(model, batch, first).ids[:, 1:-1] == before.ids[:, 1:2]).any()
    right = [[int(row[0])] if row[0] != NULL else [] for row in before.ids]
    without = choice_of(model, batch, right)
    assert (without.ids[:, 0] == NULL).all()
    assert (without.ids[:, 1:] == before.ids[:, 1:]).all(), "others stay"
    alone = choice_of(model, batch, null_only=np.ones(len(batch), dtype=bool))
    assert alone.ids.tolist() == [[NULL]] * len(batch)


@pytest.mark.parametrize("negatives", [0, -1])
def test_no_passage_beside_the_right_one_is_told(negatives):
    objective, model = arm("read-gold")
    batch = tiny_data().batch(objective, np.arange(3), ("test",), 0)
    with pytest.raises(UserError, match=f"at least 1 passage in addition to the right one. Got {negatives}"):
        choice_of(model, batch, negatives=negatives)


def test_a_model_without_library_is_told():
    objective, model = arm("read-gold")
    batch = tiny_data().batch(objective, np.arange(3), ("test",), 0)
    model.passage_library = None
    with pytest.raises(UserError, match="needs a library"):
        choice_of(model, batch)


# -- parts -------------------------------------------------------------------------------------------------------------


def test_every_parameter_belongs_to_one_part():
    _, model = arm("retrieve-learned")
    groups = retrieval_anatomy(model).parameter_groups
    sizes = {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}
    assert sum(group.size for group in groups) == sum(sizes.values())
    retriever = [group for group in groups if group.component == "retriever"]
    assert {group.layer for group in retriever} == {None, 0, 1}
    assert sum(group.size for group in retriever) == sum(p.numel() for p in model.retriever.parameters())
    names = {group.slice.parameter for group in groups if group.component == "prior"}
    assert names == set()  # a learned retriever scores the empty passage itself
    _, fixed = arm("retrieve-frozen")
    others = retrieval_anatomy(fixed).parameter_groups
    assert {group.slice.parameter for group in others if group.component == "prior"} == {"scale", "null_logit"}
    assert not [group for group in others if group.component == "retriever"]


# -- against trapezoids written out ------------------------------------------------------------------------------------


class Copies(TrainingHook):
    """The weights around each update."""

    name = "copies"

    def __init__(self) -> None:
        self.pairs, self._before = [], {}

    def on_step_begin(self, step) -> None:
        self._before = weights(step.module)

    def on_step_end(self, step) -> None:
        self.pairs.append((self._before, weights(step.module)))


def part_of(name):
    return "retriever" if name.startswith("retriever.") else "prior" if not name.startswith("reader.") else "reader"


@pytest.mark.parametrize("name", ["retrieve-learned", "retrieve-bm25"])
def test_allocations_are_those_of_trapezoids_written_out(name, tmp_path):
    copies = Copies()
    _, recorder, _ = trained(name, tmp_path / "run", extra=[copies])
    objective, model = arm(name)
    batches = [batch for part in sample_of(objective).parts for batch in part]
    model.eval()

    def gradients(state):
        model.load_state_dict(state)
        loss = loss_by_hand(model, batches)
        parameters = {key: p for key, p in model.named_parameters() if p.requires_grad}
        found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        return dict(zip(parameters, found, strict=True)), float(loss.detach())

    steps = Recording.of(recorder).tables["allocation_steps"]
    windows = Recording.of(recorder).tables["allocation_windows"]
    part = np.where(steps["component"].isin(["retriever", "prior"]), steps["component"], "reader")
    found = steps.groupby(["window", part])["value"].sum()
    assert len(copies.pairs) == windows["window"].nunique() == 8
    for window, (before, after) in enumerate(copies.pairs):
        (first, loss), (last, end) = gradients(before), gradients(after)
        sums = dict.fromkeys(("reader", "retriever", "prior"), 0.0)
        for key in first:
            slopes = [one[key] for one in (first, last) if one[key] is not None]
            if slopes:
                sums[part_of(key)] += float(((after[key] - before[key]) * sum(slopes)).sum()) / 2
        for where, value in sums.items():
            if bool((window, where) in found.index):
                assert found[window, where] == pytest.approx(value, rel=2e-3, abs=5e-8), (window, where)
            else:
                assert value == 0
        row = windows.iloc[window]
        assert (row["loss_start"], row["loss_end"]) == pytest.approx((loss, end), rel=1e-5)
    if name == "retrieve-learned":
        moved = found.xs("retriever", level=1)
        assert (moved.iloc[:3] == 0).all(), "it is frozen"
        assert (moved.iloc[3:-1] != 0).all()  # the last rate is 0


def test_allocations_add_up_to_the_loss_change(tmp_path):
    whole = {}
    for splits in (1, 8):
        config = dataclasses.replace(PLAIN, splits=splits)
        _, recorder, _ = trained("retrieve-learned", tmp_path / str(splits), config)
        windows = Recording.of(recorder).tables["allocation_windows"]
        change = windows["loss_end"].iloc[-1] - windows["loss_start"].iloc[0]
        whole[splits] = abs(windows["allocated"].sum() - change)
        assert change < -0.1, "it learns"
    assert whole[8] < 3e-3
    assert whole[8] < whole[1] / 10


# -- no trace ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARMS)
def test_training_is_the_same_to_the_bit(name, tmp_path):
    plain, _, index = trained(name, tmp_path / "plain", recorded=False)
    seen, recorder, other = trained(name, tmp_path / "seen")
    assert recorder.updates == 8
    assert all(torch.equal(value, seen.state_dict()[key]) for key, value in plain.state_dict().items())
    assert index.table.equals(other.table)


def test_an_interrupted_run_records_what_a_whole_one_does(tmp_path):
    class Stop(Exception):
        pass

    class StopAt(TrainingHook):
        name = "stop-at"

        def on_step_begin(self, step):
            if step.update == 6:
                raise Stop

    whole, out = tmp_path / "whole-recording", tmp_path / "recording"
    trained("retrieve-learned", tmp_path / "whole", out=whole)
    with pytest.raises(Stop):
        trained("retrieve-learned", tmp_path / "broken", out=out, extra=[StopAt()])
    trained("retrieve-learned", tmp_path / "broken", out=out)
    found, wanted = Recording.read(out).tables, Recording.read(whole).tables
    for name in ("allocation_steps", "allocation_windows", "allocation_groups"):
        assert found[name].equals(wanted[name]), name
    assert len(wanted["allocation_steps"])


def test_the_index_does_not_change_the_loss(tmp_path):
    """Otherwise it would jump where the index is built."""
    objective, model = arm("retrieve-learned")
    sample, library = sample_of(objective), model.passage_library
    batch = sample.parts[0][0]
    library.dense = library.embed(model.retriever.passages)
    losses = {"fixed": [], "own": []}
    for _ in range(2):
        library.dense.vectors = library.dense.vectors.flip(0)  # every passage at another's place
        with undisturbed(model):
            for name, one in (("fixed", sample.objective), ("own", objective.for_evaluation())):
                losses[name].append(float(one.loss(model, batch, batch.noise)[objective.name].total.detach()))
    assert losses["fixed"][0] == losses["fixed"][1]
    assert losses["own"][0] != losses["own"][1]
