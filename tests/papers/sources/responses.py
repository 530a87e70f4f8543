"""Sample responses with the structure and irregularities of real ones."""

import copy
import json
from typing import Any


def hf_row(arxiv_id: str = "2611.00001", title: str = "Pigeons That Plan", **paper: Any) -> dict[str, Any]:
    """Return a row of Hugging Face Daily Papers."""
    inner = {
        "id": arxiv_id,
        "authors": [
            {"name": "Mei Tanaka", "hidden": False},
            {"name": "Removed At Own Wish", "hidden": True},
            {"name": "Olu Adeyemi", "user": {"user": "olu"}},
        ],
        "publishedAt": "2026-11-17T18:00:00.000Z",
        "submittedOnDailyAt": "2026-11-19T01:21:47.983Z",
        "title": title,
        "summary": "We teach pigeons\nto plan. They gain 25\\% with $\\pi_0$ and keep the <think> tag.",
        "upvotes": 7,
        "organization": {
            "_id": "6",
            "name": "kyoto-birds",
            "fullname": " Kyoto Bird Lab ",
            "avatar": "a.png",
        },
        "submittedOnDailyBy": {"user": "mei", "fullname": "Mei T."},
        "githubRepo": "https://github.com/mei/pigeons",
        "githubStars": 40,
        "ai_keywords": ["planning", "birds"],
    }
    return {
        "paper": inner | paper,
        "publishedAt": "2026-11-16T19:00:00.000Z",  # New York time, but stamped Z: must not be used
        "title": title,
        "numComments": 2,
        "thumbnail": "https://cdn.test/pigeons.png",
        "submittedBy": {"name": "someone-else"},
    }


def hf(*rows: Any) -> str:
    return json.dumps([copy.deepcopy(row) for row in rows])


def api_entry(arxiv_id: str = "2611.00001v2", title: str = "Pigeons That Plan", comment: str = "") -> str:
    """Return an entry of arXiv's query API."""
    return f"""
  <entry>
    <id>http://arxiv.org/abs/{arxiv_id}</id>
    <title>{title}</title>
    <updated>2026-11-18T09:00:00Z</updated>
    <published>2026-11-17T18:00:00Z</published>
    <summary>  We teach pigeons
to plan.</summary>
    <category term="cs.AI"/><category term="cs.RO"/>
    <arxiv:comment>{comment}</arxiv:comment>
    <arxiv:doi>10.1234/Pigeons.1</arxiv:doi>
    <author><name>Mei Tanaka</name></author>
    <author><name>Andr\\'e Adeyemi</name></author>
  </entry>"""


def api(*entries: str, title: str = "arXiv Query: all:pigeons", total: int | None = None) -> str:
    """Return a response of arXiv's query API. By default, it contains all results."""
    results = len(entries) if total is None else total
    return (
        "<?xml version='1.0' encoding='UTF-8'?>\n"
        '<feed xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/" '
        'xmlns:arxiv="http://arxiv.org/schemas/atom" xmlns="http://www.w3.org/2005/Atom">\n'
        f"  <id>https://arxiv.org/api/x</id><title>{title}</title>\n"
        f"  <opensearch:totalResults>{results}</opensearch:totalResults>{''.join(entries)}\n</feed>\n"
    )


API_ERROR = api(
    "<entry><id>https://arxiv.org/api/errors#incorrect_id</id><title>Error</title>"
    "<summary>incorrect id format for abc</summary></entry>"
)


def feed_entry(
    arxiv_id: str = "2611.00001v1", title: str = "Pigeons That Plan", announced: str = "new"
) -> str:
    """Return an entry of arXiv's daily feed."""
    return f"""
  <entry>
    <id>oai:arXiv.org:{arxiv_id}</id>
    <title>{title}</title>
    <link href="https://arxiv.org/abs/{arxiv_id}" rel="alternate"/>
    <summary>arXiv:{arxiv_id} Announce Type: {announced}
Abstract: We teach pigeons to plan.</summary>
    <category term="cs.AI"/>
    <published>2026-11-19T00:00:00-05:00</published>
    <arxiv:announce_type>{announced}</arxiv:announce_type>
    <dc:creator>Mei Tanaka, Andr\\'e Adeyemi</dc:creator>
  </entry>"""


