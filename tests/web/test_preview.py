"""Test the preview of a digest before sign-up."""

import gzip
import html
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlmodel import func, select

from app import clock, main, pipeline, subscribers
from app.application import Application
from app.errors import TooManyRequests
from app.links import Purpose
from app.storage.models import Delivery, Event, FormSubmission, InterestQuery, Paper, Source, Subscriber
from app.subscribers import Preferences
from app.types import Digest, Interest, Section
from app.web import forms, preview, templating
from app.web.capacity import WorkSlots
from app.web.preview import Previews
from tests.support import factories, sample_digest
from tests.web.conftest import Link

AGENTS, VIDEO = "Language Agents that <think> in $\\mathbb{R}^n$", "Video Diffusion in Real Time"
AGENT = Preferences(interests=(Interest("agents"),))
SCRIPT = {"HX-Request": "true"}
FORM = {"email": "carol@example", "interest": ["language agents", "", "cooking"], "cadence": "weekly",
        "weekday": "2", "hour": "7", "zone": "Asia/Tokyo", "liked": "Attention Is All You Need"}  # fmt: skip


@pytest.fixture
def sample_papers(app: Application) -> None:
    """Add two papers of today, and one on agents on each of the three days before."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.add_source(session, now)
        for title in (AGENTS, VIDEO):
            factories.add_paper(
                session,
                source,
                title,
                now.date(),
                now,
                abstract=f"{title}, at last.",
                organization_names=["NVIDIA"],
            )
        for back in (1, 2, 3):
            day = now - timedelta(days=back)
            factories.add_paper(session, source, f"Language Agents, Part {4 - back}", day.date(), day)


@pytest.fixture
def papers_of_a_week(app: Application, sample_papers: None) -> None:
    """Add a paper on cooking on each of the three days before those of `sample_papers`."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.add_source(session, now, "A feed")
        for back in (4, 5, 6):
            day = now - timedelta(days=back)
            factories.add_paper(session, source, f"Cooking, Part {back}", day.date(), day)


def preview_fragment(client: TestClient, *interests: str) -> str:
    """Return the HTML that a script gets."""
    answer = client.post("/preview", data={"interest": interests}, headers=SCRIPT)
    assert answer.status_code == 200
    return answer.text


@pytest.mark.usefixtures("sample_papers")
def test_preview_lists_papers_by_interest(client: TestClient) -> None:
    """The best paper's section comes first. Titles are escaped, their words marked, and votes are shown."""
    fragment = preview_fragment(client, "language agents", "video diffusion")
    assert "Preview of your digest" in fragment
    video = VIDEO.replace("Video Diffusion", "<mark>Video Diffusion</mark>")
    assert fragment.index("<mark>Language Agents</mark> that &lt;think&gt;") < fragment.index(video)
    assert '<p class="v">10 <small>votes</small></p>' in fragment
    assert "in the title" not in fragment  # the marks show it
    assert "style=" not in fragment  # the Content-Security-Policy forbids it
    assert "Today’s digest would have 5 papers." in fragment
    assert "<html" not in fragment


@pytest.mark.once
@pytest.mark.parametrize(
    ("counts", "quota", "crowded", "expected"),
    [
        ({"agents": 4, "video": 1}, None, {"agents", "video"}, "agents"),
        ({"agents": 2, "video": 3}, 2, {"agents"}, "video"),
        ({"agents": 4, "video": 1}, None, {"agents"}, None),  # the digest has all papers of the others
        ({"agents": 5}, None, {"agents"}, None),
        ({"agents": 3, "": 2}, None, set(), None),  # nothing that matches is left out
        ({"agents": 4, "video": 1}, 4, {"agents", "video"}, None),  # the subscriber has set a maximum already
        ({"agents": 2, "video": 2}, None, {"agents", "video"}, None),
        ({"": 5}, None, {"agents"}, None),
    ],
)
def test_largest_section_is_named_if_others_lack_room(
    counts: dict[str, int], quota: int | None, crowded: set[str], expected: str | None
) -> None:
    item = sample_digest.digest("2026-11-20").picks[0]
    digest = Digest("2026-11-20", tuple(Section(text, (item,) * count) for text, count in counts.items()))
    interests = (Interest("agents", quota=quota), Interest("video"))
    section = preview.largest_section(digest, interests, crowded)
    assert (section and section.interest) == expected


