"""Facts filled into blanks: against sentences run one by one, on models that know the facts and on some that do not."""

import math

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from infoflow.corpus import Vocabulary, generate_grammar, train_tokenizer
from infoflow.flow import PassOptions, Reader, describe_measure
from infoflow.foundation import SilentDisplay, UserError, stream, use_display
from infoflow.models import load_model
from infoflow.objectives import make_objective
from infoflow.probing import FILL_IN, ClozeFact, Facts, FillIn, FillInOptions, Prompt, common_objects, fill_in
from infoflow.representations import TunedLens
from infoflow.training import ModelConfig, build_models

CAPITALS = {"france": "paris", "italy": "rome", "spain": "madrid", "norway": "oslo", "egypt": "cairo", "peru": "lima"}
COLOURS = {"snow": "white", "coal": "black", "grass": "green", "blood": "red"}
TEMPLATES = {
    "capital": ("the capital of [X] is [Y] .", "of [X] the city [Y] !", "[Y] lies in [X] ."),
    "colour": ("the colour of [X] is [Y] .", "[X] has the colour [Y]", "[Y] is the colour of [X] ."),
}
OBJECTS = sorted([*CAPITALS.values(), *COLOURS.values()])


def facts(**changes):
    found = [ClozeFact(relation="capital", subject=x, object=y) for x, y in CAPITALS.items()]
    found += [ClozeFact(relation="colour", subject=x, object=y) for x, y in COLOURS.items()]
    prompts = [
        Prompt(relation=relation, template=template, family="manual" if place == 0 else "mined")
        for relation, templates in TEMPLATES.items()
        for place, template in enumerate(templates)
    ]
    return Facts(**{"facts": tuple(found), "prompts": tuple(prompts)} | changes)


@pytest.fixture
def notes():
    """What a run has to say, while the test lasts."""

    class Kept(SilentDisplay):
        def note(self, text):
            found.append(text)

    found = []
    with use_display(Kept()):
        yield found


@pytest.fixture(scope="module")
def tokenizer():
    words = sorted({*CAPITALS, *COLOURS, *OBJECTS, *" ".join(sum(TEMPLATES.values(), ())).split()} - {"[X]", "[Y]"})
    texts = [" ".join(stream("blank-test", i).permutation(words)) for i in range(30)]
    return train_tokenizer(texts, vocab_size=400, sentinels=4)


def masked_lm(tokenizer, seed=0):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=24, initializer_range=0.3, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
    )  # fmt: skip
    return load_model(BertForMaskedLM(config), tokenizer=tokenizer)


def causal_lm(tokenizer):
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=32, max_position_embeddings=24, initializer_range=0.3,
    )  # fmt: skip
    return load_model(LlamaForCausalLM(config), tokenizer=tokenizer)


@pytest.fixture(scope="module")
def knowing(tokenizer):
    """A masked LM that learned the facts by the first template of each relation."""
    model = masked_lm(tokenizer)
    known = facts().facts
    asked = [TEMPLATES[fact.relation][0].replace("[X]", fact.subject).replace("[Y]", "[MASK]") for fact in known]
    labels = torch.tensor([tokenizer(fact.object, add_special_tokens=False)["input_ids"][-1] for fact in known])
    ids = tokenizer(asked, return_tensors="pt")["input_ids"]
    places = (ids == tokenizer.mask_token_id).long().argmax(dim=1)
    optimiser = torch.optim.Adam(model.module.parameters(), lr=0.003)  # faster ones forget on some processors
    for _ in range(400):
        optimiser.zero_grad()
        logits = model.module(input_ids=ids).logits[torch.arange(len(known)), places]
        torch.nn.functional.cross_entropy(logits, labels).backward()
        optimiser.step()
    return model


