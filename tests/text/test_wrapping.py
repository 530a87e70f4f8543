"""Test the wrapping of the text part of emails."""

import unicodedata

import pytest

from app.text.wrapping import TEXT_WIDTH, wrap

JAPANESE = "大規模言語モデルによる科学論文検索のための、新しい手法「BERT検索」とその評価に関する研究。" * 8
CHINESE = "我们重新审视长上下文（2026年），并提出一种新方法。" * 12


def columns(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in line)


@pytest.mark.parametrize("indent", ["", "    "])
@pytest.mark.parametrize("text", [JAPANESE, CHINESE])
def test_text_without_spaces_is_wrapped(text: str, indent: str) -> None:
    """Its characters are two columns wide. No line begins or ends with a mark that must not be there."""
    lines = wrap(text, indent).split("\n")
    assert "".join(line.removeprefix(indent) for line in lines) == text
    assert all(TEXT_WIDTH - 12 <= columns(line) <= TEXT_WIDTH for line in lines[:-1])
    assert not any(line.removeprefix(indent).startswith(tuple("、。，）」ー")) for line in lines)
    assert not any(line.endswith(tuple("（「")) for line in lines)


def test_korean_is_wrapped_at_spaces() -> None:
    text = "대규모 언어 모델을 이용한 과학 논문 검색 방법 " * 6
    lines = wrap(text).split("\n")
    assert " ".join(lines).split() == text.split()
    assert all(columns(line) <= TEXT_WIDTH for line in lines)


def test_links_in_text_without_spaces_are_kept() -> None:
    """They may contain Chinese or Japanese. The sentence after a link is wrapped."""
    link = "https://ja.wikipedia.org/wiki/人工知能の歴史と機械学習の発展についての詳細な解説ページ"
    lines = wrap(f"詳しくはこの論文のページをご覧ください。詳しくは（{link}、または{link}　{JAPANESE}").split(
        "\n"
    )
    assert "".join(lines).count(link) == sum(line.count(link) for line in lines) == 2
    assert all(columns(line) <= TEXT_WIDTH for line in lines if link not in line)
    assert wrap(f"论文 WWW.example.org/{'论文' * 40}").split("\n")[1:] == [f"WWW.example.org/{'论文' * 40}"]


def test_lines_break_after_ideographic_spaces() -> None:
    """They do not break between two of them."""
    lines = wrap("ABC\u3000\u3000" * 30).split("\n")
    assert len(lines) == 3
    assert all(columns(line) <= TEXT_WIDTH and line.startswith("ABC") for line in lines)


@pytest.mark.parametrize("script", ["論文 ", "papers "])
def test_links_and_no_break_spaces_are_kept(script: str) -> None:
    """A link longer than a line has a line of its own."""
    link = f"https://example.org/{'x' * 80}"
    lines = wrap(f"{script * 3}{link} {script * 14}code ★\N{NO-BREAK SPACE}12").split("\n")
    assert lines[1] == link
    assert any("★\N{NO-BREAK SPACE}12" in line for line in lines)
