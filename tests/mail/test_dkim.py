"""Test DKIM signatures with an independent verifier, dkimpy."""

import json
import re
import resource
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dkim as dkimpy
import pytest
from click.testing import Result
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from typer.testing import CliRunner

from app import main
from app.cli.commands import cli
from app.errors import Conflict, InvalidSettings
from app.mail import composer as composer_module
from app.mail import dkim, template_folders
from app.mail.composer import SIGNED_SETTINGS, Composer
from app.mail.dkim import Algorithm
from app.mail.render import Renderer
from app.settings import Settings
from app.types import MailKind, MailRequest
from tests.support import sample_digest

pytestmark = pytest.mark.once

ALL = (Algorithm.RSA, Algorithm.ED25519)


@pytest.fixture(scope="session")
def key_files(tmp_path_factory: pytest.TempPathFactory) -> dict[Algorithm, Path]:
    """Create one key of each algorithm, once for all tests."""
    folder = tmp_path_factory.mktemp("keys")
    files = {algorithm: folder / f"{algorithm}.pem" for algorithm in ALL}
    for algorithm, path in files.items():
        dkim.create(algorithm, path)
    return files


Composing = Callable[..., Composer]


@pytest.fixture
def create_composer(settings: Settings, key_files: dict[Algorithm, Path]) -> Composing:
    """Return a function that creates a composer with keys of some algorithms."""

    def make(*algorithms: Algorithm, **changed: str) -> Composer:
        keys = tuple(f"{algorithm}:{key_files[algorithm]}" for algorithm in algorithms)
        own = Settings(_env_file=None, **{**settings.model_dump(), "dkim_keys": keys, **changed})
        signer = main.build_signer(own)
        return Composer(own, signer, Renderer(own, signer))

    return make


@pytest.fixture
def mail_request(now: datetime) -> MailRequest:
    return MailRequest(
        delivery_id=42,
        kind=MailKind.DIGEST,
        edition="2026-11-20",
        subscriber_id=7,
        email="alice@example.org",
        link_epoch=1,
        issued_at=now,
        digest=sample_digest.digest(),
    )


def verify_signatures(
    data: bytes, key_files: dict[Algorithm, Path], domain: str = "paperboy.test"
) -> list[bool]:
    """Verify each signature of an email with dkimpy and our published records."""
    keys = dkim.load(f"{algorithm}:{path}" for algorithm, path in key_files.items())
    published = dict(key.record(domain) for key in keys)

    def answer(name: bytes, timeout: int = 5) -> bytes:
        return published[name.decode().rstrip(".")].encode()

    def verify(number: int) -> bool:
        try:
            return bool(dkimpy.DKIM(data).verify(idx=number, dnsfunc=answer))
        except dkimpy.ValidationError:
            return False

    return [verify(number) for number in range(len(re.findall(rb"^DKIM-Signature:", data, re.MULTILINE)))]


def compose_bytes(composer: Composer, mail_request: MailRequest) -> bytes:
    return composer.sign_and_serialize(composer.draft(mail_request)).data


@pytest.mark.parametrize("algorithms", [ALL[:1], ALL[1:], ALL])
@pytest.mark.parametrize("kind", list(MailKind))
def test_all_mails_verify(
    create_composer: Composing,
    key_files: dict[Algorithm, Path],
    mail_request: MailRequest,
    algorithms: Sequence[Algorithm],
    kind: MailKind,
) -> None:
    """Test digests and service emails with RSA, Ed25519 and both."""
    composer = create_composer(*algorithms)
    data = compose_bytes(composer, mail_request._replace(kind=kind))
    assert composer.signs
    assert verify_signatures(data, key_files) == [True] * len(algorithms)
    assert re.findall(rb"a=(\w+)-sha256; c=relaxed/relaxed; d=paperboy.test;", data) == [
        algorithm.encode() for algorithm in algorithms
    ]


