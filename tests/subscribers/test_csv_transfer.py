"""Test the import in batches against one transaction per row, and files that survive export and import."""

import io
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session, col, select

from app import subscribers
from app.application import Application
from app.delivery import suppression
from app.errors import InvalidInput, PaperboyError
from app.storage.database import Database
from app.storage.models import (
    Event,
    FormSubmission,
    InterestQuery,
    Subscriber,
    SubscriberState,
)
from app.subscribers import Preferences, SignUp, bulk, csv_format, csv_transfer
from app.types import Interest
from tests.conftest import NOW
from tests.support import factories

DEFAULTS = Preferences(hour=6, max_trending=3)
ROBOTS = Preferences(interests=(Interest("robotics"),))
LINES = (
    "alice@example.org,language agents; robotics,2; 0.1,,games; cat:cs.CR,weekly,,",
    "Alice@Example.org,again,,,,,,",
    "not an address,robotics,,,,,,",
    "bob@example.org,robotics,nan,,,,,",
    "carol@example.org,?!,,,,,,",
    "dave@example.org,robotics,,,,,paused,2026-01-02T03:04Z",
    "dave@example.org,robotics,,,,,,",
    "erin@example.org,Robotics; robotics; language agents,,,,,,2999-01-01",
    "frank@example.org,robotics,,,,,unsubscribed,",
    "grace@example.org,robotics,,3,,,,,surplus",
    "heidi@example.org,robotics,,2,,daily,active,",
    "registered@example.org,robotics,,,,,,",
    "pending@example.org,robotics,,,,,paused,",
    "left@example.org,robotics,,,,,,",
    "suppressed@example.org,robotics,,,,,,",
    "declined@example.org,robotics,,,,,,",
    "ivan@example.org,Robotics; robotics; language agents,1;2;3,,,,,",
    "judy@example.org,,,,,,,",
)
HEADER = "email,interests,weights,quotas,muted,cadence,state,consent_at"


def csv_file(*lines: str, header: str = HEADER) -> io.BytesIO:
    return io.BytesIO("\n".join((header, *lines, "")).encode())


def prepare(session: Session) -> None:
    """Add a subscriber in every state that an imported address may have."""
    before = NOW - timedelta(days=3)
    subscribers.add(session, "registered@example.org", ROBOTS, before)
    left = subscribers.add(session, "left@example.org", ROBOTS, before)
    subscribers.unsubscribe(session, left, before)
    suppression.suppress(session, "suppressed@example.org", "complained", before)
    for name in ("pending", "declined"):
        factories.sign_up(session, SignUp(f"{name}@example.org", ROBOTS), "192.0.2.1", before)
    declined = subscribers.find(session, "declined@example.org")
    subscribers.decline(session, declined.id or 0, before)


def import_by_row(db: Database, file: io.BytesIO) -> tuple[int, list[tuple[int, str]]]:
    """Import with one transaction per row."""
    rejections: list[tuple[int, str]] = []
    rows: dict[str, int] = {}
    for number, row in csv_format.read_rows(file):
        try:
            new = csv_format.parse_row(row, DEFAULTS, NOW)
            if new.email in rows:
                rejections.append((number, f"this row has the same address as row {rows[new.email]}"))
                continue
            with db.write() as session:
                bulk.add_one(session, new, NOW)
            rows[new.email] = number
        except PaperboyError as error:
            rejections.append((number, str(error)))
    return len(rows), rejections


def contents(db: Database) -> list[object]:
    """Return everything that an import stores, without ids."""
    with db.read() as session:
        rows = session.exec(select(Subscriber).order_by(Subscriber.email)).all()
        emails = {row.id: row.email for row in rows}
        interests = subscribers.interests_of(session, list(filter(None, emails)))
        events = session.exec(select(Event).order_by(col(Event.id))).all()
        forms = session.exec(select(FormSubmission).order_by(col(FormSubmission.id))).all()
        return [
            [(row.model_dump(exclude={"id", "newest_interest"}), interests.get(row.id or 0)) for row in rows],
            sorted((emails.get(event.subscriber_id, ""), event.kind, event.at) for event in events),
            [(form.mailbox, form.declined_at, form.preferences) for form in forms],
            session.exec(select(InterestQuery.text).order_by(InterestQuery.text)).all(),
        ]