@pytest.mark.usefixtures("papers_of_a_week")
@pytest.mark.parametrize(
    ("other", "max_papers", "hint"),
    [
        (
            "cooking",
            3,
            "2 of the 3 papers in the preview are for this interest. To leave room for the others, enter",
        ),
        ("cooking", 10, ""),
        ("video", 5, ""),  # the digest has the only paper on videos
        ("beekeeping", 3, ""),
    ],
)
def test_a_maximum_is_suggested_if_papers_of_others_are_left_out(
    app: Application, client: TestClient, link: Link, other: str, max_papers: int, hint: str
) -> None:
    chosen = Preferences(interests=(Interest("language agents"), Interest(other)), max_papers=max_papers)
    with app.db.write() as session:
        dora = subscribers.add(session, "dora@example.org", chosen, clock.utcnow())
    page = client.get(f"{link(Purpose.PREFERENCES, dora)}/preview").text
    assert hint in page
    assert ("papers in the preview" in page) == bool(hint)


@pytest.mark.usefixtures("sample_papers")
def test_preview_counts_papers_per_interest_and_day(client: TestClient) -> None:
    """The daily counts are also given as text for screen readers."""
    fragment = preview_fragment(client, "language agents", "cooking")
    assert re.findall(r'role="img" aria-label="Papers per day: ([\d, ]+)"', fragment) == [
        "0, " * 10 + "1, 1, 1, 1",
        "0, " * 13 + "0",
    ]
    assert "4 in the 4 days known so far" in fragment
    assert "none" in fragment


@pytest.mark.parametrize(
    ("total", "days", "words"),
    [
        (0, 10, "none"),
        (1, 10, "1 in two weeks"),
        (2, 10, "2 in two weeks"),
        (5, 10, "5 in two weeks"),
        (10, 10, "about 1 a day"),
        (31, 10, "about 3 a day"),
        (290, 10, "about 29 a day: the best are sent"),
        (3, 1, "3 on the one day known so far"),
        (3, 4, "3 in the 4 days known so far"),
    ],
)
def test_counts_are_described_in_words(total: int, days: int, words: str) -> None:
    """Days without any papers do not count."""
    assert preview.in_words([total] + [0] * 13, days) == words


@pytest.mark.usefixtures("sample_papers")
def test_topic_is_added_to_the_interests(client: TestClient) -> None:
    """A button in the form does so without scripts, once, if there is room."""
    page = client.get("/").text
    assert '<button class="small quiet" name="add" value="Language Agents" formaction="/preview#' in page
    for typed, added in (("video", ["video", "Language Agents"]), ("Language Agents", ["Language Agents"])):
        answer = client.post("/preview", data={"interest": typed, "add": "Language Agents"}).text
        assert re.findall('name="interest" value="([^"]+)"', answer) == added
    full = [f"topic {number}" for number in range(20)]
    answer = client.post("/preview", data={"interest": full, "add": "Agents"}).text
    assert re.findall('name="interest" value="([^"]+)"', answer) == full


@pytest.mark.usefixtures("sample_papers")
def test_suggested_interest_replaces_the_typed_one(client: TestClient, alice: int, link: Link) -> None:
    """One button does so, without scripts, in the sign-up form and in the preferences."""
    typed = ["video", "langauge agents"]
    for path in ("/preview", link(Purpose.PREFERENCES, alice) + "/preview"):
        page = client.post(path, data={"interest": typed}).text
        [button] = re.findall('<button[^>]*name="change"[^>]*>', page)
        assert f'formaction="{path}#interests"' in button
        change = html.unescape(re.findall('value="([^"]*)"', button)[0])
        assert change == "langauge agents\tlanguage agents"
        accepted = client.post(path, data={"interest": typed, "change": change}).text
        assert re.findall('name="interest" value="([^"]+)"', accepted) == ["video", "language agents"]
        assert "Did you mean" in page
        assert "Did you mean" not in accepted