def slow_answers(model, fact, layer, templates, weights):
    """The likeliest object: every sentence alone, through the head by hand."""
    tokenizer = model.tokenizer
    tokens = [tokenizer(f"a {word}", add_special_tokens=False)["input_ids"][-1] for word in OBJECTS]
    total = torch.zeros(len(OBJECTS))
    for template, weight in zip(templates, weights, strict=True):
        subject = template.replace("[X]", fact.subject)
        with torch.no_grad():
            if model.task == "masked-lm":
                ids = tokenizer(subject.replace("[Y]", "[MASK]"), return_tensors="pt")["input_ids"]
                state = model.module(input_ids=ids, output_hidden_states=True).hidden_states[layer][0]
                logits = model.module.cls(state[ids[0] == tokenizer.mask_token_id])[0]
            else:
                ids = tokenizer(subject.split(" [Y]")[0], return_tensors="pt")["input_ids"][:, :-1]  # without [SEP]
                found = model.module(input_ids=ids, output_hidden_states=True)
                last = len(found.hidden_states) - 1
                state = found.hidden_states[layer][0, -1]
                logits = model.module.lm_head(state if layer == last else model.module.model.norm(state))
        total += weight * logits.log_softmax(-1)[tokens]
    return OBJECTS[int(total.argmax())]


def value(table, **chosen):
    for name, wanted in chosen.items():
        table = table[table[name] == wanted]
    assert len(table) == 1
    return table.iloc[0]


@pytest.mark.parametrize("build", [masked_lm, causal_lm])
def test_answers_agree_with_sentences_run_alone(tokenizer, build):
    model, known = build(tokenizer), facts()
    assert common_objects([model], known.objects) == tuple(OBJECTS)
    table = fill_in(model, known)
    assert table.columns.tolist() == FILL_IN.column_names
    usable = 1 if model.task == "causal-lm" else 2  # of those mined: "[Y] lies in [X] ." cannot be asked
    for layer in range(3):
        for family, first, num in (("manual", 0, 1), ("mined", 1, usable), ("together", 0, 1 + usable)):
            right = {}
            for relation in TEMPLATES:
                asked = TEMPLATES[relation][first : first + num]
                of_relation = [fact for fact in known.facts if fact.relation == relation]
                hits = [slow_answers(model, fact, layer, asked, [1 / num] * num) == fact.object for fact in of_relation]
                row = value(table, layer=layer, prompts=family, relation=relation)
                assert (row["value"], row["count"]) == (pytest.approx(np.mean(hits)), len(hits))
                assert row["baseline"] == pytest.approx(1 / len(hits))  # every object occurs once
                right[relation] = hits
            macro = value(table, layer=layer, prompts=family, average="macro")
            micro = value(table, layer=layer, prompts=family, average="micro")
            assert macro["value"] == pytest.approx(np.mean([np.mean(hits) for hits in right.values()]))
            assert micro["value"] == pytest.approx(np.mean([*right["capital"], *right["colour"]]))
            assert macro["baseline"] == pytest.approx((1 / 6 + 1 / 4) / 2)
            assert micro["baseline"] == pytest.approx(2 / 10)


def test_a_model_that_learned_the_facts_knows_them_at_the_top(knowing):
    table = fill_in(knowing, facts(), FillInOptions(prompts=("manual",)))
    assert value(table, layer=2, average="macro")["value"] == 1
    assert (
        value(table, layer=0, average="macro")["value"] <= 0.25
    )  # the embedding of a mask knows nothing of the sentence
    top = value(table, layer=2, average="micro")
    assert top["low"] <= top["value"] <= top["high"]
    assert top["without_subject"] <= 0.2  # one answer per relation: right for one of six, one of four


def test_training_facts_choose_and_weigh_prompts(knowing):
    known = facts()
    measured = tuple(fact for fact in known.facts if fact.subject in ("france", "spain", "snow"))
    train = tuple(fact for fact in known.facts if fact not in measured)
    together = FillInOptions(prompts=("together",))
    table = fill_in(knowing, facts(facts=measured, train=train), together, vocabulary=OBJECTS)
    assert set(table["ensemble"]) == {"uniform", "best", "optimised"}
    assert value(table, layer=2, average="micro", ensemble="best")["value"] == 1  # the prompt that was learned from
    without = fill_in(knowing, facts(facts=measured), together, vocabulary=OBJECTS)
    assert set(without["ensemble"]) == {"uniform"}
    uniform = table[table["ensemble"] == "uniform"].reset_index(drop=True)
    assert uniform["value"].tolist() == without["value"].tolist()  # nothing is learned of the measured facts


def test_batches_change_nothing(knowing):
    one, other = (fill_in(knowing, facts(), FillInOptions(tokens_per_batch=size)) for size in (4096, 10))
    assert one["value"].tolist() == other["value"].tolist()
    assert one["without_subject"].tolist() == other["without_subject"].tolist()


