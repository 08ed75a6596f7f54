"""How tables are printed."""

import pytest

from infoflow.cli import estimate


@pytest.fixture
def printed(capsys, monkeypatch):
    """The lines that `show_table` prints into a pipe."""
    from infoflow.cli import show_table

    def call(*arguments):
        show_table(*arguments)
        return capsys.readouterr().out.splitlines()

    return call


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.5124, 0.4812, 0.5436, "0.512 ± 0.031"),
        (0.5124, 0.4809, 0.5436, "0.512 ± 0.031"),  # symmetric to rounding; the larger half
        (0.998, 0.981, 0.9994, "0.998 [.981, .999]"),
        (-0.009, -0.028, 0.018, "-0.009 [-.028, .018]"),
        (1.407, 0.998, 1.5, "1.407 [.998, 1.500]"),
        (0.9, 0.7, 0.9999, "0.900 [.700, 1.000]"),
        (10.06, 10.02, 10.2, "10.060 [10.020, 10.200]"),
        (0.0, 0.0, 0.0, "0.000 ± 0.000"),
        (0.5, float("nan"), float("nan"), "0.500"),
        (float("nan"), 0.0, 1.0, "–"),
    ],
)
def test_a_symmetric_interval_is_its_half_width(value, low, high, text):
    assert estimate(value, low, high) == text


def test_a_change_has_a_sign():
    assert estimate(0.25, 0.2, 0.3, digits=2, sign="+") == "+0.25 ± 0.05"


def test_what_is_the_same_in_all_rows_is_said_once(printed):
    rows = [["encoder", "0", "0.5 ± 0.1", "0.25"], ["encoder", "1", "0.6 ± 0.1", "0.25"]]
    assert printed(["stack", "layer", "accuracy [95%]", "chance"], rows, "Accuracy") == [
        "Accuracy",
        "stack encoder, chance 0.25, 95% intervals",
        "layer  accuracy",
        "0      0.5 ± 0.1",
        "1      0.6 ± 0.1",
    ]


def test_a_single_row_and_equal_rows_keep_a_column(printed):
    assert printed(["a", "b"], [["1", "2"]]) == ["a  b", "1  2"]
    assert printed(["a", "b"], [["1", "2"], ["1", "2"]]) == ["a 1", "b", "2", "2"]


def test_a_column_without_values_and_a_table_without_rows_are_left_out(printed):
    assert printed(["a", "b"], [["1", "–"], ["2", "–"]]) == ["a", "1", "2"]
    assert printed(["a", "b"], [], "Roles held") == ["Roles held: none."]
    assert printed(["a", "b"], []) == []


def test_long_names_and_texts_wrap_and_numbers_stay_whole(printed):
    name = "an-organisation-with-a-long-name/a-model-with-an-even-longer-name-and-its-size-3b-instruct-v0.3"
    claim = "A masked language model first loses and then recovers the identity of its input token. " * 3
    numbers = ["0.512 [.480, .545]", "-12.345 ± 0.031", "1,234,567"]
    rows = [[f"{name}-{number}", *numbers, claim + str(number)] for number in range(3)]
    lines = printed(["model", "accuracy [95%]", "change", "tokens", "claim"], [[*row[:-1], row[-1]] for row in rows])
    assert max(map(len, lines)) <= 100
    lines = printed(
        ["model", "accuracy", "claim"], [[row[0], f"0.{place} [.480, .545]", row[-1]] for place, row in enumerate(rows)]
    )
    assert max(map(len, lines)) <= 100
    assert sum("[.480, .545]" in line for line in lines) == 3
    words = " ".join(line[60:] for line in lines).split()
    assert "recovers" in words, "texts wrap between words"


def test_many_columns_of_numbers_lose_nothing(printed):
    rows = [[f"{row}.{place:02} [.480, .545]" for place in range(9)] for row in range(2)]
    lines = printed([f"way {place}" for place in range(9)], rows)
    assert max(map(len, lines)) <= 100
    text = "".join(lines)
    assert text.count(".480,") == text.count(".545]") == 18


def test_wide_letters_count_twice(printed):
    from rich.cells import cell_len

    lines = printed(["word", "text"], [["猫" * 30, "犬は走る " * 30], ["cat", "dogs run " * 30]])
    assert max(map(cell_len, lines)) <= 100