def feed(*entries: str, title: str = "cs.AI updates on arXiv.org") -> str:
    return (
        "<?xml version='1.0' encoding='UTF-8'?>\n"
        '<feed xmlns:arxiv="http://arxiv.org/schemas/atom" xmlns:dc="http://purl.org/dc/elements/1.1/" '
        'xmlns="http://www.w3.org/2005/Atom">\n'
        f"  <id>http://rss.arxiv.org/atom/cs.AI</id><title>{title}</title>{''.join(entries)}\n</feed>\n"
    )


LAB_FEED = """<?xml version="1.0"?>
<feed xmlns="http://www.w3.org/2005/Atom"><id>https://lab.test/feed</id><title>Our Lab</title>
<entry><id>http://arxiv.org/abs/2611.00001</id><title>Pigeons That Plan</title>
<link href="https://arxiv.org/abs/2611.00001"/><summary>Also in https://rss.arxiv.org.</summary></entry>
</feed>
"""

RSS = """<?xml version="1.0"?>
<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><title>Journal of Birds</title>
<item><title>Pigeons That Plan</title><link>https://doi.org/10.1234/Pigeons.1</link>
<description>&lt;p&gt;We teach &amp;amp; test.&lt;/p&gt;</description>
<dc:creator>Mei Tanaka, Olu Adeyemi</dc:creator>
<pubDate>Thu, 19 Nov 2026 22:30:00 -0500</pubDate></item>
<item><title>Owls at Noon</title><link>https://arxiv.org/abs/2611.00002v3</link>
<description>Owls.</description></item>
<item><title></title><link>https://birds.test/untitled</link></item>
</channel></rss>
"""

PAGE = """new

Get trending papers in your email inbox!

Subscribe

Daily Papers

byAK and the research community

Nov 3

Pigeons That Plan: Part I

We teach pigeons to plan, and find that they do it with more patience than most of us. They gain much.

  • 4 authors
·
Jan 24 3

Owls at Noon Without Any Last Lines

Owls are said to sleep at noon. We went to look, and this paper has lost the lines that should follow it.

A Heron's Abstract in Two Pieces

The first piece of this abstract ends with a full stop, and is longer than any title would ever be.

The second piece goes on where the first one stopped, as a list sometimes does on such pages.

  • 1 authors
·
Nov 25, 2024
"""


def oai_record(
    arxiv_id: str = "0704.0001",
    *,
    title: str = "Pigeons That Plan\n  in Large Cities",
    stamp: str = "2008-11-26",
    created: str = "2007-04-02",
    updated: str = "2007-07-24",
    comments: str = "12 pages",
    deleted: bool = False,
) -> str:
    """Return a record of arXiv's OAI-PMH interface in its own format."""
    status = ' status="deleted"' if deleted else ""
    metadata = f"""
      <metadata>
        <arXiv xmlns="http://arxiv.org/OAI/arXiv/">
          <id>{arxiv_id}</id><created>{created}</created>{f"<updated>{updated}</updated>" if updated else ""}
          <authors>
            <author><keyname>Tanaka</keyname><forenames>Mei</forenames></author>
            <author><keyname>Silva</keyname><forenames>Andr\\'e</forenames><suffix>Jr.</suffix></author>
          </authors>
          <title>{title}</title><categories>cs.AI q-bio.NC</categories><comments>{comments}</comments>
          <doi>{"10.1234/birds.1" if arxiv_id == "0704.0001" else ""}</doi>
          <abstract>  We teach pigeons
            to plan in $O(n^2)$.
          </abstract>
        </arXiv>
      </metadata>"""
    return f"""
    <record>
      <header{status}>
        <identifier>oai:arXiv.org:{arxiv_id}</identifier><datestamp>{stamp}</datestamp>
        <setSpec>cs:cs:AI</setSpec>
      </header>{"" if deleted else metadata}
    </record>"""


def oai_page(*records: str, token: str = "") -> str:
    """Return a page of records. The last page has an empty token, or none."""
    return _oai(f"<ListRecords>{''.join(records)}<resumptionToken>{token}</resumptionToken></ListRecords>")


def oai_error(code: str, message: str = "") -> str:
    return _oai(f'<error code="{code}">{message}</error>')


def _oai(content: str) -> str:
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/">
  <responseDate>2026-11-20T09:30:00Z</responseDate>
  <request verb="ListRecords">https://oaipmh.arxiv.org/oai</request>
  {content}
</OAI-PMH>"""
