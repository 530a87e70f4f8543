"""Test RSS and Atom feeds. Papers are recognised by their links."""

from datetime import date

import pytest

from app.errors import UnreadableResponse
from app.papers.sources import feed
from tests.papers.sources import responses

DAY = date(2026, 11, 20)


def test_ids_in_links() -> None:
    """One entry has a DOI, one an arXiv id; the entry without a title is rejected."""
    parsed = feed.parse(responses.RSS, DAY)
    first, second = parsed.records
    assert (first.doi, first.arxiv_id) == ("10.1234/pigeons.1", "")
    assert (second.arxiv_id, second.version) == ("2611.00002", 3)
    assert [(r.reason, r.row) for r in parsed.rejections] == [("the entry has no title", 3)]


@pytest.mark.parametrize(
    ("link", "url"),
    [
        ("/owls", "https://lab.test/owls"),
        ("owls?page=2", "https://lab.test/feeds/owls?page=2"),
        ("//other.test/owls", "https://other.test/owls"),
        ("https://other.test/owls", "https://other.test/owls"),
        ("www.other.test/owls", "https://www.other.test/owls"),
        ("mailto:alice@lab.test", ""),
        ("//[owls", ""),
        (f"/{'owls' * 497}", ""),
        ("", ""),
    ],
)
def test_relative_link(link: str, url: str) -> None:
    """It is resolved against the address of the feed."""
    text = f"<rss><channel><item><title>Owls</title><link>{link}</link></item></channel></rss>"
    [record] = feed.parse(text, DAY, base_url="https://lab.test/feeds/new.xml").records
    assert record.url == url


@pytest.mark.parametrize(
    ("elements", "url"),
    [
        ("<guid>post-55</guid>", ""),
        ("<guid>post-55</guid><enclosure url='https://lab.test/owls.mp3'/>", ""),
        ("<guid>https://lab.test/owls</guid>", "https://lab.test/owls"),
        ("<guid>post-55</guid><link>/owls</link>", "https://lab.test/owls"),
        ("<link>/owls</link><guid isPermaLink='false'>post-55</guid>", "https://lab.test/owls"),
        ("<guid>10.1234/owls.1</guid>", ""),
        ("<link>10.1234/owls.1</link>", ""),
        ("<link>doi:10.1234/owls.1</link>", ""),
        ("<link>https://lab.test/10.1234/owls.1</link>", "https://lab.test/10.1234/owls.1"),
        ("<link>/doi/10.1234/owls.1</link>", "https://lab.test/doi/10.1234/owls.1"),
        ("<link>/owls</link><guid>10.1234/owls.1</guid>", "https://lab.test/owls"),
    ],
)
def test_ids_are_no_relative_links(elements: str, url: str) -> None:
    """The address of a paper without a link is that of its DOI."""
    text = f"<rss><channel><item><title>Owls</title>{elements}</item></channel></rss>"
    [record] = feed.parse(text, DAY, base_url="https://lab.test/feeds/new.xml").records
    assert record.url == url
    assert record.doi == ("10.1234/owls.1" if "10.1234" in elements else "")


@pytest.mark.parametrize(
    ("declared", "actual"),
    [
        ("UTF-8", "utf-8"),
        ("utf-8", "utf-8-sig"),
        ("ISO-8859-1", "cp1252"),
        ("windows-1252", "cp1252"),
        ("ISO-8859-1", "utf-8"),  # wrong
        ("UTF-16", "utf-16"),
        ("unicode_escape", "utf-8"),
    ],
)
def test_encodings(declared: str, actual: str) -> None:
    """Valid UTF-8 is read as such. Other bytes are decoded as their mark or the declaration says."""
    title = "Schrödinger’s owl"
    entry = f"<item><title>{title}</title><link>https://a.test/1</link></item>"
    answer = f'<?xml version="1.0" encoding="{declared}"?><rss version="2.0"><channel>{entry}</channel></rss>'
    [record] = feed.parse(answer.encode(actual), DAY).records
    assert record.title == title


