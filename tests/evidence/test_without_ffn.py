"""Answers without one block's FFN: against a forward pass written out, row by row and block by block."""

import numpy as np
import pytest
import torch
from retrieval.tiny_arms import tiny_reader, tiny_world

from infoflow.evidence import TokenPart, fact_inputs, knowledge, knowledge_without_ffn


def outputs(reader, ids, segments, layer=None, places=None, mean=None):
    """The FFN output of every block, (block, token, width), and the logits; that of `layer` replaced at `places`."""
    state = reader.bert.embeddings(input_ids=ids, token_type_ids=segments)
    found = []
    for index, block in enumerate(reader.bert.encoder.layer):
        attended = block.attention(state)[0]
        ffn = block.output.dense(block.intermediate(attended))
        found.append(ffn[0])
        if index == layer:
            ffn = ffn.clone()
            ffn[0, places] = mean
        state = block.output.LayerNorm(ffn + attended)
    return torch.stack(found), reader.cls(state)[0]


@pytest.mark.parametrize("document", ["none", "gold"])
@torch.no_grad()
def test_each_number_equals_a_pass_written_out(document):
    world, tokenizer, _ = tiny_world()
    reader = tiny_reader().eval()
    for parameter in reader.parameters():
        parameter.mul_(3)
    options = {"kinds": ("trained",), "documents": (document,)}
    table = knowledge_without_ffn(reader, world, tokenizer, **options)
    inputs = fact_inputs(world, tokenizer, world.of_kind("trained"), document)
    number = tokenizer.get_vocab()
    rows = []
    for ids, segments, parts in zip(inputs.input_ids, inputs.token_type_ids, inputs.parts, strict=True):
        real = parts != TokenPart.PAD
        rows.append((torch.from_numpy(ids[real])[None], torch.from_numpy(segments[real])[None], parts[real]))
    plain = [outputs(reader, ids, segments)[0] for ids, segments, _ in rows]
    for places in ("subject", "all"):
        chosen = [parts == TokenPart.SUBJECT if places == "subject" else parts >= 0 for _, _, parts in rows]
        for layer in (0, 1):
            every = [ffn[layer][torch.from_numpy(where)] for ffn, where in zip(plain, chosen, strict=True)]
            mean = torch.cat(every).mean(dim=0)
            nats = []
            for (ids, segments, parts), where, fact in zip(rows, chosen, inputs.facts, strict=True):
                logits = outputs(reader, ids, segments, layer, torch.from_numpy(where), mean)[1]
                logs = logits.double().log_softmax(-1).numpy()
                masks = np.flatnonzero(parts == TokenPart.MASK)
                scores = [
                    sum(logs[place, number[word]] for place, word in zip(masks, answer.split(), strict=True))
                    for answer in world.answers(fact.relation)
                ]
                nats.append(np.log(np.exp(scores).sum()) - scores[fact.object])
            here = table[(table.layer == layer) & (table.places == places) & (table.weight == -1)]
            assert here[here.metric == "nats"].value.item() == pytest.approx(np.mean(nats), abs=1e-5)
    assert {*table.reading} == {"without-ffn"}


def test_withheld_facts_are_asked_without_a_document_alone():
    world, tokenizer, _ = tiny_world()
    table = knowledge_without_ffn(
        tiny_reader().eval(), world, tokenizer, kinds=("withheld",), documents=("none", "gold")
    )
    assert set(table["document"]) == {"none"}
    assert set(table["facts"]) == {"withheld"}


def test_the_subject_says_nothing_to_the_mask_behind_the_last_attention():
    world, tokenizer, _ = tiny_world()
    reader = tiny_reader().eval()
    table = knowledge_without_ffn(reader, world, tokenizer, kinds=("trained",))
    last = table[(table.layer == 1) & (table.places == "subject") & (table.metric == "nats")]
    plain = knowledge(reader, world, tokenizer, documents=("none",), facts=world.of_kind("trained"))
    wanted = plain[plain.metric == "nats"]
    np.testing.assert_allclose(last.value.to_numpy(), wanted.value.to_numpy(), atol=1e-6)
    np.testing.assert_allclose(np.stack(last.replicates), np.stack(wanted.replicates), atol=1e-6)
    assert not reader.bert.encoder.layer[0].output.dense._forward_hooks  # nothing is left behind