@pytest.mark.usefixtures("sample_papers")
def test_interest_without_papers_is_told_so(client: TestClient) -> None:
    """The page offers topics that the archive has, and fewer words only if these bring papers."""
    fragment = preview_fragment(client, "<beekeeping>", "модели", "how do agents work?")
    assert "No recent paper mentions <q>beekeeping</q>." in fragment
    assert fragment.count("The most frequent topics: ") == 1
    assert "Titles and abstracts are in English. Please write this interest in English." in fragment
    assert re.findall("This shorter interest matches papers: .*<bdi>(.*)</bdi>", fragment) == ["agents"]
    assert "try fewer" not in fragment
    assert "No recent paper mentions <q>C++</q>." in preview_fragment(client, "C++")


@pytest.mark.usefixtures("sample_papers")
def test_operators_of_other_search_engines_are_explained(client: TestClient, alice: int, link: Link) -> None:
    """One button writes NOT as an exclusion, another one splits at OR. Words in lower case are words."""
    for path in ("/preview", link(Purpose.PREFERENCES, alice) + "/preview"):
        page = client.post(path, data={"interest": "agents NOT video"}).text
        [button] = re.findall('<button[^>]*name="change"[^>]*>', page)
        change = html.unescape(re.findall('value="([^"]*)"', button)[0])
        assert change == "agents NOT video\tagents -video"
        accepted = client.post(path, data={"interest": "agents NOT video", "change": change}).text
        assert re.findall('name="interest" value="([^"]+)"', accepted) == ["agents -video"]
        assert "To exclude words, put a hyphen right before them:" in page
        assert "To exclude words" not in accepted
        split = client.post(path, data={"interest": "agents OR video", "split": "agents OR video"}).text
        assert re.findall('name="interest" value="([^"]+)"', split) == ["agents", "video"]
    assert "This looks like 2 interests." in preview_fragment(client, "agents OR video")
    assert "Split them" not in preview_fragment(client, "agents or video")


def test_parts_are_offered_only_if_the_form_has_room(
    app: Application, client: TestClient, link: Link
) -> None:
    """The preferences offer to split stored interests, too."""
    with app.db.write() as session:
        some, full = (
            factories.add_subscriber(session, f"{count}@example.org", texts, clock.utcnow())
            for count in (1, app.settings.max_interests)
            for texts in [["agents OR video", *(f"topic {number}" for number in range(1, count))]]
        )
    assert "This looks like 2 interests." in client.get(link(Purpose.PREFERENCES, some)).text
    assert "This looks like 2 interests." not in client.get(link(Purpose.PREFERENCES, full)).text


def test_preferences_ask_about_misspelt_interests(app: Application, client: TestClient, link: Link) -> None:
    """They do so without a preview as well, as the interest may have been stored without one."""
    with app.db.write() as session:
        texts = ["langauge models", "video", "世界模型"]
        bob = factories.add_subscriber(session, "bob@example.org", texts, clock.utcnow())
    page = client.get(link(Purpose.PREFERENCES, bob)).text
    assert re.findall("Did you mean .*<bdi>(.*)</bdi>", page) == ["language models", "world models"]


@pytest.mark.parametrize("change", ["", "\t", "video", "other\tagents", "video\t", "\t" * 9, "v" * 5_000])
def test_invalid_change_keeps_the_form(change: str) -> None:
    form = forms.PreferencesForm(rows=forms.interest_rows(["video"]))
    assert forms.replace_interest(form, change) == form


@pytest.mark.usefixtures("sample_papers")
def test_fields_that_no_source_gives_are_named(client: TestClient) -> None:
    """A reader of an archive without categories learns why `cat:` finds nothing."""
    note = "no recent paper has a category (Hugging Face Daily Papers gives none)"
    fragment = preview_fragment(client, "cat:cs.CL", "video cat:cs", "org:nvidia", "org:contoso")
    assert fragment.count(f"none: {note}") == 2
    # On weekends, a note on the calendar follows.
    reason = f"No digest today: none of 5 recent papers matched an interest: {re.escape(note)}[.;]"
    assert re.search(reason, preview_fragment(client, "cat:cs.CL"))
    assert "Papers from nvidia" in fragment
    assert "2 in the 4 days known so far" in fragment