def test_an_untrained_tuned_lens_reads_as_the_logit_lens(knowing):
    table = fill_in(knowing, facts(), lens=TunedLens.of(knowing))
    halves = [table[table["lens"] == lens]["value"].tolist() for lens in ("logit", "tuned")]
    assert halves[0] == halves[1]


def test_compared_models_choose_among_the_same_words(tokenizer, knowing):
    texts = ["the capital of peru is lima . paris lies in france . "] * 5
    other = masked_lm(train_tokenizer(texts, vocab_size=80))
    common = common_objects([knowing, other], facts().objects)
    assert common == ("lima", "paris")
    tables = [fill_in(model, facts(), vocabulary=common) for model in (knowing, other)]
    for table in tables:
        assert set(table["vocabulary"]) == {2}
        row = value(table, layer=2, prompts="manual", average="micro")
        assert (row["count"], row["left_out"]) == (2, 8)
    with pytest.raises(UserError, match="single tokens"):
        fill_in(other, facts(), vocabulary=("rome",))


CITIES = {"Tom": "Paris", "Ann": "Rome", "Max": "Oslo"}
STANDS = {"first": "[Y] is the home of [X] .", "glued": "home ([Y]) of [X]", "inside": "[X] was born in [Y] ."}


def byte_level(lstrip, start):
    """A masked LM whose tokens hold the space before them; with `start` every city is a token without one too."""
    own = Tokenizer(models.BPE())
    own.pre_tokenizer, own.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    texts = [text.replace("[X]", x).replace("[Y]", y) for text in STANDS.values() for x, y in CITIES.items()]
    texts = [text for text in texts if start or "was born" in text]
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    own.train_from_iterator(texts * 9, trainer)
    own.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    mask = AddedToken("<mask>", lstrip=lstrip, special=True)
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": mask}
    return masked_lm(PreTrainedTokenizerFast(tokenizer_object=own, **names))


@pytest.mark.parametrize("lstrip", [True, False])
@pytest.mark.parametrize("stands", STANDS)
def test_a_blank_is_the_running_text_with_the_answers_token_masked(lstrip, stands):
    model = byte_level(lstrip, start=True)
    known = tuple(ClozeFact(relation="home", subject=x, object=y) for x, y in CITIES.items())
    asked = Facts(facts=known, prompts=(Prompt(relation="home", template=STANDS[stands]),))
    seen = []
    model.module.register_forward_pre_hook(lambda _, __, given: seen.append(given["input_ids"]), with_kwargs=True)
    row = value(fill_in(model, asked), layer=2, relation="home")
    rows = {tuple(id for id in ids.tolist() if id != model.pad_token_id) for batch in seen for ids in batch}
    candidates = [
        model.tokenizer(f"{' ' if stands == 'inside' else ''}{city}").input_ids[1] for city in CITIES.values()
    ]
    right = 0
    for x, y in CITIES.items():
        text = STANDS[stands].replace("[X]", x).replace("[Y]", y)
        ids = model.tokenizer(text)["input_ids"]
        (place,) = [at for at, id in enumerate(ids) if id in candidates]
        ids[place] = model.tokenizer.mask_token_id
        assert tuple(ids) in rows
        with torch.no_grad():
            best = model.module(input_ids=torch.tensor([ids])).logits[0, place, candidates].argmax()
        right += list(CITIES.values())[int(best)] == y
    assert row["value"] == pytest.approx(right / 3)


def test_no_sentence_begins_with_an_answer_that_has_no_token_there(notes):
    known = tuple(ClozeFact(relation="home", subject=x, object=y) for x, y in CITIES.items())
    prompts = tuple(Prompt(relation="home", template=STANDS[name]) for name in ("first", "inside"))
    table = fill_in(byte_level(True, start=False), Facts(facts=known, prompts=prompts))
    assert value(table, layer=2, relation="home")["templates"] == 1
    assert "1 templates that go on after the object, or where" in " ".join(notes)


def test_sentences_that_cannot_be_read_are_counted(tokenizer):
    known = facts()
    long = ClozeFact(relation="capital", subject=" ".join(["the"] * 40), object="rome")
    masked = ClozeFact(relation="capital", subject="[MASK]", object="rome")
    table = fill_in(masked_lm(tokenizer), facts(facts=(*known.facts, long, masked)), FillInOptions(prompts=("manual",)))
    row = value(table, layer=0, relation="capital")
    assert (row["count"], row["left_out"]) == (6, 2)