@pytest.mark.parametrize(
    ("site_name", "title", "address"),
    [
        ("Zeitungsträger " * 12, "Ein sehr langer Titel über ℝ³ " * 9, "alice@example.org"),
        ('Lab 4, "the quiet one"', "=?utf-8?q?looks_encoded?=", "alice@bücher.example"),
        ("新聞少年", "日本語の論文" * 30, "jürgen@example.org"),
        ("P", "x" * 300, "x" * 64 + "@" + "y" * 63 + ".example.org"),
        ("Two  blanks\u00a0here", "Two  blanks \t there", "alice@example.org"),
    ],
)
def test_unusual_names_and_subjects_verify(
    create_composer: Composing,
    key_files: dict[Algorithm, Path],
    mail_request: MailRequest,
    site_name: str,
    title: str,
    address: str,
) -> None:
    """Test long folded ones, other scripts, and text that looks encoded."""
    digest = sample_digest.digest()
    best = replace(digest.sections[0].picks[0], title=title, summary=title)
    digest = replace(digest, sections=(replace(digest.sections[0], picks=(best,)),), note=title)
    for draft in (mail_request, mail_request._replace(kind=MailKind.CONFIRM)):
        data = compose_bytes(
            create_composer(*ALL, site_name=site_name), draft._replace(digest=digest, email=address)
        )
        assert verify_signatures(data, key_files) == [True, True]


def test_international_domain_signs_in_ascii(
    create_composer: Composing, key_files: dict[Algorithm, Path], mail_request: MailRequest
) -> None:
    """The signing domain is the ASCII form, and no header contains other characters."""
    data = compose_bytes(create_composer(*ALL, from_address="digest@bücher.example"), mail_request)
    assert b"d=xn--bcher-kva.example;" in data
    assert data.isascii()
    assert verify_signatures(data, key_files, "xn--bcher-kva.example") == [True, True]


@pytest.mark.parametrize(
    "word", [b"alice@example.org", b"Paperboy", b"unsubscribe/", b"Retrieve", b"</html>"]
)
def test_changed_byte_breaks_the_signature(
    create_composer: Composing, key_files: dict[Algorithm, Path], mail_request: MailRequest, word: bytes
) -> None:
    """Test the headers, the text and the HTML."""
    data = compose_bytes(create_composer(*ALL), mail_request)
    at = data.rindex(word)
    changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    assert verify_signatures(changed, key_files) == [False, False]


@pytest.mark.parametrize(
    "header",
    [
        b"From: mallory@example.org",
        b"Subject: Win",
        b"To: bob@x.org",
        b"Date: now",
        b"Reply-To: mallory@example.org",
        b"Content-Type: text/html",
        b"List-Unsubscribe: <https://mallory.example.org>",
    ],
)
def test_added_headers_or_text_break_the_signature(
    create_composer: Composing, key_files: dict[Algorithm, Path], mail_request: MailRequest, header: bytes
) -> None:
    """Test another From, Subject, To or Date, headers that change the meaning, and text at the end."""
    data = compose_bytes(create_composer(*ALL), mail_request)
    assert verify_signatures(header + b"\r\n" + data, key_files) == [False, False]
    assert verify_signatures(data + b"more\r\n", key_files) == [False, False]
    assert b" l=" not in data.partition(b"\r\n\r\n")[0]


def test_signed_headers(create_composer: Composing, mail_request: MailRequest) -> None:
    """Every header is signed; important ones are oversigned, and the time is that of the email."""
    data = compose_bytes(create_composer(Algorithm.ED25519), mail_request)
    unfolded = data.partition(b"\r\n\r\n")[0].replace(b"\r\n ", b" ").decode()
    signature, *headers = unfolded.split("\r\n")
    names = re.search(r" h=([\w: -]+);", signature)[1].replace(" ", "").split(":")  # type: ignore[index]
    present = [header.partition(":")[0] for header in headers]
    assert {"From", "List-Unsubscribe", "List-Unsubscribe-Post", "List-Id", "Content-Type"} <= set(present)
    assert sorted(names) == sorted([*present, *dkim.OVERSIGNED_HEADERS])
    assert f" t={int(mail_request.issued_at.timestamp())};" in signature
    assert all(len(line) <= 78 for line in data.split(b"MIME-Version")[0].split(b"\r\n") if b"<" not in line)


