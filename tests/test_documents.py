"""Check that documents and packaging files name only settings, commands, files and columns that exist."""

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from typer.testing import CliRunner

from app.cli import sample
from app.cli.commands import cli
from app.cli.demo import sample_subscribers
from app.settings import Settings
from app.storage import schema
from app.storage.database import ROOT
from app.subscribers.csv_format import COLUMNS

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
OPERATING = (ROOT / "docs/operating.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = (ROOT / "compose.yaml").read_text()
DOCUMENTS = [
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]
# Variables of tests, and of the API guide's session.
FOR_TESTS = {
    f"PAPERBOY_{name}"
    for name in ("ATTACKS", "EXAMPLES", "REQUIRE_BROWSER", "REQUIRE_SPAMASSASSIN", "KEY", "URL")
}
SETTINGS = {f"PAPERBOY_{name.upper()}" for name in Settings.model_fields}


def targets() -> set[str]:
    return set(re.findall(r"^([a-z.]+):", MAKEFILE, re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_make_targets_exist(document: str) -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z.]+)", (ROOT / document).read_text(), re.MULTILINE))
    assert named <= targets()


TEMPLATES = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "templates").rglob("*.*"))]


@pytest.mark.parametrize("text", [*DOCUMENTS, *TEMPLATES, ".env.example", "compose.yaml"])
def test_a_single_message_is_called_an_email(text: str) -> None:
    """“Mail” is mail in general. Names in code are exempt, and so are titles of files."""
    code = r"(?s)```.*?```|`[^`]*`|\{[{%#].*?[#%}]\}|<[^>]*>|\]\([^)]*\)"
    prose = re.sub(code, "", (ROOT / text).read_text(encoding="utf-8"))
    another_noun = r"(?!\s(?:catcher|client|kind|message|program|provider|relay|rule|scanner|server|system))"
    nouns = rf"\bmails\b|\be-mails?\b|\b(?:a|an|one|each|every|another|per)\s(?:#\s)?mail\b{another_noun}"
    assert re.findall(rf"(?i){nouns}|\bmail (?:me|them|new)\b", prose) == []


@pytest.mark.parametrize("document", [*DOCUMENTS, "compose.yaml", "Dockerfile"])
def test_settings_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    current = re.sub(
        r"(?m)^  \|[^|]*\|[^|]*\|", "", text
    )  # the table of names in the changelog has the old names
    assert set(re.findall(r"PAPERBOY_[A-Z_]*[A-Z]", current)) <= SETTINGS | FOR_TESTS


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_to_files_and_headings(document: str) -> None:
    """This includes images."""
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", (ROOT / document).read_text())
    folder = (ROOT / document).parent
    targets_of_links = [(folder / name if name else ROOT / document, heading) for name, heading in links]
    assert [str(path) for path, _ in targets_of_links if not path.exists()] == []
    assert [heading for path, heading in targets_of_links if heading and heading not in anchors(path)] == []


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub generates for the headings of a file."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_exist(document: str) -> None:
    paths = re.findall(
        r"(?<![\w/.])(?:app|benchmarks|scripts|templates|tests)/[\w./-]*\w", (ROOT / document).read_text()
    )
    assert [path for path in paths if not (ROOT / path).exists()] == []


def commands_in(text: str) -> list[str]:
    """Return the commands in the code of a document, without `paperboy`."""
    blocks = re.findall(r"^ *(?:\S*/)?paperboy (.+?)(?:\s+#.*)?$", text, re.MULTILINE)
    spans = re.findall(r"`(?:[\w./]*/)?paperboy ([^`]+)`", text)
    return [*blocks, *(" ".join(span.split()) for span in spans)]


@pytest.mark.parametrize(
    "document", ["README.md", "compose.yaml", *sorted(each.name for each in DOCS.glob("*.md"))]
)
def test_commands_and_options_exist(document: str) -> None:
    text = (ROOT / document if (ROOT / document).exists() else DOCS / document).read_text()
    commands = commands_in(text)
    commands += [" ".join(json.loads(each)[1:]) for each in re.findall(r"\[\"\.venv/bin/paperboy.*\]", text)]
    for command in commands:
        words = shlex.split(command.replace("…", ""))
        result = CliRunner().invoke(cli, [*_command_of(words), "--help"], terminal_width=200)
        assert result.exit_code == 0, command
        options = [word for word in words if word.startswith("--")]
        assert [option for option in options if option not in result.output] == [], command