@pytest.mark.parametrize(
    ("declaration", "content_type", "actual"),
    [
        ("", "application/rss+xml; charset=ISO-8859-1", "cp1252"),
        ("", 'text/xml;charset="windows-1252"', "cp1252"),
        ("", "text/xml; charset=utf-16", "utf-8"),
        ("", "text/xml; charset=ISO-8859-1", "utf-8"),  # wrong
        ('<?xml version="1.0" encoding="windows-1252"?>', "text/xml; charset=windows-1251", "cp1252"),
    ],
)
def test_encoding_in_the_header(declaration: str, content_type: str, actual: str) -> None:
    """It applies to a feed that is not UTF-8 and declares no encoding itself."""
    entry = "<item><title>Étude des réseaux</title><link>https://a.test/1</link></item>"
    answer = f'{declaration}<rss version="2.0"><channel>{entry}</channel></rss>'
    [record] = feed.parse(answer.encode(actual), DAY, content_type).records
    assert record.title == "Étude des réseaux"


@pytest.mark.parametrize("encoding", ["UTF-8", "unicode_escape", ""])
def test_encoding_in_the_header_does_not_replace_the_declared_one(encoding: str) -> None:
    """Only the invalid byte is replaced, and the rest is still read as UTF-8."""
    entry = "<item><title>Étude X</title><link>https://a.test/1</link></item>"
    answer = f'<?xml version="1.0" encoding="{encoding}"?><rss version="2.0"><channel>{entry}</channel></rss>'
    invalid = answer.encode().replace(b"X", b"\xff")
    [record] = feed.parse(invalid, DAY, "text/xml; charset=ISO-8859-1").records
    assert record.title == "Étude \N{REPLACEMENT CHARACTER}"


def test_invalid_bytes_are_replaced() -> None:
    answer = responses.RSS.encode().replace(b"Owls.", b"Owls\xff.")
    assert feed.parse(answer, DAY).records[1].abstract == "Owls\N{REPLACEMENT CHARACTER}."


def test_markup_and_dates() -> None:
    """22:30 in New York is the next day in UTC."""
    first, second = feed.parse(responses.RSS, DAY).records
    assert first.abstract == "We teach & test."
    assert first.authors == ("Mei Tanaka", "Olu Adeyemi")
    assert first.listed_on == date(2026, 11, 20)
    assert second.listed_on == DAY, "an entry without a date is of the day it was read"


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (
            "less (p < 0.05), and the effect (d > 0.8) lasted",
            "less (p < 0.05), and the effect (d > 0.8) lasted",
        ),
        ("if a<b and c>d, or p<.05 and q>.1", "if a<b and c>d, or p<.05 and q>.1"),
        ("of <|high|> and <1 reward>", "of <|high|> and <1 reward>"),
        ("H<sub>2</sub>O <i class='x'>in vivo</i>", "H2O in vivo"),
        ("<p>Owls.</p><p>Noon<br/>nap <a href='https://a.test/'>here</a></p>", "Owls. Noon nap here"),
        ("<table><tr><td nowrap>Owls</td></tr></table><HR noshade>nap", "Owls nap"),
        ("<select multiple disabled><option selected>Owls</select>", "Owls"),
        ("<p data-v-7ba5bd90>Owls<input hidden />nap</p>", "Owls nap"),
        (
            "an <input text>, a <title of it>, if x<p is open>y",
            "an <input text>, a <title of it>, if x<p is open>y",
        ),
        ("bees & <flowers>, <think> and </think>", "bees & <flowers>, <think> and </think>"),
        ("<my-note>Owls</my-note> <o:p>nap</o:p> <flowers colour='red'>now", "Owls nap now"),
        ("<!-- ad --><?x?><mml:math><mml:mi>x</mml:mi></mml:math>", "x"),
    ],
)
def test_only_markup_is_removed(markup: str, text: str) -> None:
    """Abstracts in plain text have comparison signs. Tags within a word leave no space."""
    answer = responses.RSS.replace("Owls.", f"<![CDATA[{markup}]]>")
    assert feed.parse(answer, DAY).records[1].abstract == text