def test_signature_survives_refolding(
    create_composer: Composing, key_files: dict[Algorithm, Path], mail_request: MailRequest
) -> None:
    """A relay may fold headers and add its own."""
    data = compose_bytes(create_composer(*ALL), mail_request)
    relayed = b"Received: from x by y\r\n" + data.replace(b"\r\nList-Id: ", b"\r\nlist-id:\r\n\t ", 1)
    assert verify_signatures(relayed, key_files) == [True, True]


def test_full_disk_leaves_no_key(tmp_path: Path) -> None:
    """Keys are never overwritten, so the file would have to be deleted before the next try."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            dkim.create(dkim.Algorithm.ED25519, tmp_path / "key.pem")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    dkim.create(dkim.Algorithm.ED25519, tmp_path / "key.pem")
    assert dkim.load((f"s1:{tmp_path / 'key.pem'}",))


def test_no_signature_without_keys(create_composer: Composing, mail_request: MailRequest) -> None:
    """The relay may sign instead."""
    composer = create_composer()
    assert not composer.signs
    assert b"DKIM-Signature" not in compose_bytes(composer, mail_request)


# --- ahead


def test_presigned_signature_is_reused(
    create_composer: Composing, key_files: dict[Algorithm, Path], mail_request: MailRequest
) -> None:
    """Nothing is hashed again."""
    composer = create_composer(*ALL)
    signature, signature_fingerprint = composer.signature(composer.draft(mail_request))
    ahead = mail_request._replace(signature=signature, signature_fingerprint=signature_fingerprint)
    draft = create_composer(*ALL).draft(ahead)
    assert draft.is_signed
    assert len(signature_fingerprint) <= 64
    assert composer.sign_and_serialize(draft).data == compose_bytes(composer, mail_request)
    assert verify_signatures(composer.sign_and_serialize(draft).data, key_files) == [True, True]


@pytest.mark.parametrize(
    "changed",
    [
        {"email": "alice@example.com"},
        {"link_epoch": 2},
        {"delivery_id": 43},
        {"subscriber_id": 8},
        {"message_id": "<other@paperboy.test>"},
        {"unreadable": 1},
        {"edition": "2026-11-21"},
        {"issued_at": datetime(2026, 11, 21, 9, 30, tzinfo=UTC)},
    ],
)
def test_changed_mail_is_signed_again(
    create_composer: Composing,
    key_files: dict[Algorithm, Path],
    mail_request: MailRequest,
    changed: dict[str, object],
) -> None:
    """Another address, epoch or id invalidates the stored signature."""
    composer = create_composer(*ALL)
    signature, signature_fingerprint = composer.signature(composer.draft(mail_request))
    other = mail_request._replace(signature=signature, signature_fingerprint=signature_fingerprint, **changed)  # type: ignore[arg-type]
    draft = composer.draft(other)
    assert not draft.is_signed
    assert verify_signatures(composer.sign_and_serialize(draft).data, key_files) == [True, True]


def test_changed_settings_or_keys_invalidate_signatures(
    create_composer: Composing, mail_request: MailRequest
) -> None:
    composer = create_composer(*ALL)
    signature, signature_fingerprint = composer.signature(composer.draft(mail_request))
    ahead = mail_request._replace(signature=signature, signature_fingerprint=signature_fingerprint)
    assert create_composer(*ALL).draft(ahead).is_signed
    for other in (
        create_composer(*ALL, site_name="Newsboy"),
        create_composer(*ALL, postal_address="2 Example Street"),
        create_composer(*ALL, base_url="https://other.test"),
        create_composer(*ALL, from_address="digest@other.test"),
        create_composer(*ALL, contact_address="other@paperboy.test"),
        create_composer(*ALL, bounce_mailbox="imaps://bounces:password@imap.paperboy.test/INBOX"),
        create_composer(*ALL, bounce_folder="var/bounces"),
        create_composer(*ALL, secret_keys=("another one of enough characters",)),  # type: ignore[arg-type]
        create_composer(Algorithm.RSA),
        create_composer(),
    ):
        assert not other.draft(ahead).is_signed


class RecordingSettings(Settings):
    """Settings that record which of them are read."""

    def __getattribute__(self, name: str) -> Any:
        if name in Settings.model_fields:
            READ_SETTINGS.add(name)
        return super().__getattribute__(name)


READ_SETTINGS = set[str]()


def test_signatures_depend_on_all_settings_that_composing_reads(
    settings: Settings, key_files: dict[Algorithm, Path], mail_request: MailRequest
) -> None:
    """A setting that is missing in SIGNED_SETTINGS could be changed between signing and sending."""
    keys = (f"{Algorithm.RSA}:{key_files[Algorithm.RSA]}",)
    empty = {"contact_address": "", "bounce_mailbox": "", "bounce_folder": "", "dkim_keys": keys}
    own = RecordingSettings(_env_file=None, **{**settings.model_dump(), **empty})
    READ_SETTINGS.clear()
    signer = main.build_signer(own)
    composer = Composer(own, signer, Renderer(own, signer))
    for kind in MailKind:
        compose_bytes(composer, mail_request._replace(kind=kind))
    unsigned = {"smtp_host"}  # determines only a header that is not signed
    assert READ_SETTINGS - unsigned == {*SIGNED_SETTINGS, "secret_keys", "dkim_keys"}


@pytest.mark.parametrize("template", ["digest/card.txt", "digest/body.mjml", "masthead.mjml"])
def test_changed_templates_invalidate_signatures(
    create_composer: Composing,
    mail_request: MailRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    template: str,
) -> None:
    """A release may happen between signing and sending."""
    composer = create_composer(*ALL)
    signature, signature_fingerprint = composer.signature(composer.draft(mail_request))
    released = shutil.copytree(template_folders.SHIPPED, tmp_path / "templates")
    with (released / "email" / template).open("a") as file:
        file.write("\n")
    monkeypatch.setattr(template_folders, "SHIPPED", released)
    assert (
        not create_composer(*ALL)
        .draft(mail_request._replace(signature=signature, signature_fingerprint=signature_fingerprint))
        .is_signed
    )


def test_own_templates_invalidate_signatures(
    create_composer: Composing, mail_request: MailRequest, tmp_path: Path
) -> None:
    """They may be changed, like those of a release, before the process is started again."""
    (tmp_path / "templates" / "email").mkdir(parents=True)
    own = {"templates_dir": str(tmp_path / "templates")}
    composer = create_composer(*ALL, **own)
    signature, signature_fingerprint = composer.signature(composer.draft(mail_request))
    signed = mail_request._replace(signature=signature, signature_fingerprint=signature_fingerprint)
    assert create_composer(*ALL, **own).draft(signed).is_signed
    composer_module._program_fingerprint.cache_clear()  # as in a new process
    (tmp_path / "templates" / "email" / "masthead.mjml").write_text("<mj-section />")
    assert not create_composer(*ALL, **own).draft(signed).is_signed


# --- keys


def test_new_key_is_private_and_never_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    dkim.create(Algorithm.ED25519, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(Conflict, match="keys are never overwritten"):
        dkim.create(Algorithm.ED25519, path)
    assert path.read_bytes() == before


def test_dns_record_of_a_key(key_files: dict[Algorithm, Path]) -> None:
    """It has the selector, and strings of at most 255 characters."""
    weak, strong = dkim.load(f"{algorithm}:{key_files[algorithm]}" for algorithm in ALL)
    name, text = weak.record("paperboy.test")
    assert name == "rsa._domainkey.paperboy.test"
    assert text.startswith("v=DKIM1; k=rsa; p=MII")
    assert "".join(dkim.txt_strings(text)) == text
    assert [len(part) <= 255 for part in dkim.txt_strings(text)] == [True, True]
    assert re.fullmatch(r"v=DKIM1; k=ed25519; p=[A-Za-z0-9+/]{43}=", strong.record("paperboy.test")[1])
    assert (weak.bits, strong.bits) == (2048, 256)


def write_pem(private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, password: bytes = b"") -> bytes:
    protection = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"", "not an unencrypted private key in PEM format: create one with"),
        (
            b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            "not an unencrypted private key in PEM",
        ),
        (write_pem(ec.generate_private_key(ec.SECP256R1()), b"secret"), "not an unencrypted private key"),
        (write_pem(ec.generate_private_key(ec.SECP256R1())), "only RSA and Ed25519 keys"),
    ],
)
def test_unusable_key_is_refused_at_start(
    settings: Settings, tmp_path: Path, content: bytes | None, words: str
) -> None:
    """The error names the setting, the selector, the file and the reason."""
    path = tmp_path / "key.pem"
    if content is not None:
        path.write_bytes(content)
    own = settings.model_copy(update={"dkim_keys": (f"mail:{path}",)})
    signer = main.build_signer(own)
    with pytest.raises(InvalidSettings, match=words) as refused:
        Composer(own, signer, Renderer(own, signer))
    assert f"PAPERBOY_DKIM_KEYS: the key for selector mail in {path} cannot be used" in str(refused.value)


def test_short_rsa_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """1024 bits are accepted, because some relays require them; shorter keys are refused by verifiers."""
    shortest, other = (
        write_pem(rsa.generate_private_key(public_exponent=65537, key_size=1024))  # noqa: S505 - on purpose
        for _ in range(2)
    )
    assert dkim.parse_key("mail", shortest).bits == dkim.MIN_BITS == 1024 < dkim.GOOD_BITS
    monkeypatch.setattr(dkim, "MIN_BITS", 1025)
    with pytest.raises(ValueError, match="has only 1024 bits"):
        dkim.parse_key("mail", other)


# --- the command


Run = Callable[..., Result]


@pytest.fixture
def run(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return a function that runs a command in an empty folder with only a From address set."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PAPERBOY_{name.upper()}", raising=False)
    monkeypatch.setenv("PAPERBOY_FROM_ADDRESS", settings.from_address)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["key", "dkim", *arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return invoke


def test_key_command_prints_record_and_setting(run: Run, tmp_path: Path) -> None:
    """Each is a line to copy."""
    record, setting = run("mail.pem").stdout.splitlines()
    name, kind, *strings = record.split(" ", 2)
    (key,) = dkim.load([setting.removeprefix("PAPERBOY_DKIM_KEYS=")])
    assert (name, kind) == ("paperboy-rsa._domainkey.paperboy.test.", "TXT")
    assert re.sub(r'" "|"', "", strings[0]) == key.record("paperboy.test")[1]
    assert stat.S_IMODE((tmp_path / "mail.pem").stat().st_mode) == 0o600
    assert (key.algorithm, key.bits) == (Algorithm.RSA, 2048)


def test_key_in_the_settings_is_not_listed_twice(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting may precede the key. A selector in use for another file is refused."""
    monkeypatch.setenv("PAPERBOY_DKIM_KEYS", "s1:mail.pem")
    output = json.loads(run("mail.pem", "--selector", "s1", "--json").stdout)
    assert output["setting"] == f"PAPERBOY_DKIM_KEYS=s1:{tmp_path / 'mail.pem'}"
    assert "names a selector twice" in run("other.pem", "--selector", "s1", code=1).stderr