def test_commands_in_documents_have_their_required_options() -> None:
    """An address on its own is not enough to lift a suppression."""
    commands = commands_in(OPERATING)
    assert len(commands) > 40
    (lift,) = [command for command in commands if command.startswith("suppressions lift")]
    assert shlex.split(lift)[2:4] == ["alice@example.org", "--reason"]


def _command_of(words: list[str]) -> list[str]:
    """Return the command and its subcommand without arguments. Options such as --version have none."""
    if words[0].startswith("--"):
        return []
    groups = {"subscribers", "papers", "key", "sources", "model", "suppressions", "sending", "webhooks"}
    return words[:2] if words[0] in groups else words[:1]


def test_documents_describe_the_sample() -> None:
    """It has the papers of ten working days."""
    days = sorted({day for file in sample.sample_files() if (day := sample.day_in(file.path.name))})
    assert len(days) == len([day for day in days if day.weekday() < 5]) == 10
    period = (
        f"the papers of ten working days, {days[0].day} to {days[-1].day} {days[-1]:%B %Y}, with nine sub"
    )
    assert period in " ".join(OPERATING.split())
    assert len(sample_subscribers.SUBSCRIBERS) == 9


def test_readme_examples_match_the_demo() -> None:
    """New users try them first."""
    examples = re.findall(r'(?:preview --interest|backtest) "([^"]+)"', README)
    (reader, paper) = re.findall(r"paperboy explain (\S+) (\S+)", README)[0]
    texts = "".join(file.path.read_text().lower() for file in sample.sample_files())
    assert len(examples) == 2
    assert all(each in texts for each in [*examples, paper])
    preferences = {person.email: person.preferences for person in sample_subscribers.SUBSCRIBERS}[reader]
    assert set(examples) <= {interest.text for interest in preferences.interests}, "and it was sent"


def test_import_columns_are_documented() -> None:
    """The operating guide names each column of the CSV file, and no other."""
    (text,) = re.findall(r"\*\*Importing subscribers\.\*\*((?:.|\n)+?)\n- ", OPERATING)
    assert set(re.findall(r"`([a-z_]+)`", text)) == set(COLUMNS)


def test_readme_starts_with_two_commands() -> None:
    """One tries the service and one runs the tests."""
    first = README.split("## ")[0]
    commands = re.findall(r"^(make .*?)\s+#", first, re.MULTILINE)
    assert commands == ["make demo", "make test"]
    assert first.count("```sh") == 1


def test_readme_fits_two_screens() -> None:
    assert len(README.splitlines()) <= 100


