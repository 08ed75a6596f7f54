"""A fresh head on the pretrained body, in every family."""

import pytest
import torch
import transformers
from adaptation.small_task import small_data, small_model, small_tokenizer
from transformers import AutoConfig

from infoflow.adaptation import AbstractTask, make_task, task_model
from infoflow.foundation import PlainDisplay, UserError, use_display
from infoflow.models import StaticConfig, StaticVectors, load_model
from infoflow.objectives import SENTENCE_FIELDS

FAMILIES = (
    *("bert", "causal-bert", "encoder-decoder", "roberta", "distilbert", "albert", "electra", "gpt2", "llama"),
    *("t5", "bart", "plain-bert"),
)


class _Of(AbstractTask):
    """A task of any shape, as far as `task_model` asks."""

    name, task, fields = "of", "small", SENTENCE_FIELDS

    def __init__(self, shape: str, head: str, labels: tuple[str, ...] = ()) -> None:
        self.shape, self.head, self.labels = shape, head, labels  # type: ignore[misc]


_Of.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
TAGGING = _Of("tagging", "AutoModelForTokenClassification", ("A", "B", "C"))  # type: ignore[abstract]
SPAN = _Of("span", "AutoModelForQuestionAnswering")  # type: ignore[abstract]
CHOICE = _Of("choice", "AutoModelForMultipleChoice")  # type: ignore[abstract]
WRITING = _Of("generation", "AutoModelForSeq2SeqLM")  # type: ignore[abstract]


@pytest.fixture(scope="module")
def task() -> AbstractTask:
    return make_task(small_data(24))


def _texts(shape: tuple[int, ...] = (2, 6)) -> torch.Tensor:
    ids = torch.randint(5, 30, shape, generator=torch.Generator().manual_seed(0))
    ids[..., -1] = 2  # BART and T5 read the state of the end of the text
    return ids


@pytest.mark.parametrize("family", FAMILIES)
def test_the_body_is_the_pretrained_one_and_the_folder_the_model(family, task, tmp_path):
    model = small_model(family)
    module = task_model(model, task, seed=3)
    source = model.module.encoder if family == "encoder-decoder" else model.module
    body = dict(source.base_model.named_parameters())
    found = {name: p for name, p in module.base_model.named_parameters() if "pooler" not in name}
    pretrained = {name.removeprefix("model."): p for name, p in body.items()}  # BART's and T5's own prefixes
    same = [name for name, p in found.items() if torch.equal(p, pretrained[name])]
    assert len(same) == len(found) > 10
    assert not any(p.data_ptr() == q.data_ptr() for p in module.parameters() for q in source.parameters())
    module.eval().save_pretrained(tmp_path)
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert torch.equal(again(input_ids=_texts()).logits, module(input_ids=_texts()).logits)
    assert again.config.id2label == {0: "first", 1: "last"}
    assert load_model(tmp_path).anatomy.stacks[-1].layers


def test_the_head_is_a_function_of_the_seed_and_of_nothing_else(task):
    model = small_model()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, again, other = (task_model(model, task, seed).classifier.weight for seed in (0, 0, 1))  # type: ignore[union-attr]
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("family", ["causal-bert", "gpt2"])
def test_a_causal_model_reads_the_last_token_whatever_the_padding(family, task):
    module = task_model(small_model(family), task).eval()
    ids = _texts((1, 6))
    alone = module(input_ids=ids).logits
    padded = torch.cat([ids, torch.full((1, 3), module.config.pad_token_id)], dim=1)
    mask = torch.tensor([[1] * 6 + [0] * 3])
    assert torch.allclose(module(input_ids=padded, attention_mask=mask).logits, alone, atol=1e-6)
    changed = ids.clone()
    changed[0, 4] = 17 if changed[0, 4] != 17 else 18
    assert not torch.allclose(module(input_ids=changed).logits, alone)  # it is not read from the first token


def test_a_causal_bert_chooses_by_the_last_tokens(tmp_path):
    module = task_model(small_model("causal-bert"), CHOICE).eval()
    ids = _texts((2, 3, 6))
    logits = module(input_ids=ids).logits
    each = [module(input_ids=ids[:, [choice]]).logits[:, 0] for choice in range(3)]
    assert torch.allclose(logits, torch.stack(each, dim=1), atol=1e-6)
    module.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).is_decoder
    again = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path).eval()
    assert torch.equal(again(input_ids=ids).logits, logits)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5", "distilbert"])
