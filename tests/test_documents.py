"""Documents and packaging files name only settings, commands, files and columns that exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import cli, sample
from app.cli.demo import sample_subscribers
from app.cli.subscribers import COLUMNS
from app.settings import Settings
from app.storage.database import ROOT

README = (ROOT / "README.md").read_text()
OPERATING = (ROOT / "docs/operating.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = (ROOT / "compose.yaml").read_text()
DOCUMENTS = [
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]
FOR_TESTS = {
    f"PAPERBOY_{name}" for name in ("ATTACKS", "EXAMPLES", "REQUIRE_BROWSER", "REQUIRE_SPAMASSASSIN")
}
SETTINGS = {f"PAPERBOY_{name.upper()}" for name in Settings.model_fields}


def targets() -> set[str]:
    return set(re.findall(r"^([a-z.]+):", MAKEFILE, re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_make_target_that_is_named_exists(document: str) -> None:
    """Every `make` target in a text can be run."""
    named = set(re.findall(r"(?:^|`)make ([a-z.]+)", (ROOT / document).read_text(), re.MULTILINE))
    assert named <= targets()


@pytest.mark.parametrize("document", [*DOCUMENTS, "compose.yaml", "Dockerfile"])
def test_every_setting_that_is_named_exists(document: str) -> None:
    """A setting that was renamed is renamed everywhere."""
    text = (ROOT / document).read_text()
    current = re.sub(r"(?m)^  \|[^|]*\|[^|]*\|", "", text)  # the changelog's table of names has the old ones
    assert set(re.findall(r"PAPERBOY_[A-Z_]*[A-Z]", current)) <= SETTINGS | FOR_TESTS


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_is_linked_exists(document: str) -> None:
    """Pictures and links, to a file or to a heading in one, have a target."""
    links = re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", (ROOT / document).read_text())
    folder = (ROOT / document).parent
    targets_of_links = [(folder / name if name else ROOT / document, heading) for name, heading in links]
    assert [str(path) for path, _ in targets_of_links if not path.exists()] == []
    assert [heading for path, heading in targets_of_links if heading and heading not in anchors(path)] == []


def anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a file."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_that_is_named_exists(document: str) -> None:
    """A module that was moved is renamed in all documents."""
    paths = re.findall(
        r"(?<![\w/.])(?:app|benchmarks|scripts|templates|tests)/[\w./-]*\w", (ROOT / document).read_text()
    )
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_command_that_is_named_exists() -> None:
    """A line of the README can be typed, option by option."""
    commands = re.findall(r"^\.venv/bin/paperboy (.+?)(?:\s+#.*)?$", README, re.MULTILINE)
    commands += [
        " ".join(json.loads(each)[1:]) for each in re.findall(r"\[\"\.venv/bin/paperboy.*\]", COMPOSE)
    ]
    assert len(commands) >= 6
    for command in commands:
        words = shlex.split(command)
        result = CliRunner().invoke(cli, [*_named(words), "--help"], terminal_width=200)
        assert result.exit_code == 0, command
        assert [word for word in words if word.startswith("--") and word not in result.output] == []


def _named(words: list[str]) -> list[str]:
    """The command and its subcommand, without what is given to them."""
    groups = {"subscribers", "key", "sources", "model", "suppressions", "sending"}
    return words[:2] if words[0] in groups else words[:1]


def test_its_examples_find_something_in_the_demo() -> None:
    """Whoever has just run the demo tries these first."""
    asked = re.findall(r'(?:preview --interest|backtest) "([^"]+)"', README)
    (reader, paper) = re.findall(r"paperboy explain (\S+) (\S+)", README)[0]
    texts = "".join(file.path.read_text().lower() for file in sample.sample_files())
    assert len(asked) == 2
    assert all(each in texts for each in [*asked, paper])
    wanted = {person.email: person.preferences for person in sample_subscribers.SUBSCRIBERS}[reader]
    assert set(asked) <= {wish.text for wish in wanted.interests}, "and it was sent"


def test_every_column_of_an_imported_list_is_documented() -> None:
    """The operating guide names each column of the CSV file, and no other."""
    (text,) = re.findall(r"\*\*Importing readers\.\*\*((?:.|\n)+?)\n- ", OPERATING)
    assert set(re.findall(r"`([a-z_]+)`", text)) == set(COLUMNS)


def test_the_first_screen_holds_the_two_commands() -> None:
    """Whoever opens the page sees how to try it and how to test it, and nothing else to type."""
    first = README.split("## ")[0]
    commands = re.findall(r"^(make .*?)\s+#", first, re.MULTILINE)
    assert commands == ["make demo", "make test"]
    assert first.count("```sh") == 1


def test_the_changelog_has_room_for_the_next_release() -> None:
    """Every change can be written down where it belongs."""
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_locks_name_hashes_and_no_hosts() -> None:
    """Whoever installs gets these very files, from the registry of their choice."""
    for name in ("requirements.lock", "requirements-dev.lock"):
        lock = (ROOT / name).read_text()
        assert "--hash=sha256:" in lock
        assert "://" not in lock
        assert "\nsetuptools==" in lock


def test_the_image_copies_only_what_exists_and_is_let_through() -> None:
    """A file that .dockerignore hides can't be copied."""
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    allowed = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    sources = {source for line in copied for source in line.split()}
    assert sources == allowed
    assert all((ROOT / source).exists() for source in sources)


def test_whoever_sends_in_a_container_keeps_its_journal_and_has_time_to_end() -> None:
    """A journal in memory is gone with its container, and all mails in hand would be of unknown fate."""
    text = "\n".join(line for line in COMPOSE.splitlines() if not line.startswith("#"))
    shared, own = text.partition("services:")[::2]
    assert 'volumes: ["var:/app/var"]' in shared
    assert int(re.findall(r"stop_grace_period: (\d+)s", shared)[0]) > 10
    assert "/app/var" not in own
    assert Settings.model_fields["journal_dir"].default.startswith("var/")


def test_nothing_of_one_machine_is_written_down() -> None:
    """No absolute path of a home or work folder is in any file that git keeps."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    here = str(ROOT)
    offenders = [
        name
        for name in filter(None, listed.stdout.split("\0"))
        if (ROOT / name).is_file() and here.encode() in (ROOT / name).read_bytes()
    ]
    assert offenders == []


def test_a_first_env_is_made_on_a_fresh_machine(tmp_path: Path) -> None:
    """Whoever only wants containers has no virtual environment here; an empty file would pass for done."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    subprocess.run(["make", ".env"], cwd=tmp_path, capture_output=True, check=True)  # noqa: S607
    made = tmp_path / ".env"
    assert "PAPERBOY_SECRET_KEYS=" in made.read_text()
    assert made.stat().st_mode & 0o077 == 0