@pytest.mark.parametrize(
    ("name", "way", "source", "decoder"),
    [
        ("span-corruption", "sentinel", "of italy the city <extra_id_0> !", "<extra_id_0>"),
        ("replace-spans", "sentinel", "of italy the city <extra_id_0> !", "<extra_id_0>"),
        ("denoise-mask", "rewrite", "of italy the city <extra_id_0> !", "of italy the city"),
        ("bart", "rewrite", "of italy the city [MASK] !", "of italy the city"),
        ("prefix-lm", "continue", "of italy the city", ""),
        ("seq2seq-lm", "write", "", "of italy the city"),
    ],
)
def test_encoder_decoders_are_asked_as_they_were_trained(tokenizer, name, way, source, decoder):
    objective, vocabulary = make_objective(name), Vocabulary.from_tokenizer(tokenizer)
    config = ModelConfig(width=16, layers=1, heads=2, feedforward=16, positions=32)
    model = load_model(build_models([objective], config, vocabulary, vocabulary)[name], tokenizer=tokenizer)
    seen = []
    model.module.register_forward_pre_hook(lambda _, __, given: seen.append(given), with_kwargs=True)
    table = fill_in(model, facts(), FillInOptions(prompts=("mined",)), trained=objective)
    assert set(table["asked"]) == {way}
    pairs = {
        tuple(tuple(id for id in ids.tolist() if id != tokenizer.pad_token_id) for ids in row)
        for given in seen
        if "input_ids" in given
        for row in zip(given["input_ids"], given["decoder_input_ids"], strict=True)
    }
    expected = tokenizer(source)["input_ids"], tokenizer(decoder)["input_ids"][:-1]  # [CLS] and the text, no [SEP]
    assert tuple(map(tuple, expected)) in pairs


def test_models_that_fill_no_blank_are_refused(tokenizer, matched_models, knowing):
    translation = matched_models["translation"]
    for trained, message in ((make_objective("translation"), "trained for translation"), (None, "translates")):
        with pytest.raises(UserError, match=message):
            fill_in(translation, facts(), trained=trained)
    headless = load_model(knowing.module.bert, tokenizer=tokenizer)
    with pytest.raises(UserError, match="no output head"):
        fill_in(headless, facts())
    behind = facts(prompts=(Prompt(relation="capital", template="[Y] lies in [X] ."),))
    with pytest.raises(UserError, match=r"must end with \[Y\]"):
        fill_in(causal_lm(tokenizer), behind)


def test_bad_options_are_the_users_mistake(knowing):
    for options, message in (
        ({"facts_per_relation": -1}, "facts_per_relation"),
        ({"ensembles": ()}, "ensembles are among"),
        ({"prompts": ("handmade",)}, "family handmade"),
    ):
        with pytest.raises(UserError, match=message):
            fill_in(knowing, facts(), FillInOptions(**options))
    strange = Facts(facts=(ClozeFact(relation="capital", subject="france", object="qqq"),), prompts=facts().prompts)
    with pytest.raises(UserError, match="one token"):
        fill_in(knowing, strange)


def test_the_measure(knowing, tmp_path, matched_models):
    path = tmp_path / "facts.tsv"
    path.write_text(
        "relation\tsubject\tobject\ttemplate\n"
        + "".join(f"capital\t{x}\t{y}\t{TEMPLATES['capital'][0]}\n" for x, y in CAPITALS.items())
    )
    measure, corpus = FillIn(str(path)), generate_grammar(5)
    table = measure.run(Reader(knowing, corpus, max_length=24, seed=0, decoder=False), PassOptions())
    assert value(table, layer=2, average="macro")["value"] == 1
    key = describe_measure(measure)
    path.write_text(path.read_text().replace("paris", "rome"))
    assert describe_measure(FillIn(str(path))) != key
    assert measure.why_not(knowing) is None
    translation = matched_models["translation"]
    reader = Reader(translation, corpus, max_length=24, seed=0, decoder=False)
    assert measure.run(reader, PassOptions(corruption=make_objective("translation"))).empty
    assert math.isclose(table["vocabulary"].iloc[0], 6)
