"""PURE. Compose a digest from ranked papers, or return the reason why it is skipped or held back.

A digest consists of a section for each interest, and a note. Sections, and the papers in them, are sorted by
score. Trending papers that match no interest come last. If the subscriber has no interests, they fill the
digest, so that a subscriber with likes never gets fewer papers than one without.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from app.digests import notes, selection, skip_reasons, too_few_papers
from app.digests.ranking import CandidatePool, Ranked
from app.digests.selection import BY_PROFILE, SelectedPaper, Selection
from app.mail import section_headings
from app.papers import bylines
from app.relevance import reasons
from app.text import summarizer
from app.types import CardReason, Digest, DigestItem, EmptyDigestPolicy, PaperView, Section, Skip

MAX_SHARED_ITEMS = 60_000  # per run; about 20 megabytes


def compose(edition: str, ranked: Ranked, selected_ahead: Selection | None = None) -> Digest | Skip:
    """Compose the digest of one subscriber. Select its papers, unless they have already been selected."""
    request, considered = ranked.request, int(np.count_nonzero(ranked.eligible))
    selected = (selected_ahead or selection.select(ranked)).selected
    if not selected:
        if request.interests and request.when_empty is EmptyDigestPolicy.SKIP:
            return Skip(skip_reasons.nothing_matched(edition, ranked, considered), considered)
        return _trending_digest(edition, ranked, considered)
    is_small = too_few_papers.is_small(ranked, selected)
    expiring = too_few_papers.count_expiring(ranked, selected) if is_small else 0
    if is_small and not expiring:
        return Skip(skip_reasons.too_few_papers(len(selected), request), considered)
    by_interest: dict[str, list[SelectedPaper]] = {interest.text: [] for interest in request.interests}
    by_interest[BY_PROFILE.text] = []
    for choice in selected:
        by_interest[choice.interest.text].append(choice)
    sections = [
        Section(
            text,
            _items_for(ranked, text, choices),
            "" if text else section_headings.LIKED,
            tuple([round(choice.score, 4) for choice in choices]),
        )
        for text, choices in by_interest.items()
        if choices
    ]
    # The paper with the highest score is the first one that the subscriber sees, and the subject names it.
    sections.sort(key=lambda section: -section.scores[0])
    if beyond := selection.select_beyond_interests(ranked, selected):
        reason_of = _reason_beyond_interests if request.interests else _trending_reason
        items = tuple(_item(each.paper, ranked.pool, reason_of(each, ranked.pool)) for each in beyond)
        sections.append(Section("", items, "" if request.interests else section_headings.TRENDING))
    note = notes.join(
        notes.skipped_editions_note(request),
        notes.small_digest_note(request, len(selected), expiring) if is_small else "",
        notes.invalid_interests_note(request),
    )
    return Digest(edition, tuple(sections), note, considered)


def _trending_digest(edition: str, ranked: Ranked, considered: int) -> Digest | Skip:
    """Compose a digest of trending papers, for a subscriber with no interests or none that match."""
    request, pool = ranked.request, ranked.pool
    choices = list(itertools.islice(selection.select_trending(ranked), request.max_papers))
    items = tuple(_item(choice.paper, pool, _trending_reason(choice, pool)) for choice in choices)
    scores = tuple(round(choice.score, 4) for choice in choices)
    if not items:
        return Skip(skip_reasons.nothing_matched(edition, ranked, considered), considered)
    heading = "" if request.interests else section_headings.TRENDING
    note = notes.join(
        notes.NOTHING_MATCHED if request.interests else "",
        notes.skipped_editions_note(request),
        notes.invalid_interests_note(request),
    )
    return Digest(edition, (Section("", items, heading, scores),), note, considered)


def _reason_beyond_interests(selected: SelectedPaper, pool: CandidatePool) -> CardReason:
    if selected.paper.id in pool.pinned:
        return reasons.EDITORS_PICK
    return reasons.voted_reason(selected.paper.upvotes)


def _trending_reason(selected: SelectedPaper, pool: CandidatePool) -> CardReason:
    if selected.paper.id in pool.pinned:
        return reasons.EDITORS_PICK
    paper = selected.paper
    listed_on = paper.last_listed_on or pool.today
    return reasons.trending_reason(pool.trend(paper), paper.upvotes, listed_on, pool.today)


def _items_for(ranked: Ranked, text: str, choices: Sequence[SelectedPaper]) -> tuple[DigestItem, ...]:
    """Return the cards under an interest. Cards are cached and shared if they name no likes."""
    shared, profile = ranked.pool.items, ranked.profile
    if len(shared) >= MAX_SHARED_ITEMS:
        shared.clear()
    items = list[DigestItem]()
    for paper in (choice.paper for choice in choices):
        is_shared = paper.id not in profile
        item = shared.get((text, paper.id)) if is_shared else None
        if item is None:
            item = _item(paper, ranked.pool, ranked.reason(text, paper.id))
            if is_shared:
                shared[text, paper.id] = item
        items.append(item)
    return tuple(items)


def _item(paper: PaperView, pool: CandidatePool, reason: CardReason) -> DigestItem:
    """Return a card. Fields that are the same for every subscriber are computed once per paper."""
    fields = pool.card_fields.get(paper.id)
    if fields is None:
        trend = pool.trend(paper)
        fields = pool.card_fields[paper.id] = {
            "paper_id": paper.id,
            "title": paper.title,
            "authors": bylines.byline(paper.authors, paper.author_count),
            "organization": paper.organization,
            "summary": summarizer.summary(paper.title, paper.tldr, paper.abstract),
            "trend": trend.words,
            "url": paper.url,
            "pdf_url": paper.pdf_url,
            "code_url": paper.code_url,
            "project_url": paper.project_url,
            "published_on": paper.published_on.isoformat() if paper.published_on else "",
            "comments": paper.comments,
            "summary_by": paper.tldr_by,
            "short_authors": bylines.short_byline(paper.authors, paper.author_count),
            "votes": paper.upvotes,
            "trend_note": trend.note,
            "stars": paper.stars,
            "submitted_by": paper.submitted_by,
        }
    return DigestItem(reason=reason.text, marks=reason.marks, **fields)
