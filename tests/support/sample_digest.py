"""A sample digest of made-up papers that cover the unusual cases of real ones."""

from dataclasses import replace

from app.types import Digest, DigestItem, Section

LONG = (
    "We revisit the common belief that longer context windows make retrieval unnecessary. Over eleven "
    "open models and four languages, a retriever with a small reader answers as well as a long-context "
    "model at a fortieth of the cost, except where evidence is spread over more than twenty documents. "
    "We trace the difference to attention that thins out after the first few thousand tokens, release "
    "the benchmark, and give a rule of thumb for when to retrieve, when to read, and when to do both."
)


def pick(paper_id: int, title: str, **fields: object) -> DigestItem:
    """Return a digest item with all its links and texts."""
    number = f"2611.{10000 + paper_id}"
    usual = DigestItem(
        paper_id=paper_id,
        title=title,
        authors="Mei Tanaka, Olu Adeyemi and 4 more",
        short_authors="Mei Tanaka +5",
        summary=LONG,
        reason="matches “retrieval” in the title and “long context” in the abstract",
        trend="",
        url=f"https://arxiv.org/abs/{number}",
        pdf_url=f"https://arxiv.org/pdf/{number}",
        published_on="2026-11-19",
    )
    return replace(usual, **fields)


def digest(edition: str = "2026-11-20") -> Digest:
    """Return a digest of eight papers: two interests and a trending section."""
    retrieval = (
        pick(
            1,
            "Read or Retrieve? When Long Context Beats a Small Retriever",
            trend="3 → 140 votes since yesterday",
            votes=140,
            trend_note="+137 since yesterday",
            comments=12,
            stars=2207,
            submitted_by="Noor Haddad",
            code_url="https://github.com/example/read-or-retrieve",
        ),
        pick(
            2,
            "Learning Where to Stop: <think> Tokens as a Budget for Multi-Hop Retrieval & Reasoning",
            authors="Ana Lima and Jonas Weber",
            short_authors="Ana Lima, Jonas Weber",
            organization="Universidade de São Paulo & Sons",
            summary="A model that decides by itself how many documents to open spends half the tokens, and "
            "errs less: stopping is learned from whether the next document changed the answer.",
            reason="matches “retrieval” in the title",
            trend="38 votes",
            submitted_by="Jonas Weber",
            votes=38,
        ),
        pick(
            3,
            "O(n log n) Exact Attention over ℝ³ Point Sets via Hierarchical ε-Nets, with Applications to "
            "Dense Retrieval, Molecular Docking and Very Large Archives of Scanned Historical Documents "
            "in Many Scripts",
            authors="Priya Raman",
            short_authors="Priya Raman",
            reason="matches “dense retrieval” in the title",
            published_on="",
        ),
    )
    protein = (
        pick(
            4,
            "FoldLight: Protein Structure Prediction on a Laptop",
            authors="Ines Duarte, Tomás Novák, Wei Zhang and 11 more",
            short_authors="Ines Duarte +13",
            summary="Distilling a folding network into 90 million parameters keeps 96 % of its accuracy on "
            "short chains, and runs in eleven seconds without a graphics card.",
            reason="matches “protein structure” in the title; by Ines Duarte, an author you follow",
            trend="71 votes",
            votes=71,
            comments=1,
            code_url="https://github.com/example/foldlight",
            project_url="https://foldlight.example.org",
        ),
        pick(
            5,
            "שיטה חדשה לחיזוי מבנה חלבונים",
            authors="נועה כהן",
            short_authors="נועה כהן",
            comments=5,
            summary="מודל קטן שלומד מזוגות של רצפים קרובים ומנבא את המבנה המרחבי בלי יישור מרובה.",
            reason="matches “protein structure” in the abstract",
        ),
    )
    trending = (
        pick(
            6,
            "A Field Guide to Failed Training Runs",
            trend="90 → 212 votes since yesterday",
            votes=212,
            trend_note="+122 since yesterday",
            comments=41,
            reason="the most voted paper of the day",
        ),
        pick(
            7,
            "Small Robots, Long Kitchens: 400 Hours of Teleoperated Cooking",
            trend="96 votes",
            votes=96,
            reason="trending on Hugging Face",
        ),
        pick(
            8,
            "What Do Reviewers Read First?",
            summary="",
            authors="",
            short_authors="",
            trend="64 votes",
            votes=64,
            reason="trending on Hugging Face",
        ),
    )
    return Digest(
        edition=edition,
        sections=(
            Section("retrieval augmented generation", retrieval, scores=(0.94, 0.0, 0.0)),
            Section("“protein structure”", protein, scores=(0.7, *[0.0] * (len(protein) - 1))),
            Section("", trending),
        ),
        note="Yesterday brought too little for an email of its own, so its papers are in this one.",
        considered=214,
    )