@pytest.mark.usefixtures("sample_papers")
def test_missing_category_is_named_with_others(app: Application, client: TestClient) -> None:
    with app.db.write() as session:
        session.exec(select(Paper)).first().categories = ["cs.CV"]  # type: ignore[union-attr]
    fragment = preview_fragment(client, "cat:robotics")
    assert "No recent paper is in the category <q>robotics</q>. The most frequent categories: <code>cat:" in (
        fragment
    )
    misspelt = preview_fragment(client, "cat:cs.CVV")
    assert "in the category <q>cs.CVV</q>.</span>" in misspelt
    assert 'value="cat:cs.CVV&#9;cat:cs.CV"' in misspelt
    assert "in the category <q>cs.DL</q>, <q>cs.Óx</q>." in preview_fragment(client, 'cat:"cs.DL," cat:cs.Óx')


@pytest.mark.usefixtures("sample_papers")
def test_organization_is_shown_and_named_as_reason(client: TestClient) -> None:
    fragment = preview_fragment(client, "NVIDIA")
    assert fragment.count("<bdi>NVIDIA</bdi></p>") == 2
    assert "from NVIDIA</p>" in fragment


@pytest.mark.usefixtures("sample_papers")
def test_muted_words_are_excluded_from_the_counts(
    app: Application, client: TestClient, alice: int, link: Link
) -> None:
    path, form = link(Purpose.PREFERENCES, alice) + "/preview", {"interest": ["language agents", "video"]}
    some = client.post(path, data={**form, "muted": "think"}, headers=SCRIPT).text
    assert "3 in the 4 days known so far" in some
    none = client.post(path, data={**form, "muted": "agents"}, headers=SCRIPT).text
    assert "none except muted ones" in none
    assert "1 in the 4 days known so far" in none


@pytest.mark.usefixtures("sample_papers")
def test_right_to_left_interest_keeps_the_layout(client: TestClient) -> None:
    assert '<span class="of"><bdi>סוכני שפה</bdi></span>' in preview_fragment(client, "סוכני שפה")


@pytest.mark.usefixtures("sample_papers")
def test_preview_writes_nothing(app: Application, client: TestClient) -> None:
    client.post("/preview", data=FORM)
    with app.db.read() as session:
        for table in (Subscriber, Delivery, Event, InterestQuery):
            assert session.exec(select(func.count()).select_from(table)).one() == 0


@pytest.mark.usefixtures("sample_papers")
def test_preview_without_scripts_keeps_the_form(client: TestClient) -> None:
    """Only the fields that affect the preview are validated."""
    page = client.post("/preview", data=FORM).text
    assert "<html" in page
    assert "Language Agents that &lt;think&gt;" in page
    assert 'value="carol@example"' in page
    assert 'value="cooking"' in page
    for value in ("weekly", "2", "7", "Asia/Tokyo"):
        assert f'<option value="{value}" selected>' in page
    assert "Attention Is All You Need</textarea>" in page
    assert "data-detect" not in page
    assert "problem-email" not in page


@pytest.mark.usefixtures("sample_papers")
def test_invalid_interest_is_marked_and_others_are_previewed(client: TestClient) -> None:
    typed = ["language agents", "", '"unclosed']
    page = client.post("/preview", data={"interest": typed}).text
    assert 'value="&#34;unclosed"' in page
    assert 'id="problem-interests.1"' in page
    fragment = preview_fragment(client, *typed)
    assert '<li data-interest="&#34;unclosed">A quotation mark is not closed.</li>' in fragment
    for text in (page, fragment):
        assert "Language Agents that &lt;think&gt;" in text
    assert "Your digest" not in preview_fragment(client, '"unclosed')


@pytest.mark.usefixtures("sample_papers")
def test_each_invalid_preference_is_marked_at_its_field(client: TestClient, alice: int, link: Link) -> None:
    """Valid muted words still apply, with and without scripts."""
    path = link(Purpose.PREFERENCES, alice) + "/preview"
    typed = {"interest": ["language agents", "", '"x'], "min_papers": "99", "max_papers": "",
             "max_trending": "abc", "muted": "a\nthink", "hour": "99"}  # fmt: skip
    page = client.post(path, data=typed).text
    fragment = client.post(path, data=typed, headers=SCRIPT).text
    for name in ("min_papers", "max_papers", "max_trending", "muted"):
        assert f'id="problem-{name}"' in page
        assert f'<li data-field="{name}">' in fragment
    assert 'id="problem-interests.1"' in page
    assert "“a” cannot be muted. Choose a more specific word.</p>" in page
    assert "problem-hour" not in page, "which the preview is not about"
    for text in (page, fragment):
        assert "Language Agents, Part 3" in text
        assert "Language Agents that" not in text