@pytest.mark.parametrize(
    ("creators", "authors"),
    [
        (["Müller, Anna", "Smith, Ben"], ("Anna Müller", "Ben Smith")),
        (["Müller, Anna"], ("Anna Müller",)),
        (["van der Berg, Anna"], ("Anna van der Berg",)),
        (["Anna Müller, Ben Smith"], ("Anna Müller", "Ben Smith")),
        (["King, Martin Luther, Jr.", "Ben Smith"], ("Martin Luther King Jr.", "Ben Smith")),
        (["Anna"], ("Anna",)),
        (["OpenAI, Inc."], ("OpenAI Inc.",)),
        (["Anna Müller, OpenAI, Inc."], ("Anna Müller", "OpenAI Inc.")),
        (["OpenAI, Inc., Anna Müller"], ("OpenAI Inc.", "Anna Müller")),
        (["King, Martin Luther, Jr."], ("Martin Luther King Jr.",)),
        (["Smith, J., Doe, A. B., van der Berg, C.-D."], ("J. Smith", "A. B. Doe", "C.-D. van der Berg")),
        (["Smith, J."], ("J. Smith",)),
        (["Smith, J. and Doe, Yu. B."], ("J. Smith", "Yu. B. Doe")),
        (["King, M. L., Jr., Doe, A."], ("M. L. King Jr.", "A. Doe")),
        (["Smith, J., Doe, A., Example Consortium"], ("J. Smith", "A. Doe", "Example Consortium")),
        (["Mei Tanaka, Olu Adeyemi and Anna Lee"], ("Mei Tanaka", "Olu Adeyemi", "Anna Lee")),
        (["Mei Tanaka, Olu Adeyemi, and Anna Lee"], ("Mei Tanaka", "Olu Adeyemi", "Anna Lee")),
        (["Mei Tanaka and Anna Lee"], ("Mei Tanaka", "Anna Lee")),
        (["Müller, Anna and Tanaka, Mei"], ("Anna Müller", "Mei Tanaka")),
        (["Müller, Anna; Tanaka, Mei; Silva, José;"], ("Anna Müller", "Mei Tanaka", "José Silva")),
        (["Mei Tanaka; Olu Adeyemi; and Plato"], ("Mei Tanaka", "Olu Adeyemi", "Plato")),
        (["Müller, Anna; Plato"], ("Anna Müller", "Plato")),
        (["Mei Tanaka; Olu Adeyemi and Anna Lee"], ("Mei Tanaka", "Olu Adeyemi", "Anna Lee")),
        (["Smith, J.; Doe, A. and Lee, B."], ("J. Smith", "A. Doe", "B. Lee")),
        (["Smith, J.; Doe, A., &amp;amp; Lee, B."], ("J. Smith", "A. Doe", "B. Lee")),
        (["Mei Tanaka (MIT; Stanford), Bo Li (Oxford)"], ("Mei Tanaka (MIT; Stanford)", "Bo Li (Oxford)")),
        (["Mei Tanaka (MIT, USA); Bo Li"], ("Mei Tanaka (MIT, USA)", "Bo Li")),
        (["Mei Tanaka (MIT, USA), Bo Li"], ("Mei Tanaka (MIT, USA)", "Bo Li")),
        (["张伟；李娜"], ("张伟", "李娜")),
        (["张伟、李娜"], ("张伟", "李娜")),
        (["张伟，李娜"], ("张伟", "李娜")),
        (["Mei Tanaka &amp;amp; Bo Li"], ("Mei Tanaka", "Bo Li")),
        (["Mei Tanaka, Example Group &amp;amp; Bo Li"], ("Mei Tanaka", "Example Group", "Bo Li")),
        (["Texas A &amp;amp; M University"], ("Texas A & M University",)),
        (["Siemens Research &amp;amp; Development Center"], ("Siemens Research & Development Center",)),
        (["Texas A &amp;amp; M University; Bo Li"], ("Texas A & M University", "Bo Li")),
        (["Jos&amp;eacute; Silva"], ("José Silva",)),
        (["&lt;b&gt;Mei Tanaka&lt;/b&gt;", "Bo Li"], ("Mei Tanaka", "Bo Li")),
        (
            ["García López, Juan Carlos, and Smith, J. and van der Berg, Anna"],
            ("Juan Carlos García López", "J. Smith", "Anna van der Berg"),
        ),
        (["Microsoft Research and Bo Li"], ("Microsoft Research", "Bo Li")),
        (["Bo Li and Google Research Team"], ("Bo Li", "Google Research Team")),
        (["Mei Tanaka and the BigScience Team"], ("Mei Tanaka", "the BigScience Team")),
        (["Mei Tanaka &amp;amp; Stanford University"], ("Mei Tanaka", "Stanford University")),
        (["Bell Labs, Bo Li and Google Research"], ("Bell Labs", "Bo Li", "Google Research")),
        (
            ["Bo Li, Siemens Research &amp;amp; Development Center"],
            ("Bo Li", "Siemens Research & Development Center"),
        ),
        (["Center for Data Science and Machine Learning"], ("Center for Data Science and Machine Learning",)),
        (["Research and Development Group"], ("Research and Development Group",)),
        (["Institute of Physics and Data Science"], ("Institute of Physics and Data Science",)),
    ],
)
def test_given_names_come_first(creators: list[str], authors: tuple[str, ...]) -> None:
    """Repositories such as DSpace put the family name first. A single element may contain several names."""
    elements = "".join(f"<dc:creator>{name}</dc:creator>" for name in creators)
    text = responses.RSS.replace("<dc:creator>Mei Tanaka, Olu Adeyemi</dc:creator>", elements)
    assert feed.parse(text, DAY).records[0].authors == authors


