import pytest

from infoflow.corpus import split_category


@pytest.mark.parametrize(
    ("category", "left", "right"),
    [
        ("N", "", ""),
        ("NP/N", "", "N"),
        (r"S\NP", "NP", ""),
        (r"(S\NP)/NP", "NP", "NP"),
        (r"S\NP/NP", "NP", "NP"),  # slashes associate to the left
        (r"((S\NP)\(S\NP))/NP", r"S\NP NP", "NP"),
        (r"(NP\NP)/(S/NP)", "NP", "S/NP"),
        (r"((S[dcl]\NP)/PP)/NP", "NP", "NP PP"),
        ("(S/NP)", "", "NP"),
        (r"(N/N)\(N/N)", "N/N", "N"),
        ("", "", ""),
    ],
)
def test_outermost_arguments_are_peeled(category, left, right):
    assert split_category(category) == (left, right)


def test_the_result_can_be_kept():
    assert split_category(r"(S\NP)/NP", keep_result=True) == ("S NP", "S NP")
    assert split_category("N", keep_result=True) == ("N", "N")