@pytest.mark.once
@pytest.mark.usefixtures("sample_papers")
def test_too_many_lines_are_not_echoed(
    client: TestClient, alice: int, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not parsed for a visitor over the rate limit either."""
    path = link(Purpose.PREFERENCES, alice)
    usual, typed = len(client.get(path).content), {"muted": "a\n" * 150_000, "interest": ["b"] * 900}
    for at, status in ((path, 422), (path + "/preview", 200)):
        answer = client.post(at, data=typed)
        assert (answer.status_code, len(answer.content) < usual + 200_000) == (status, True)
        assert 'id="problem-muted"' in answer.text
        assert 'id="problem-interests"' in answer.text
    monkeypatch.setattr(client.app.state.capacity.visitors.previews, "hit", refuse_request)  # type: ignore[attr-defined]
    monkeypatch.setattr(forms, "validated", None)
    assert client.post("/preview", data=typed).status_code == 429


@pytest.mark.usefixtures("sample_papers")
def test_preview_without_interests_shows_trending_papers(client: TestClient) -> None:
    fragment = preview_fragment(client)
    assert "Trending now" in fragment
    assert VIDEO in fragment


def test_author_interests_are_described_in_words(app: Application, client: TestClient) -> None:
    """Check the heading and the form."""
    now = clock.utcnow()
    with app.db.write() as session:
        factories.add_paper(
            session, factories.add_source(session, now), VIDEO, now.date(), now, authors=["Hongtao Wu"]
        )
    fragment = preview_fragment(client, 'author:"Hongtao Wu"')
    assert re.findall(">(Papers by [^<]+)<", fragment) == ["Papers by Hongtao Wu"] * 2


@pytest.mark.usefixtures("sample_papers")
def test_preview_counts_trending_papers_separately(app: Application, client: TestClient) -> None:
    """They match no interest."""
    now = clock.utcnow()
    with app.db.write() as session:
        (source,) = session.exec(select(Source))
        factories.add_paper(session, source, "Beekeeping", now.date(), now, upvotes=90)
    fragment = preview_fragment(client, "language agents")
    assert "Today’s digest would have 5 of 6 recent papers (4 matching, 1 trending)." in fragment


@pytest.mark.usefixtures("sample_papers")
def test_preview_on_the_preferences_page(
    app: Application, client: TestClient, alice: int, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses the form's values and saves nothing."""
    path = link(Purpose.PREFERENCES, alice) + "/preview"
    typed = {"interest": ["language agents", "video, cooking"], "weight": ["1", "2"], "quota": ["2", ""]}
    response = client.post(path, data=typed, headers=SCRIPT)
    assert "Today’s digest would have 2 of 5 recent papers." in response.text
    assert f'formaction="{path}#interests"' in response.text
    assert response.headers["cache-control"] == "no-store"
    few = client.post(path, data={**typed, "max_papers": "1"}, headers=SCRIPT).text
    assert "Today’s digest would have 1 of 5 recent papers." in few
    waits = client.post(path, data={**typed, "min_papers": "3"}, headers=SCRIPT).text
    assert (
        "No digest today: only 2 papers matched, fewer than the minimum of 3; they count for the following "
        "digest." in waits
    )
    muted = {**typed, "muted": "author:nobody\nthink", "max_trending": "1"}
    assert "Language Agents that" not in client.post(path, data=muted, headers=SCRIPT).text
    page = client.post(path, data={**typed, "split": "video, cooking", "hour": "5"}).text
    assert "Language Agents that &lt;think&gt;" in page
    assert re.findall(r'name="interest" value="([^"]+)"', page) == ["language agents", "video", "cooking"]
    assert page.count('<option value="2" selected>most') == 2, "what is kept apart keeps its weight"
    assert '<option value="5" selected>' in page
    nothing = client.post(path, data={"interest": "", "when_empty": "skip"}, headers=SCRIPT).text
    assert "No digest today: Add at least one interest" in nothing
    stored = client.get(path).text
    assert re.findall(r'name="interest" value="([^"]+)"', stored) == ["diffusion models", "robotics"]
    assert "Preview of your digest" in stored
    monkeypatch.setattr(client.app.state.capacity.visitors.previews, "hit", refuse_request)
    refused = client.post(path, data=typed)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "7")
    assert 'value="language agents"' in refused.text