def database(url: str) -> Database:
    db = Database(url)
    with db.write() as session:
        prepare(session)
    return db


@pytest.fixture
def two_databases(new_database_url: Callable[[], str]) -> tuple[Database, Database]:
    return database(new_database_url()), database(new_database_url())


@pytest.mark.parametrize("size", [1, 2, 5, 500])
def test_batches_and_single_rows_have_the_same_result(
    two_databases: tuple[Database, Database], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Duplicates may be in one batch or in two."""
    monkeypatch.setattr(csv_transfer, "IMPORT_BATCH", size)
    first, second = two_databases
    with first.read() as session:
        expected_preview = csv_transfer.preview_file(first, csv_file(*LINES), DEFAULTS, NOW)
        assert session.exec(select(Event).where(Event.at == NOW)).all() == []
    report = csv_transfer.import_file(first, csv_file(*LINES), DEFAULTS, NOW)
    added, rejections = import_by_row(second, csv_file(*LINES))
    assert (report.added, [(item.row, item.reason) for item in report.rejections]) == (added, rejections)
    assert added == 6
    assert contents(first) == contents(second)
    assert (expected_preview.added, expected_preview.rejections) == (added, report.rejections)
    for db in two_databases:
        db.dispose()


_CELLS = [
    st.sampled_from(["alice", "bob", "carol", "registered", "pending", "left", "suppressed", "no one"]),
    st.sampled_from(["robotics", "Robotics; language agents", "a; b; “c", "vision\\; speech; robotics", ""]),
    st.sampled_from(["", "1", "0.1; 3", "4", "x"]),
    st.sampled_from(["", "1", "2; 1", "0"]),
    st.sampled_from(["", "games", "cat:cs.CR; games", "the"]),
    st.sampled_from(["", "daily", "weekly", "hourly"]),
    st.sampled_from(["", "active", "paused", "erased"]),
    st.sampled_from(["", "2026-01-02", "2999-01-01", "soon"]),
]  # fmt: skip
_ROWS = st.tuples(*_CELLS).map(lambda cells: ",".join((f"{cells[0]}@example.org", *cells[1:])))


@pytest.mark.once
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(_ROWS, min_size=1, max_size=12))
def test_any_file_has_the_same_result(new_database_url: Callable[[], str], lines: list[str]) -> None:
    first, second = database(new_database_url()), database(new_database_url())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_transfer, "IMPORT_BATCH", 5)
        report = csv_transfer.import_file(first, csv_file(*lines), DEFAULTS, NOW)
    added, rejections = import_by_row(second, csv_file(*lines))
    assert (report.added, [(item.row, item.reason) for item in report.rejections]) == (added, rejections)
    assert contents(first) == contents(second)
    for db in (first, second):
        db.dispose()


def test_one_refused_row_does_not_lose_its_neighbours(new_database_url: Callable[[], str]) -> None:
    """The database refuses an address by a rule of its own."""
    db = Database(new_database_url())
    rule = (
        "CREATE TRIGGER refuse BEFORE INSERT ON subscriber WHEN NEW.email LIKE 'bad@%' "
        "BEGIN SELECT RAISE(ABORT, 'refused'); END"
        if not db.locks_rows
        else "ALTER TABLE subscriber ADD CONSTRAINT refuse CHECK (email NOT LIKE 'bad@%')"
    )
    with db.write() as session:
        session.execute(text(rule))
    names = ("alice", "bad", "bob")
    report = csv_transfer.import_file(
        db, csv_file(*(f"{name}@example.org,robotics,,,,,," for name in names)), DEFAULTS, NOW
    )
    assert (report.added, report.rejections) == (
        2,
        [(3, "the database refused this row: check its values", "bad@example.org")],
    )
    with db.read() as session:
        assert session.exec(select(Subscriber.email).order_by(Subscriber.email)).all() == [
            "alice@example.org",
            "bob@example.org",
        ]
    db.dispose()


def test_times_that_utc_cannot_express_are_skipped(app: Application) -> None:
    moments = ("0001-01-01T00:00+14:00", "2026-01-02T03:04+02:00", "9999-12-31T23:00-10:00")
    lines = [f"reader{number}@example.org,robotics,,,,,,{at}" for number, at in enumerate(moments)]
    report = csv_transfer.import_file(app.db, csv_file(*lines), DEFAULTS, NOW)
    assert (report.added, [(item.row, item.reason[:27]) for item in report.rejections]) == (
        1,
        [(row, "consent_at must be a time, ") for row in (2, 4)],
    )


def test_values_that_cannot_be_bound_are_skipped(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is not asked: SQLAlchemy raises an error of its own."""
    first = datetime.fromisoformat("0001-01-01T00:00+14:00")
    monkeypatch.setattr(csv_format, "_OTHERS", {"consent_at": datetime.fromisoformat})
    monkeypatch.setattr(csv_format, "EARLIEST_CONSENT", first)
    lines = [f"alice@example.org,robotics,,,,,,{first}", "bob@example.org,robotics,,,,,,"]
    report = csv_transfer.import_file(app.db, csv_file(*lines), DEFAULTS, NOW)
    assert (report.added, [(item.row, item.reason) for item in report.rejections]) == (
        1,
        [(2, "the database refused this row: check its values")],
    )


def test_an_unavailable_database_is_no_bad_row() -> None:
    unreachable = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    with pytest.raises(OperationalError):
        csv_transfer.import_file(unreachable, csv_file("alice@example.org,robotics,,,,,,"), DEFAULTS, NOW)
    unreachable.dispose()


def test_rows_are_numbered_as_in_a_spreadsheet(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blank lines have a number. A cell with line breaks is in one row."""
    monkeypatch.setattr(csv_transfer, "IMPORT_BATCH", 1)
    lines = ["", "bad,robotics", "", "", '"alice@example.org","robotics;\n\nvision"', "bad,robotics", ""]
    report = csv_transfer.import_file(app.db, csv_file(*lines), DEFAULTS, NOW)
    assert (report.total, report.rows, report.added) == (3, 3, 1)
    assert [item.row for item in report.rejections] == [3, 7]


def test_missing_interests_and_unknown_zones_are_explained(app: Application) -> None:
    """The reasons are about the file, not about a form."""
    file = csv_file(
        "alice@example.org,,", "bob@example.org,robotics,Mars/Olympus", header="email,interests,zone"
    )
    report = csv_transfer.preview_file(app.db, file, DEFAULTS, NOW)
    assert [item.reason for item in report.rejections] == [
        "there are no interests: add one, or set when_empty to trending",
        "zone must be a time zone, such as Europe/Berlin, not “Mars/Olympus”",
    ]


@pytest.mark.parametrize(
    ("header", "cells", "expected"),
    [
        ("cadence", "Weekly", {"cadence": "weekly"}),
        ("cadence,weekday", "WEEKLY,Friday", {"cadence": "weekly", "weekday": 4}),
        ("weekday", "2", {"weekday": 2}),
        ("when_empty,state", "Trending,Paused", {"when_empty": "trending"}),
        ("zone", "Berlin", {"zone": "Europe/Berlin"}),
        ("zone", "america/new york", {"zone": "America/New_York"}),
        ("zone", "CET", {"zone": "CET"}),
    ],
)
def test_values_are_accepted_as_people_write_them(
    header: str, cells: str, expected: dict[str, object]
) -> None:
    (_, row), *_ = csv_format.read_rows(
        csv_file(f"alice@example.org,robotics,{cells}", header=f"email,interests,{header}")
    )
    stored = asdict(csv_format.parse_row(row, DEFAULTS, NOW).preferences)
    assert {name: stored[name] for name in expected} == expected


def test_a_skipped_row_names_its_address_and_all_its_problems(app: Application) -> None:
    """An operator can mend the file at once. What is stored about the import has no address."""
    header = "email,interests,cadence,hour,zone,min_papers,max_papers,state,paused_until,consent_at"
    lines = (
        "alice@example.org,robotics; ?!; -x,Monthly,24,Mars/Olympus,20,five,gone,2026-11-27,2999-01-01",
        "not an address,,daily,8,UTC,1,10,active,2026-11-27,",
        "BOB@example.org,robotics,,,,,,,,",
        "Bob@Example.org,robotics,,,,,,,,",
        ",robotics,,,,,,,,",
    )
    report = csv_transfer.import_file(app.db, csv_file(*lines, header=header), DEFAULTS, NOW)
    assert [(item.row, item.email) for item in report.rejections] == [
        (2, "alice@example.org"), (3, "not an address"), (5, "bob@example.org"), (6, ""),
    ]  # fmt: skip
    first, second = report.rejections[:2]
    for problem in (
        "the interest “?!”: ",
        "the interest “-x”: ",
        "cadence must be daily or weekdays or weekly, not “Monthly”.",
        "hour: choose an hour from 0 to 23.",
        "zone must be",
        "max_papers must be a whole number, not “five”.",
        "state must be",
        "consent_at is in the future.",
    ):
        assert problem in first.reason
    assert "min_papers" not in first.reason  # it is not compared with a maximum that cannot be read
    assert "paused_until" not in first.reason
    for problem in ("This is not a valid email", "there are no interests", "paused_until needs"):
        assert problem in second.reason
    assert "bob@example.org" not in report.rejections[2].without_address


def test_the_message_about_a_row_is_bounded(app: Application) -> None:
    file = csv_file(f"alice@example.org,{'?!; ' * 5000}", header="email,interests")
    (rejection,) = csv_transfer.preview_file(app.db, file, DEFAULTS, NOW).rejections
    assert len(rejection.reason) < 3000
    assert rejection.reason.endswith(" 4,991 more problems.")


@pytest.mark.parametrize(
    "muted", [["", ""], ["games", "cars"], ["games; cars", "robots; boats"], ["games", "robots; boats"]]
)
def test_muted_words_of_a_batch(muted: list[str], app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is added at once, however many words each subscriber mutes."""
    monkeypatch.delattr(bulk, "add_one")
    lines = [f"reader{number}@example.org,robotics,,,{text},,," for number, text in enumerate(muted)]
    assert csv_transfer.import_file(app.db, csv_file(*lines), DEFAULTS, NOW).added == 2
    with app.db.read() as session:
        stored = session.exec(select(Subscriber.muted).order_by(col(Subscriber.email))).all()
    assert stored == [text.split("; ") if text else [] for text in muted]


OPTED_OUT = (
    "unsubscribed", "never", "none", "-", "off", "inactive", "opted out", "nein", "No (bounced)",
    "unconfirmed", "pending", "0", "2", "no longer since 2024", "3 of 2024",
    "declined 2024", "left 20 Nov 2026", "off nov 2024", "bounced 3 times 2024", "3 times 2024",
)  # fmt: skip
SUBSCRIPTION_TIMES = (
    "2024-01-01 08:00", "12/31/2023", "2024-01-01T10:00:00Z", "2026-11-20T08:00:00.123+00:00", "20240101",
    "20240101T100000Z", "20240101100000", "1700000000", "1700000000.5", "1700000000000", "20 Nov 2026",
    "20-Nov-2026", "November 20 2026 8:00", "20 Nov. 2026", "Fri 20 Nov 2026 08:00:00 GMT", "202611200800",
    "Nov 20th, 2026", "Friday, November 20, 2026", "Fri Nov 20 08:00:00 2026", "20. November 2026, 8:00 Uhr",
    "20. März 2026", "20 août 2026", "20 novembre 2026", "20 de mayo de 2026", "2026年11月20日",
)  # fmt: skip

MISSING_TIMES = (
    "0000-00-00", "0000-00-00 00:00:00", "0001-01-01T00:00:00Z", "1/1/0001 12:00:00 AM", "1900-01-01",
    "01.01.1970", "1 Jan 1970", "Jan 1, 1970", "19700101",
)  # fmt: skip


@pytest.mark.once
@pytest.mark.parametrize(
    ("column", "subscribed", "left"),
    [
        ("status", ("enabled", "Active", "subscribed", "free", ""), ("blocklisted", "inactive", "?")),
        ("subscriber_type", ("regular", "past_due"), ("unsubscribed", "unactivated", "spammy", "removed")),
        ("email_disabled", ("false", ""), ("true",)),
        ("email_status", ("valid", "Verified", "ok", "Opted In"), ("bounced", "unknown")),
        ("Subscriber status", ("1", "true", "yes", "opt-in"), ("0", "Opted-out", "PhD student")),
        ("subscribed_to_emails", ("true", ""), ("false", "FALSE", "none", "NULL")),
        ("subscribed", ("Y", "active", *SUBSCRIPTION_TIMES), OPTED_OUT),
        ("Is confirmed?", ("t", "1.0"), ("unconfirmed", "pending", *MISSING_TIMES)),
        ("E-mail opt-in", ("yes",), ("never", "-")),
        ("deleted_at", ("",), ("2024-02-12T01:58:29.122Z",)),
        ("UNSUB_TIME", ("",), ("2024-02-12 01:58:29",)),
        ("Unsubscribed", ("", "0"), ("1", "2024-02-12 01:58:29")),
        ("Unsubscribed At", ("", *MISSING_TIMES), ("2024-02-12", "20. November 2026", "1700000000")),
        ("blacklisted", ("0",), ("1",)),
        ("confirmed", ("1",), ("0",)),
        ("unsubscribe_date", (r"\N", "n/a"), ("2024-02-12", "nein")),
        ("bounced", ("0", "0.0", "false", "No"), ("2", "hard")),
        ("is_blocklisted", ("NULL", "none", "-", "never", "off", "0"), ("true",)),
        ("Opt-out?", ("f",), ("x",)),
    ],
)
def test_people_who_left_another_service_are_skipped(
    column: str, subscribed: tuple[str, ...], left: tuple[str, ...], app: Application
) -> None:
    """The columns and values are those of other services' exports."""
    cells = (*subscribed, *left)
    rows = [f'reader{number}@example.org,robotics,"{cell}"' for number, cell in enumerate(cells)]
    file = csv_file(*rows, header=f"email,interests,{column}")
    report = csv_transfer.import_file(app.db, file, DEFAULTS, NOW)
    assert (report.added, report.rejected, report.ignored_columns) == (len(subscribed), len(left), ())
    assert all("empty the cell" in item.reason for item in report.rejections)


@pytest.mark.once
def test_other_columns_about_an_opt_out_may_be_combined(app: Application) -> None:
    """Several columns may say who left. Columns with the time of a subscription are ignored."""
    header = "email,interests,unsubscribed,unsubscribed_at,subscribed_at"
    file = csv_file(
        "alice@example.org,robotics,no,,never", "bob@example.org,robotics,no,2024-02-12,", header=header
    )
    report = csv_transfer.import_file(app.db, file, DEFAULTS, NOW)
    assert (report.added, report.rejected, report.ignored_columns) == (1, 1, ("subscribed_at",))


@pytest.mark.once
@pytest.mark.parametrize(
    "header",
    ["email,interests,EMAIL", "email,interests,interests", "email,interests,Opt-out,is_opt_out"],
)
def test_repeated_columns_are_refused(header: str, app: Application) -> None:
    """The last one counted. Columns that are not imported may be repeated."""
    file = csv_file("alice@example.org,robotics,,", header=header)
    with pytest.raises(InvalidInput, match=r"several columns named “(email|interests|opt_out)”"):
        csv_transfer.import_file(app.db, file, DEFAULTS, NOW)
    file = csv_file("alice@example.org,robotics,1,2", header="email,interests,note,note")
    assert csv_transfer.import_file(app.db, file, DEFAULTS, NOW).added == 1


@pytest.mark.parametrize(
    ("cell", "hour"),
    [("8", 8), ("08:00", 8), ("8:00", 8), ("08:00:00", 8), ("00:00", 0), ("08:30", None), (":00", None)],
)
def test_hour_as_on_the_pages(cell: str, hour: int | None, app: Application) -> None:
    """Spreadsheet programs and the pages write 08:00. Digests are sent only at full hours."""
    file = csv_file(f"alice@example.org,robotics,{cell}", header="email,interests,hour")
    report = csv_transfer.preview_file(app.db, file, DEFAULTS, NOW)
    assert [new.preferences.hour for new in report.first] == ([] if hour is None else [hour])
    reasons = [item.reason for item in report.rejections]
    assert reasons == (
        [f"hour must be a full hour, such as 8 or 08:00, not “{cell}”"] if hour is None else []
    )


@pytest.mark.once
def test_rows_of_empty_cells_are_skipped(app: Application) -> None:
    """Spreadsheet programs write them for cleared rows. They count as lines, but not as people."""
    file = csv_file("alice@example.org;robotics", ";", " ; ;", "bob@example.org;?!", header="email;interests")
    report = csv_transfer.import_file(app.db, file, DEFAULTS, NOW)
    assert (report.total, report.added) == (2, 1)
    assert [item.row for item in report.rejections] == [5]


@pytest.mark.once
@pytest.mark.parametrize("email", ["E-Mail", " e_mail ", "EMAIL", "Email address", "E-Mail Address"])
def test_headings_as_people_write_them(email: str, app: Application) -> None:
    file = csv_file("alice@example.org,robotics,weekly,5", header=f"{email},Interests,Cadence,Max papers")
    report = csv_transfer.preview_file(app.db, file, DEFAULTS, NOW)
    assert [(new.email, new.preferences.max_papers) for new in report.first] == [("alice@example.org", 5)]


@pytest.mark.once
@pytest.mark.parametrize(
    ("header", "ignored"),
    [
        ("E-Mail Address,Email,Interests,max-papers,max_papers", ("E-Mail Address", "max-papers")),
        ("note,Email,Interests,State/,max_papers", ("note", "State/")),
        ("note,Email,Interests,Weights (%),MAX PAPERS", ("note", "Weights (%)")),
        ("note,E_Mail,Interests,#Hour,Max-Papers", ("note", "#Hour")),
    ],
)
def test_other_headings_are_ignored(header: str, ignored: tuple[str, ...], app: Application) -> None:
    """The exact name of a column is preferred to other spellings. Other punctuation has a meaning."""
    file = csv_file("other@example.org,alice@example.org,robotics,9,5", header=header)
    report = csv_transfer.preview_file(app.db, file, DEFAULTS, NOW)
    assert [(new.email, new.preferences.max_papers) for new in report.first] == [("alice@example.org", 5)]
    assert report.ignored_columns == ignored


@pytest.mark.once
def test_missing_headings(app: Application) -> None:
    """The error does not show the address in the first line."""
    file = csv_file("bob@example.org,ai", header="alice@example.org,robotics")
    with pytest.raises(
        InvalidInput, match="no column “email”: its first line must name the columns"
    ) as error:
        csv_transfer.import_file(app.db, file, DEFAULTS, NOW)
    assert "alice" not in str(error.value)


@pytest.mark.once
def test_missing_column(app: Application) -> None:
    """The error names the columns of the file, one of which may have to be renamed."""
    file = csv_file("alice@example.org,robotics", header='"Ihre\nAdresse",Interests')
    missing = (
        "the file has no column “email”: add it, or rename a column to it.* are “Ihre Adresse”, “interests”"
    )
    with pytest.raises(InvalidInput, match=missing):
        csv_transfer.import_file(app.db, file, DEFAULTS, NOW)


@pytest.mark.parametrize("email", ["ivan@example.org", "pending@example.org"])
def test_consent_version_without_its_time_is_stored(email: str, app: Application) -> None:
    """It was previewed but dropped. The time of the consent is then that of the import."""
    with app.db.write() as session:
        prepare(session)
    file = csv_file(f"{email},robotics,form v2", header="email,interests,consent_version")
    preview = csv_transfer.preview_file(app.db, file, DEFAULTS, NOW)
    assert [new.consent_version for new in preview.first] == ["form v2"]
    assert csv_transfer.import_file(app.db, file, DEFAULTS, NOW).added == 1
    with app.db.read() as session:
        stored = session.exec(select(Subscriber).where(Subscriber.email == email)).one()
    assert (stored.consent_version, stored.consent_at) == ("form v2", NOW)


def test_long_reports_count_all_rows(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated import still lists the rows that are invalid."""
    monkeypatch.setattr(csv_transfer, "MAX_LISTED", 4)
    monkeypatch.setattr(csv_transfer, "MAX_CONFLICTS_LISTED", 2)
    csv_transfer.import_file(app.db, csv_file("alice@example.org,robotics,,,,,,"), DEFAULTS, NOW)
    lines = [*["alice@example.org,robotics,,,,,,"] * 4, *["nobody,robotics,,,,,,"] * 5]
    report = csv_transfer.import_file(app.db, csv_file(*lines), DEFAULTS, NOW)
    assert (report.rows, report.added, report.rejected, report.registered) == (9, 0, 9, 4)
    assert [item.row for item in report.rejections] == [2, 3, 6, 7]


@pytest.mark.parametrize("size", [1, 500])
def test_repeated_addresses_name_their_first_row(
    app: Application, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preview and the import agree. A row that was skipped does not count as the first."""
    monkeypatch.setattr(csv_transfer, "IMPORT_BATCH", size)
    lines = ["rita@example.org,robotics,many", "rita@example.org,robotics,", "rita@example.org,vision,"]
    for run in (csv_transfer.preview_file, csv_transfer.import_file):
        report = run(app.db, csv_file(*lines, header="email,interests,weights"), DEFAULTS, NOW)
        assert (report.added, report.rejected, report.registered) == (1, 2, 0)
        assert report.rejections[1] == (4, "this row has the same address as row 3", "rita@example.org")


_TEXTS = st.lists(
    st.text(st.sampled_from("ab;\\\" ',=-+@“"), min_size=1, max_size=12).map(str.strip).filter(bool),
    max_size=5,
)


@given(texts=_TEXTS)
def test_texts_with_separators_survive(texts: list[str]) -> None:
    assert list(csv_format.split_list(csv_format.join_list(texts))) == texts


@pytest.mark.parametrize(
    ("cell", "texts"),
    [
        ('language agents; "world models"', ("language agents", '"world models"')),
        (";a;; b ;", ("a", "b")),
        (r"\alpha; a\b; c\ ", ("\\alpha", "a\\b", "c\\")),
        (r"a\; b; c", ("a; b", "c")),
        (r"a\\; b", ("a\\", "b")),
        (r"a\\\; b", ("a\\; b",)),
        ("", ()),
    ],
)
def test_backslash_matters_only_before_a_separator(cell: str, texts: tuple[str, ...]) -> None:
    """Cells without such backslashes are read as in 0.1.0."""
    assert csv_format.split_list(cell) == texts


_INTERESTS = st.lists(
    st.builds(
        Interest,
        st.sampled_from(["agents; planning", "'=robots", "-games agents", "c\\", 'say "a; b"', "x\\;y"]),
        st.floats(min_value=1e-300, max_value=3),
        st.none() | st.integers(1, 30),
    ),
    min_size=1, max_size=6, unique_by=lambda interest: interest.text,
)  # fmt: skip


@pytest.mark.once
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(interests=_INTERESTS, muted=st.sets(st.sampled_from(["a; games", "=b", "c\\", "'-d"])))
def test_exported_interests_are_imported_unchanged(
    new_database_url: Callable[[], str], interests: list[Interest], muted: set[str]
) -> None:
    db = Database(new_database_url())
    chosen = Preferences(interests=tuple(interests), muted=tuple(muted))
    with db.write() as session:
        subscribers.add(session, "alice@example.org", chosen, NOW)
    exported = io.StringIO()
    subscribers.write_csv(subscribers.exported(db), exported)
    db.dispose()
    db = Database(new_database_url())
    file = io.BytesIO(exported.getvalue().encode())
    assert csv_transfer.import_file(db, file, Preferences(), NOW).added == 1
    with db.read() as session:
        alice = subscribers.find(session, "alice@example.org")
        assert subscribers.preferences_of(session, alice) == subscribers.check(chosen)
    db.dispose()


def test_export_of_an_interest_that_forms_refuse_is_imported(app: Application) -> None:
    """Earlier releases stored overlong words, which only new interests may not have."""
    old = "x" * 200
    file = csv_file(f"alice@example.org,{old}", header="email,interests")
    assert csv_transfer.import_file(app.db, file, DEFAULTS, NOW).added == 1
    with app.db.read() as session:
        alice = subscribers.find(session, "alice@example.org")
        assert subscribers.preferences_of(session, alice).interests == (Interest(old),)


@pytest.mark.parametrize("is_pending", [False, True], ids=["new", "pending"])
@pytest.mark.parametrize(
    ("days", "state", "until"),
    [
        (0, SubscriberState.PAUSED, datetime(2026, 11, 26, 15, tzinfo=UTC)),
        (7, SubscriberState.ACTIVE, None),
    ],
    ids=["paused", "ended since"],
)
def test_end_of_a_pause_is_imported(
    new_database_url: Callable[[], str],
    is_pending: bool,
    days: int,
    state: SubscriberState,
    until: datetime | None,
) -> None:
    """Digests resume on the day that the reader chose. If it has passed, the subscriber is active."""
    db, now = Database(new_database_url()), NOW + timedelta(days=days)
    with db.write() as session:
        alice = subscribers.add(session, "alice@example.org", replace(ROBOTS, zone="Asia/Tokyo"), NOW)
        subscribers.pause(session, alice, datetime(2026, 11, 27, tzinfo=ZoneInfo("Asia/Tokyo")), NOW)
    exported = io.StringIO()
    subscribers.write_csv(subscribers.exported(db), exported)
    db.dispose()
    db = Database(new_database_url())
    if is_pending:
        with db.write() as session:
            factories.sign_up(session, SignUp("alice@example.org", ROBOTS), "", NOW)
    file = io.BytesIO(exported.getvalue().encode())
    assert csv_transfer.import_file(db, file, Preferences(), now).added == 1
    with db.read() as session:
        row = subscribers.find(session, "alice@example.org")
        assert (row.state, row.paused_until, row.next_due_at is None) == (state, until, until is not None)
        pauses = session.exec(select(Event.detail).where(Event.kind == "paused")).all()
        assert pauses == (["until 2026-11-27"] if until else [])
    db.dispose()


@pytest.mark.parametrize(
    ("state", "until", "reason"),
    [
        ("paused", "tomorrow", "paused_until must be a time, such as 2026-11-27T00:00Z, not “tomorrow”"),
        ("paused", "2027-11-27", "paused_until is more than a year away"),
        ("active", "2026-11-27", "paused_until needs the state paused"),
        ("", "2026-11-27", "paused_until needs the state paused"),
    ],
)
def test_invalid_ends_of_a_pause_are_explained(app: Application, state: str, until: str, reason: str) -> None:
    file = csv_file(
        f"alice@example.org,robotics,{state},{until}", header="email,interests,state,paused_until"
    )
    (rejection,) = csv_transfer.import_file(app.db, file, DEFAULTS, NOW).rejections
    assert rejection.reason == reason
