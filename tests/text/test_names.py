"""Test putting given names first."""

import pytest

from app.text import names


@pytest.mark.parametrize(
    ("name", "given_name_first"),
    [
        ("Knuth, Donald E.", "Donald E. Knuth"),
        ("Donald E. Knuth", "Donald E. Knuth"),
        ("King, Martin Luther, Jr.", "Martin Luther King Jr."),
        ("King, Martin Luther Jr.", "Martin Luther King Jr."),
        ("King, Jr., Martin Luther", "Martin Luther King Jr."),
        ("Martin Luther King, Jr.", "Martin Luther King Jr."),
        ("Smith, Jr.", "Smith Jr."),
        ("Gates, William H., III", "William H. Gates III"),
        ("OpenAI, Inc.", "OpenAI Inc."),
        ("OpenAI,inc", "OpenAI inc"),
        ("Google, LLC", "Google LLC"),
        ("Example Holding, plc", "Example Holding plc"),
        ("Example Cloud Computing Co., Ltd.", "Example Cloud Computing Co. Ltd."),
        ("Example, Cloud Computing GmbH", "Example Cloud Computing GmbH"),
        ("Corp, Anna", "Anna Corp"),
        ("Anna Lee (Oxford, UK)", "Anna Lee (Oxford, UK)"),
        ("Lee, Anna (Oxford, UK)", "Anna (Oxford, UK) Lee"),
        ("Lee, Incheon", "Incheon Lee"),
    ],
)
def test_given_name_first(name: str, given_name_first: str) -> None:
    """Suffixes of people and companies stay at the end."""
    assert names.given_name_first(name) == given_name_first
    assert names.words_of_name(name) == names.words_of_name(given_name_first)
    assert names.normalized_name(name) == names.normalized_name(given_name_first)


def test_apostrophes_in_names() -> None:
    """An S after an apostrophe is an initial, not a possessive."""
    assert names.words_of_name("Kumar D'S") == ["kumar", "d", "s"]
    assert names.words_of_name("van't Hoff") == names.words_of_name("van 't Hoff") == ["van", "t", "hoff"]


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("Łukasz Borchmann", "lukasz borchmann"),
        ("Søren Riis", "Soren Riis"),
        ("Yılmaz, İbrahim", "Ibrahim Yilmaz"),
        ("Đorđe Ħorn", "Dorde Horn"),
        ("Matthias Nießner", "MATTHIAS NIESSNER"),
        ("Æsa Þórsdóttir", "Aesa Thorsdottir"),
    ],
)
def test_letters_that_few_keyboards_have(name: str, typed: str) -> None:
    """Sources spell the same person differently, and few readers can type these letters."""
    assert names.words_of_name(name) == names.words_of_name(typed) == typed.lower().split()
    assert sorted(names.words_of_organization(name)) == sorted(typed.lower().split())
    assert names.normalized_name(name) == names.normalized_name(typed)


@pytest.mark.parametrize(
    ("name", "given_name_first"),
    [("Smith, JR", "JR Smith"), ("Ivanov, II", "II Ivanov"), ("García López, S.A.", "S.A. García López")],
)
def test_initials_are_not_suffixes(name: str, given_name_first: str) -> None:
    assert names.given_name_first(name) == given_name_first