@pytest.mark.usefixtures("sample_papers")
@pytest.mark.parametrize(("cadence", "papers"), [("daily", 4), ("weekdays", 4), ("weekly", 5)])
def test_preview_covers_the_days_of_the_cadence(
    app: Application, client: TestClient, alice: int, link: Link, cadence: str, papers: int
) -> None:
    """A weekly digest covers eight days, and others seven, in both forms."""
    with app.db.write() as session:
        day = clock.utcnow() - timedelta(days=7)
        factories.add_paper(
            session, factories.add_source(session, day, "old"), "Agents of Old", day.date(), day
        )
    typed = {"interest": "agents", "cadence": cadence, "max_papers": "9"}
    for path in ("/preview", link(Purpose.PREFERENCES, alice) + "/preview"):
        fragment = client.post(path, data=typed, headers=SCRIPT).text
        assert f"Today’s digest would have {papers} " in fragment, path
        assert ("Agents</mark> of Old" in fragment) is (cadence == "weekly"), path
    page = client.get("/").text
    assert 'hx-params="interest,cadence"' in page


@pytest.mark.usefixtures("sample_papers")
def test_preview_uses_the_feedback(app: Application, client: TestClient, alice: int, link: Link) -> None:
    """Papers close to liked ones are added, as in the digest. The liked papers themselves are not sent."""
    path, typed = link(Purpose.PREFERENCES, alice) + "/preview", {"interest": "cooking", "when_empty": "skip"}
    assert "No digest today" in client.post(path, data=typed, headers=SCRIPT).text
    with app.db.write() as session:
        papers = session.exec(select(Paper).order_by(Paper.id)).all()
        for paper in papers[2:4]:
            subscribers.set_feedback(session, alice, paper.id or 0, True, clock.utcnow())
    fragment = client.post(path, data=typed, headers=SCRIPT).text
    listed = set(map(int, re.findall(r'href="/paper/(\d+)"', fragment)))
    sent = next(pipeline.preview_due(app, clock.utcnow(), [alice])).digest
    assert isinstance(sent, Digest)
    assert {papers[4].id} <= listed == {item.paper_id for item in sent.picks}
    assert "which you liked" in fragment