def test_long_list_of_names_in_one_element() -> None:
    """All names are read, although a name is cut to NAME_CHARS characters."""
    names = [f"Mei Tanaka {number}" for number in range(60)]
    text = responses.RSS.replace("Mei Tanaka, Olu Adeyemi", ", ".join(names))
    (first, _) = feed.parse(text, DAY).records
    assert (first.authors, first.author_count) == (tuple(names), 60)


def test_arxiv_replacements_are_not_listings() -> None:
    """arXiv's RSS marks them, too."""
    text = responses.feed(responses.feed_entry(), responses.feed_entry("2611.00002v2", announced="replace"))
    assert [record.listed_on for record in feed.parse(text, DAY).records] == [date(2026, 11, 19), None]


def test_truncated_feed() -> None:
    """The incomplete entry does not become a paper."""
    parsed = feed.parse(responses.RSS[: responses.RSS.index("Owls.")], DAY)
    assert [record.title for record in parsed.records] == ["Pigeons That Plan"]
    assert [(r.reason, r.row) for r in parsed.rejections] == [("the response was cut off", None)]


@pytest.mark.parametrize(
    "answer",
    [
        "<html><form>Password</form></html>",
        "",
        "no markup at all",
        "<svg/>",
        '<!DOCTYPE r [<!ENTITY a "ha">]>' + responses.RSS,
        '<!DOCTYPE r SYSTEM "<!--" [<!ENTITY a "ha">]>' + responses.RSS,
        '<!DOCTYPE r SYSTEM "<!--" [<!ENTITY a "ha">]><!-- -->' + responses.RSS,
        '<!-- <![CDATA[ --><!DOCTYPE r [<!ENTITY a "ha">]><!-- ]]> -->' + responses.RSS,
    ],
)
def test_response_that_is_not_a_feed(answer: str) -> None:
    """The answers are a login page, an empty text and entity bombs."""
    with pytest.raises(UnreadableResponse):
        feed.parse(answer, DAY)


