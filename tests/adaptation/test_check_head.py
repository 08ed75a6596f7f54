"""A head that does not fit its task is refused before anything is trained."""

import pytest

from infoflow.foundation import UserError


@pytest.fixture
def classes():
    from infoflow.adaptation import Classification

    return Classification(task="t", labels=("x", "y"))


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart", "t5"])
def test_heads_of_every_family_fit(family, headed, classes, vocabulary):
    from infoflow.adaptation import Choice, Regression, check_head

    head = "AutoModelForSequenceClassification"
    check_head(classes, headed(family, head), vocabulary)
    check_head(Regression(task="t", mean=0.0, deviation=1.0), headed(family, head, num_labels=1), vocabulary)
    check_head(Choice(task="t"), headed("bert", "AutoModelForMultipleChoice"), vocabulary)


def test_another_number_or_order_of_labels(headed, classes, vocabulary):
    from infoflow.adaptation import check_head

    head = "AutoModelForSequenceClassification"
    with pytest.raises(
        UserError, match=r"The head must have 2 outputs, one for each label of t\. .* has 3\.\n"
    ) as told:
        check_head(classes, headed("bert", head, num_labels=3), vocabulary)
    assert "For a new head load it with num_labels=2, ignore_mismatched_sizes=True; to keep this one" in str(told.value)
    module = headed("bert", head, id2label={0: "y", 1: "x"})
    with pytest.raises(UserError, match=r'in another order than those of t: "y", "x"'):
        check_head(classes, module, vocabulary)


def test_a_head_that_reads_no_text(headed, classes, vocabulary):
    from infoflow.adaptation import check_head

    with pytest.raises(UserError, match="says the same of every text of t: its head reads the first token"):
        check_head(classes, headed("causal-bert", "AutoModelForSequenceClassification"), vocabulary)


def test_padding_that_the_head_takes_for_text(headed, classes, vocabulary):
    from infoflow.adaptation import check_head

    module = headed("gpt2", "AutoModelForSequenceClassification", pad_token_id=vocabulary.mask).train()
    with pytest.raises(UserError, match=f"pad_token_id {vocabulary.mask}, the tokenizer {vocabulary.pad}"):
        check_head(classes, module, vocabulary)
    assert module.training