def test_second_key_is_added_to_the_setting(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every email then has both signatures."""
    first = json.loads(run("rsa.pem", "--selector", "mail2026", "--json").stdout)
    assert first["selector"] == "mail2026"
    monkeypatch.setenv("PAPERBOY_DKIM_KEYS", first["setting"].partition("=")[2])
    second = json.loads(run("ed.pem", "--algorithm", "ed25519", "--json").stdout)
    assert second["setting"] == f"{first['setting']},paperboy-ed25519:{tmp_path / 'ed.pem'}"
    assert (second["record"], second["algorithm"]) == ("paperboy-ed25519._domainkey.paperboy.test", "ed25519")
    assert second["strings"] == [second["value"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("there.pem",), "keys are never overwritten"),
        (("new.pem", "--selector", "-x"), "selector:file"),
        (("a,b.pem",), "comma"),
        (("nowhere/new.pem",), "No such file"),
    ],
)
def test_key_command_errors(run: Run, tmp_path: Path, arguments: Sequence[str], words: str) -> None:
    """The error is one line, and nothing is written."""
    (tmp_path / "there.pem").write_text("precious")
    assert words in run(*arguments, code=1).stderr
    assert [path.name for path in tmp_path.glob("*.pem")] == ["there.pem"]
    assert (tmp_path / "there.pem").read_text() == "precious"