def test_quoted_entity_declaration() -> None:
    """An abstract may describe an attack on parsers. It declares no entity."""
    abstract = '<description><![CDATA[We send <!DOCTYPE r [<!ENTITY a "ha">]> to parsers.]]></description>'
    entry = f"<item><title>XML Attacks</title><link>https://a.test/1</link>{abstract}</item>"
    [record] = feed.parse(f"<rss><channel>{entry}</channel></rss>", DAY).records
    assert record.abstract.startswith("We send")
    assert record.abstract.endswith("to parsers.")


def test_arxiv_doi() -> None:
    """Publishers' feeds have it as 10.48550/arXiv.X."""
    text = responses.RSS.replace("10.1234/Pigeons.1", "10.48550/arXiv.2611.00007")
    assert feed.parse(text, DAY).records[0].arxiv_id == "2611.00007"
    assert feed.parse(text, DAY).records[0].doi == ""


def test_version_of_a_preprint_is_not_part_of_its_doi() -> None:
    """bioRxiv's feed states the DOI, and links to a version."""
    link = "https://www.biorxiv.org/content/10.1101/2026.11.01.512345v1?rss=1"
    linked = responses.RSS.replace("https://doi.org/10.1234/Pigeons.1", link)
    stated = linked.replace(f"<link>{link}", f"<prism:doi>10.1234/stated.1/full</prism:doi><link>{link}")
    assert feed.parse(linked, DAY).records[0].doi == "10.1101/2026.11.01.512345"
    assert feed.parse(stated, DAY).records[0].doi == "10.1234/stated.1/full"


def test_missing_or_invalid_date() -> None:
    """This also holds if the date of the entry cannot be parsed."""
    assert dated("the day before the feast") == DAY


@pytest.mark.parametrize(
    "zero",
    [
        "Mon, 01 Jan 0001 00:00:00 +0000",
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "0001-01-01T00:00:00Z",
        "0000-00-00",
        "1969-12-31",
        "Mon, 01 Jan 1900 00:00:00 GMT",
        "-0001-11-30T00:00:00+00:00",
    ],
)
def test_zero_time_is_no_date(zero: str) -> None:
    """Some programs write a zero time if they have no date. Such an entry would never be sent."""
    assert dated(zero) == DAY


@pytest.mark.parametrize(
    ("period", "listed_on"),
    [
        ("2026-11", DAY),
        ("2026 Nov", DAY),
        ("2026/11", DAY),
        (" 2026-10 ", date(2026, 10, 31)),
        ("2026", DAY),
        ("2027-01", DAY),
        ("2026-10", date(2026, 10, 31)),
        ("2024-02", date(2024, 2, 29)),
        ("2025", date(2025, 12, 31)),
    ],
)
def test_period_is_no_day(period: str, listed_on: date) -> None:
    """A journal that names only the month of an issue lists its papers during that month."""
    assert dated(period) == listed_on


@pytest.mark.parametrize(
    ("period", "updated", "listed_on"),
    [
        ("2024", "2026-11-20T01:00:00Z", date(2024, 12, 31)),
        ("2026-11", "2026-11-02T01:00:00Z", date(2026, 11, 2)),
        ("2026-10", "2026-11", date(2026, 10, 31)),
    ],
)
def test_update_within_or_after_a_period(period: str, updated: str, listed_on: date) -> None:
    """Some feeds renew the time of the update of every entry. Their old entries are not new."""
    entry = f"<published>{period}</published><updated>{updated}</updated>"
    text = f"<feed><entry><title>Owls</title>{entry}</entry></feed>"
    assert feed.parse(text, DAY).records[0].listed_on == listed_on


def dated(text: str) -> date | None:
    """Return the day on which an entry with this date counts as listed."""
    feed_text = responses.RSS.replace("Thu, 19 Nov 2026 22:30:00 -0500", text)
    record = feed.parse(feed_text, DAY).records[0]
    assert record.as_of == record.listed_on
    return record.listed_on