@pytest.mark.skipif(shutil.which("sh") is None, reason="no shell on this machine")
def test_cron_line_makes_a_backup(tmp_path: Path) -> None:
    """It is run as cron does, by `sh`, and deletes old backups, as the systemd service does."""
    (line,) = re.findall(r"^  30 3 \* \* \* (.+)$", OPERATING, re.MULTILINE)
    service = (ROOT / "deploy" / "paperboy-backup.service").read_text()
    assert line.partition(" find var/backups ")[2].replace("'", '"') in service
    backups = tmp_path / "var" / "backups"
    (backups / "kept").mkdir(parents=True)
    for name in ("paperboy-20261001T033000Z.zip", "before-upgrade.zip", "kept/paperboy-20261001T033000Z.zip"):
        (backups / name).touch()
        os.utime(backups / name, (0, 0))
    command = line.replace("/opt/paperboy", str(tmp_path)).replace(
        ".venv/bin/paperboy", f"{sys.executable} -c 'from app.cli import main; main()'"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    schema.migrate(f"sqlite:///{tmp_path}/var/paperboy.db")
    subprocess.run(["sh", "-c", command], env=environment, check=True)  # noqa: S603, S607
    assert (backups / "kept" / "paperboy-20261001T033000Z.zip").exists()
    before, kept, made = sorted(path.name for path in backups.iterdir())
    assert (before, kept) == ("before-upgrade.zip", "kept")
    assert made.startswith("paperboy-2")
    assert not made.startswith("paperboy-20261001")


def test_changelog_has_the_version_and_says_how_to_upgrade() -> None:
    """Backups name the version. With unreleased changes, it is a development version of the next release."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    version = Version(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    newest = max(map(Version, re.findall(r"^## \[(\d.*)\] - ", changelog, re.MULTILINE)))
    unreleased = changelog.partition("\n## [Unreleased]\n")[2].partition("\n## ")[0]
    is_changed = "\n- " in unreleased
    assert (version == newest, version > newest, version.is_devrelease) == (
        not is_changed, is_changed, is_changed
    )  # fmt: skip
    assert "\n### Upgrading\n" in unreleased


def test_lock_files_have_hashes_and_no_hosts() -> None:
    """Installers get exactly these files from any registry."""
    for name in ("requirements.lock", "requirements-dev.lock"):
        lock = (ROOT / name).read_text()
        assert "--hash=sha256:" in lock
        assert "://" not in lock
        assert "\nsetuptools==" in lock


def test_lock_files_name_extras() -> None:
    """Pip before 24 takes `coverage[toml]` for another, unpinned package than `coverage`."""
    lock = (ROOT / "requirements-dev.lock").read_text()
    locked = dict(re.findall(r"^([a-z0-9-]+)(\[.+\])?==", lock, re.MULTILINE))
    for distribution in importlib.metadata.distributions():
        for text in distribution.requires or ():
            requirement = Requirement(text)
            name = requirement.name.lower().replace("_", "-")
            if requirement.extras and name in locked and " extra ==" not in text:
                assert locked[name] == f"[{','.join(sorted(requirement.extras))}]", text


def test_files_that_containers_mount_exist() -> None:
    """Docker makes an empty folder of a file that does not exist."""
    mounted = re.findall(r"- (\./[^:]+):", COMPOSE)
    assert mounted
    assert all((ROOT / path).exists() for path in mounted)


def test_container_image_copies_existing_files() -> None:
    """Files in .dockerignore cannot be copied."""
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    allowed = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    sources = {source for line in copied for source in line.split()}
    assert sources == allowed
    assert all((ROOT / source).exists() for source in sources)


def test_containers_use_the_relay_of_env_file() -> None:
    """Only its host has another default, so port and encryption of a relay have those of `.env.example`."""
    shared = COMPOSE.partition("services:")[0]
    assert re.findall(r"^    (PAPERBOY_SMTP_\w+):", shared, re.MULTILINE) == ["PAPERBOY_SMTP_HOST"]
    assert f'MP_SMTP_BIND_ADDR: "[::]:{Settings.model_fields["smtp_port"].default}"' in COMPOSE


def test_containers_use_the_database_of_env_file() -> None:
    """Backups are restored into a new database. Compose expands variables like the shell."""
    (value,) = re.findall(r"^    PAPERBOY_DATABASE_URL: (\S+)$", COMPOSE, re.MULTILINE)
    for url, expanded in {
        "": "postgresql+psycopg://paperboy:pw@db:5432/paperboy",
        "sqlite://": "sqlite://",
    }.items():
        echo = ["sh", "-c", f'echo "{value}"']
        environ = {"POSTGRES_PASSWORD": "pw", "PAPERBOY_DATABASE_URL": url}
        assert subprocess.check_output(echo, env=environ, text=True) == f"{expanded}\n"  # noqa: S603


def test_containers_that_send_have_a_journal_volume_and_stop_time() -> None:
    """Without a volume the journal is lost with its container, and emails in flight are uncertain."""
    text = "\n".join(line for line in COMPOSE.splitlines() if not line.startswith("#"))
    shared, own = text.partition("services:")[::2]
    assert 'volumes: ["var:/app/var"]' in shared
    assert int(re.findall(r"stop_grace_period: (\d+)s", shared)[0]) > 10
    assert "/app/var" not in own
    assert Settings.model_fields["journal_dir"].default.startswith("var/")


def test_no_absolute_paths_of_a_machine() -> None:
    """Check every file in git for home and work folders."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    here = str(ROOT)
    offenders = [
        name
        for name in filter(None, listed.stdout.split("\0"))
        if (ROOT / name).is_file() and here.encode() in (ROOT / name).read_bytes()
    ]
    assert offenders == []


def test_env_file_is_created_without_a_virtual_environment(tmp_path: Path) -> None:
    """Container users have none; an empty file would look complete."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    subprocess.run(["make", ".env"], cwd=tmp_path, capture_output=True, check=True)  # noqa: S607
    env_file = tmp_path / ".env"
    assert "PAPERBOY_SECRET_KEYS=" in env_file.read_text()
    assert env_file.stat().st_mode & 0o077 == 0


def test_nginx_accepts_the_largest_import() -> None:
    """nginx's megabytes have 1024 * 1024 bytes. A form adds less than a kilobyte to the file."""
    limit = re.search(r"client_max_body_size (\d+)m;", (ROOT / "deploy/nginx.conf").read_text())
    assert limit
    assert int(limit[1]) * 1024 * 1024 > Settings.model_fields["max_import_bytes"].default + 1000