@pytest.mark.usefixtures("sample_papers")
def test_feedback_is_loaded_within_the_limits(
    client: TestClient, alice: int, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure gives an error in place of the preview. A refused request does not load it."""
    loaded: list[object] = []

    def fail(*arguments: object) -> None:
        loaded.append(arguments)
        raise RuntimeError("the database is locked")

    monkeypatch.setattr(subscribers, "feedback_for_ranking", fail)
    path, typed = link(Purpose.PREFERENCES, alice) + "/preview", {"interest": "agents"}
    failed = client.post(path, data=typed, headers=SCRIPT)
    assert (failed.status_code, failed.headers["HX-Reswap"]) == (500, "none")
    assert "The preview failed." in failed.text
    monkeypatch.setattr(client.app.state.capacity.visitors.previews, "hit", refuse_request)  # type: ignore[attr-defined]
    assert client.post(path, data=typed, headers=SCRIPT).status_code == 429
    assert len(loaded) == 1


def refuse_request(_ip: str) -> None:
    raise TooManyRequests(retry_after=7)


@pytest.mark.usefixtures("papers_of_a_week")
@pytest.mark.parametrize(
    ("interest", "weight", "words"),
    [
        ("agents", "1", "4 in two weeks With fewer: 3 in two weeks."),
        ("agents", "0.5", "3 in two weeks With normal, more, most: 4 in two weeks."),
        ("agents", "1.5", "4 in two weeks With fewer: 3 in two weeks."),
        ("video generation", "1.5", "none With most: 1 in two weeks."),
        ("video generation", "2", "1 in two weeks With fewer, normal, more: none."),
    ],
)
def test_preferences_say_what_other_amounts_bring(
    client: TestClient, alice: int, link: Link, interest: str, weight: str, words: str
) -> None:
    path = link(Purpose.PREFERENCES, alice) + "/preview"
    fragment = client.post(path, data={"interest": interest, "weight": weight}, headers=SCRIPT).text
    rate = fragment.split('class="many">')[1].split("</li>")[0].split("No recent paper")[0]
    assert " ".join(re.sub("<svg.*?</svg>|<[^>]+>", " ", rate, flags=re.DOTALL).split()) == words


@pytest.mark.usefixtures("sample_papers")
def test_larger_amounts_never_bring_fewer_papers(app: Application) -> None:
    now, interests = clock.utcnow(), ("agents", "language agents", "video generation", "cooking agents")
    totals: list[list[int]] = [[] for _ in interests]  # by interest: one for each amount
    for weight in subscribers.AMOUNTS:
        preferences = Preferences(interests=tuple(Interest(text, weight) for text in interests))
        for amounts, interest in zip(totals, Previews(app).build(preferences, now).interests, strict=True):
            amounts.append(sum(interest.counts))
    assert totals == [sorted(amounts) for amounts in totals]
    assert any(amounts[0] < amounts[-1] for amounts in totals)


def test_preview_of_an_empty_archive(client: TestClient) -> None:
    assert "No digest today: no new papers; the archive is still empty: no source" in preview_fragment(
        client, "language agents"
    )


@pytest.mark.usefixtures("sample_papers")
def test_several_interests_on_one_line_can_be_split(client: TestClient) -> None:
    """A button splits them. Other lines stay as they are."""
    typed = {**FORM, "interest": ["agents, RL,  quantization", "cooking"]}
    page = client.post("/preview", data=typed).text
    assert 'value="agents, RL,  quantization"' in page
    assert "This looks like 3 interests" in page
    page = client.post("/preview", data={**typed, "split": "agents, RL,  quantization"}).text
    assert re.findall(r'name="interest" value="([^"]+)"', page) == ["agents", "RL", "quantization", "cooking"]
    assert "This looks like" not in page
    assert 'value="carol@example"' in page


def test_an_author_can_replace_a_name(app: Application, client: TestClient) -> None:
    """The button puts a filter in place of the interest."""
    now = clock.utcnow()
    with app.db.write() as session:
        source = factories.add_source(session, now)
        factories.add_paper(session, source, AGENTS, now.date(), now, authors=["Hongtao Wu"])
    page = client.post("/preview", data={**FORM, "interest": "Hongtao Wu"}).text
    assert "Looking for an author?" in page
    assert "No recent paper mentions" not in page
    button = re.search(r'name="change" value="([^"]+)"[^>]*><bdi>Papers by Hongtao Wu<', page)
    assert button
    page = client.post(
        "/preview", data={**FORM, "change": html.unescape(button[1]), "interest": "Hongtao Wu"}
    ).text
    assert 'name="interest" value="author:&#34;Hongtao Wu&#34;"' in page


@pytest.mark.usefixtures("sample_papers")
def test_split_is_not_offered_beyond_the_limit(client: TestClient) -> None:
    """The result could not be used to sign up."""
    many = ", ".join(f"topic {n}" for n in range(15))
    assert "This looks like 15 interests" in preview_fragment(client, many)
    assert "This looks like" not in preview_fragment(client, many, *(f"other {n}" for n in range(6)))


def test_sign_up_does_not_split_interests(app: Application, client: TestClient) -> None:
    client.post("/subscribe", data={**FORM, "email": "carol@example.org", "interest": "agents, RL"})
    with app.db.read() as session:
        stored = session.exec(select(FormSubmission.preferences)).one()
    assert [interest["text"] for interest in stored["interests"]] == ["agents, RL"]


@pytest.mark.usefixtures("sample_papers")
def test_rate_limited_preview_keeps_the_form(app: Application) -> None:
    """The visitor can still sign up."""
    limited = replace(app, settings=app.settings.model_copy(update={"previews_per_minute": 2}))
    with TestClient(main.create_app(limited), base_url="https://paperboy.test") as client:
        preview_fragment(client, "agents")
        preview_fragment(client, "video")
        refused = client.post("/preview", data=FORM)
        fragment = client.post("/preview", data=FORM, headers=SCRIPT)
        signed_up = client.post("/subscribe", data={**FORM, "email": "carol@example.org"})
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 60
    assert "Too many requests. The next preview is available in" in refused.text
    assert fragment.headers["hx-reswap"] == "none"  # the last preview is still shown
    assert re.findall(r'id="([\w-]+)"', fragment.text) == ["preview-said"]
    assert "You can still submit the form." in refused.text
    assert 'value="carol@example"' in refused.text
    assert signed_up.status_code == 200


class FailingPreviews:
    """Fails on every preview."""

    def of(self, *_asked: object) -> preview.Preview:
        raise ZeroDivisionError("the secret inside")


def test_failing_preview_keeps_the_form(app: Application) -> None:
    site = main.create_app(app)
    site.state.previews = FailingPreviews()
    with TestClient(site, base_url="https://paperboy.test") as client:
        answer = client.post("/preview", data=FORM)
    assert answer.status_code == 500
    assert "The preview failed" in answer.text
    assert 'value="carol@example"' in answer.text
    assert "secret" not in answer.text


@pytest.mark.usefixtures("sample_papers")
def test_concurrent_previews_are_limited(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each preview frees its slot, even if it fails."""
    state = client.app.state  # type: ignore[attr-defined]
    state.capacity.previews = WorkSlots(1)
    with state.capacity.previews.take():
        assert client.post("/preview", data=FORM).status_code == 429
    with monkeypatch.context() as patch:
        patch.setattr(state.previews, "build", None)
        assert client.post("/preview", data=FORM).status_code == 500
    assert client.post("/preview", data=FORM).status_code == 200


def test_split_respects_the_interest_limit(client: TestClient) -> None:
    several = ", ".join(f"word{number}" for number in range(30))
    lines = {**FORM, "interest": [several] * 50, "split": several}
    page = client.post("/preview", data=lines).text
    assert 'value="word7"' not in page
    typed = "ants, bees"
    two = client.post("/preview", data={**FORM, "interest": [typed, typed], "split": typed}).text
    assert [two.count(f'name="interest" value="{line}"') for line in ("ants", "bees", typed)] == [1, 1, 1]


def test_lone_surrogates_do_not_crash(client: TestClient) -> None:
    """Some encodings can produce characters that cannot be encoded in a page."""
    body = (
        b"--x\r\nContent-Disposition: form-data; name=interest\r\n"
        b"Content-Type: text/plain; charset=unicode_escape\r\n\r\n\\ud800 agents\r\n--x--\r\n"
    )
    answer = client.post(
        "/preview", content=body, headers={"content-type": "multipart/form-data; boundary=x"}
    )
    assert answer.status_code < 500


@pytest.mark.usefixtures("sample_papers")
def test_preview_index_is_rebuilt_once_a_minute(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is rebuilt earlier if too many matched interests would fill the memory."""
    previews, now = Previews(app), clock.utcnow()
    builder = previews._current_builder(now)
    assert previews._current_builder(now + timedelta(seconds=59)) is builder
    later = previews._current_builder(now + timedelta(seconds=60))
    assert later is not builder
    monkeypatch.setattr(preview, "MAX_MATCHED", 2)
    previews.build(
        Preferences(interests=(Interest("agents"), Interest("video"))), now + timedelta(seconds=70)
    )
    assert previews._current_builder(now + timedelta(seconds=80)) is not later


def test_preview_from_another_origin_is_refused(client: TestClient) -> None:
    """Another site cannot use up a visitor's rate limit."""
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert client.post("/preview", data=FORM, headers=headers).status_code == 403


@pytest.mark.usefixtures("sample_papers")
def test_page_size(client: TestClient) -> None:
    """With styles, scripts and a preview, the page is under 60 kB compressed."""
    files = ("style.css", "page.js", "vendor/htmx/htmx.min.js")
    page = client.post("/preview", data=FORM)
    assert page.headers["content-encoding"] == "gzip"
    parts = [page.content, *((templating.STATIC / name).read_bytes() for name in files)]
    assert sum(len(gzip.compress(part, 5)) for part in parts) < 60_000
    for name in files:
        assert client.get(f"/static/{name}").headers["content-encoding"] == "gzip"
    assert (templating.STATIC / "vendor/htmx/LICENSE").exists()
