"""Which stack reads the text, which predicts, and whose tokens an attention looks at."""

import pytest

from infoflow.models import keys_stack


@pytest.mark.parametrize(
    ("family", "reads", "predicts"),
    [("bert", "encoder", "encoder"), ("gpt2", "decoder", "decoder"), ("bart", "encoder", "decoder")],
)
def test_the_stacks_of_the_text_and_of_the_head(models, family, reads, predicts) -> None:
    anatomy = models(family).anatomy
    assert (anatomy.reads.name, anatomy.predicts.name) == (reads, predicts)
    for attention in anatomy.attentions():
        expected = "encoder" if attention.kind == "cross" else attention.stack
        assert attention.keys_stack == keys_stack(attention.stack, attention.kind) == expected
    kinds = {attention.kind for attention in anatomy.attentions()}
    assert kinds == ({"self", "cross"} if reads != predicts else {"self"})