def test_other_heads(family):
    model = small_model(family)
    tags = task_model(model, TAGGING).eval()
    assert tags(input_ids=_texts()).logits.shape == (2, 6, 3)
    span = task_model(model, SPAN).eval()
    assert span(input_ids=_texts()).start_logits.shape == (2, 6)


def test_a_writer_is_the_whole_model():
    model = small_model("encoder-decoder")
    module = task_model(model, WRITING)
    pairs = zip(module.named_parameters(), model.module.named_parameters(), strict=True)
    assert all(one == other and torch.equal(p, q) and p is not q for (one, p), (other, q) in pairs)


@pytest.mark.parametrize("asked", ["task", "tags"])
@pytest.mark.parametrize("family", ["bert", "causal-bert", "roberta", "distilbert", "electra", "gpt2", "bart"])
def test_a_head_of_other_labels_is_left_out_and_told(family, asked, task, tmp_path, capsys):
    """Whatever labels it has, and as many: the new one is a function of the seed, as on the body alone."""
    old = TAGGING if asked == "tags" and family != "bart" else task
    tuned = task_model(small_model(family), old, seed=1)
    tuned.save_pretrained(tmp_path)
    again = load_model(tmp_path, small_tokenizer())
    capsys.readouterr()
    with use_display(PlainDisplay()):
        found = task_model(again, task, seed=3)
    told, outputs = capsys.readouterr().err, len(old.labels)
    assert f"is a {type(tuned).__name__}: its head of {outputs} outputs is dropped, and the head for " in told
    assert f" of {len(task.labels)} outputs starts with random weights. Tuning always replaces the head" in told
    alone = task_model(load_model(again.module.base_model, small_tokenizer()), task, seed=3)
    heads = {name for name, _ in alone.named_parameters() if not name.startswith(f"{alone.base_model_prefix}.")}
    assert heads
    assert all(torch.equal(found.get_parameter(name), alone.get_parameter(name)) for name in heads)
    more = _Of("classification", task.head, ("a", "b", "c", "d"))  # type: ignore[abstract]
    assert task_model(again, more).config.num_labels == 4


@pytest.mark.parametrize("before", ["numbers", "tags"])
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "gpt2", "t5"])
def test_what_was_classified_before_says_nothing_of_spans_and_choices(family, before, tmp_path):
    """A model that gave one number, or a class of three, gives a start and an end, and a number to each choice."""
    old = TAGGING if before == "tags" else _Of("regression", "AutoModelForSequenceClassification")  # type: ignore[abstract]
    task_model(small_model(family), old).save_pretrained(tmp_path)
    again = load_model(tmp_path, small_tokenizer())
    span = task_model(again, SPAN).eval()
    assert span(input_ids=_texts()).start_logits.shape == (2, 6)
    assert (span.config.id2label, span.config.problem_type) == ({0: "LABEL_0", 1: "LABEL_1"}, None)
    if family in ("bert", "roberta", "distilbert"):
        choice = task_model(again, CHOICE).eval()
        assert choice(input_ids=_texts((2, 3, 6))).logits.shape == (2, 3)
        assert choice.config.problem_type is None


def test_a_fresh_pooler_is_told(task, capsys):
    with use_display(PlainDisplay()):
        task_model(small_model(), task)
    assert "no pooler" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("family", "asked", "message"),
    [
        ("gpt2", CHOICE, "no AutoModelForMultipleChoice of its family"),
        ("bart", TAGGING, "no AutoModelForTokenClassification"),
        ("bert", WRITING, "generates no text"),
    ],
)
def test_a_model_that_lacks_the_head_is_told(family, asked, message):
    with pytest.raises(UserError, match=message):
        task_model(small_model(family), asked)


def test_a_model_without_attention_is_refused(task):
    model = load_model(StaticVectors(StaticConfig(vocab_size=35, hidden_size=8)), small_tokenizer())
    with pytest.raises(UserError, match="no AutoModelForSequenceClassification of its family"):
        task_model(model, task)


def test_weights_that_are_not_the_configurations_are_told(task):
    model = small_model()
    model.module.config.num_hidden_layers = 3
    with pytest.raises(UserError, match="do not fit its configuration"):
        task_model(model, task)
