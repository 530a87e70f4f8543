"""Signatures that others can verify: what is checked here is checked by dkimpy, not by us."""

from __future__ import annotations

import json
import re
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import dkim as dkimpy
import pytest
from click.testing import Result
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from typer.testing import CliRunner

from app.cli import cli
from app.errors import Conflict, InvalidSettings
from app.links import LinkSigner
from app.mail import dkim, render
from app.mail.composer import Composer
from app.mail.dkim import Algorithm
from app.mail.render import Renderer
from app.settings import Settings
from app.types import MailKind, MailRequest
from tests.support import sample_digest

pytestmark = pytest.mark.once

ALL = (Algorithm.RSA, Algorithm.ED25519)


@pytest.fixture(scope="session")
def key_files(tmp_path_factory: pytest.TempPathFactory) -> dict[Algorithm, Path]:
    """One key of each algorithm, made once."""
    folder = tmp_path_factory.mktemp("keys")
    files = {algorithm: folder / f"{algorithm}.pem" for algorithm in ALL}
    for algorithm, path in files.items():
        dkim.create(algorithm, path)
    return files


Composing = Callable[..., Composer]


@pytest.fixture
def composing(settings: Settings, key_files: dict[Algorithm, Path]) -> Composing:
    """A function that makes a composer that signs by some algorithms, with settings of its own."""

    def make(*algorithms: Algorithm, **changed: str) -> Composer:
        keys = tuple(f"{algorithm}:{key_files[algorithm]}" for algorithm in algorithms)
        own = Settings(_env_file=None, **{**settings.model_dump(), "dkim_keys": keys, **changed})
        signer = LinkSigner(own.secret_keys, own.base_url)
        return Composer(own, signer, Renderer(own, signer))

    return make


@pytest.fixture
def letter(now: datetime) -> MailRequest:
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


def verified(data: bytes, key_files: dict[Algorithm, Path], domain: str = "paperboy.test") -> list[bool]:
    """What dkimpy says of each signature of a mail, asking for the records that we would publish."""
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


def sent(composer: Composer, letter: MailRequest) -> bytes:
    return composer.sign_and_serialize(composer.draft(letter)).data


@pytest.mark.parametrize("algorithms", [ALL[:1], ALL[1:], ALL])
@pytest.mark.parametrize("kind", list(MailKind))
def test_every_mail_verifies(
    composing: Composing,
    key_files: dict[Algorithm, Path],
    letter: MailRequest,
    algorithms: Sequence[Algorithm],
    kind: MailKind,
) -> None:
    """Digests and service mails, by RSA, by Ed25519, and by both at once."""
    composer = composing(*algorithms)
    data = sent(composer, letter._replace(kind=kind))
    assert composer.signs
    assert verified(data, key_files) == [True] * len(algorithms)
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
def test_names_and_subjects_of_any_kind_verify(
    composing: Composing,
    key_files: dict[Algorithm, Path],
    letter: MailRequest,
    site_name: str,
    title: str,
    address: str,
) -> None:
    """Long ones that are folded, other alphabets, and what only looks encoded."""
    digest = sample_digest.digest()
    best = replace(digest.sections[0].picks[0], title=title, summary=title)
    digest = replace(digest, sections=(replace(digest.sections[0], picks=(best,)),), note=title)
    for one in (letter, letter._replace(kind=MailKind.CONFIRM)):
        data = sent(composing(*ALL, site_name=site_name), one._replace(digest=digest, email=address))
        assert verified(data, key_files) == [True, True]


def test_an_international_domain_signs_as_what_dns_calls_it(
    composing: Composing, key_files: dict[Algorithm, Path], letter: MailRequest
) -> None:
    """The domain of the signature is the ASCII form of the one in From; no header holds more than ASCII."""
    data = sent(composing(*ALL, from_address="digest@bücher.example"), letter)
    assert b"d=xn--bcher-kva.example;" in data
    assert data.isascii()
    assert verified(data, key_files, "xn--bcher-kva.example") == [True, True]


@pytest.mark.parametrize(
    "word", [b"alice@example.org", b"Paperboy", b"unsubscribe/", b"Retrieve", b"</html>"]
)
def test_a_changed_byte_fails(
    composing: Composing, key_files: dict[Algorithm, Path], letter: MailRequest, word: bytes
) -> None:
    """Of a header, of the text, or of the HTML."""
    data = sent(composing(*ALL), letter)
    at = data.rindex(word)
    changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    assert verified(changed, key_files) == [False, False]


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
def test_nothing_can_be_added(
    composing: Composing, key_files: dict[Algorithm, Path], letter: MailRequest, header: bytes
) -> None:
    """Another From, Subject, To or Date above ours, what changes its meaning, or anything below the end."""
    data = sent(composing(*ALL), letter)
    assert verified(header + b"\r\n" + data, key_files) == [False, False]
    assert verified(data + b"more\r\n", key_files) == [False, False]
    assert b" l=" not in data.partition(b"\r\n\r\n")[0]


def test_what_is_signed(composing: Composing, letter: MailRequest) -> None:
    """Every header, those that matter most once more than they occur, and the moment of the letter."""
    data = sent(composing(Algorithm.ED25519), letter)
    unfolded = data.partition(b"\r\n\r\n")[0].replace(b"\r\n ", b" ").decode()
    signature, *headers = unfolded.split("\r\n")
    names = re.search(r" h=([\w: -]+);", signature)[1].replace(" ", "").split(":")  # type: ignore[index]
    present = [header.partition(":")[0] for header in headers]
    assert {"From", "List-Unsubscribe", "List-Unsubscribe-Post", "List-Id", "Content-Type"} <= set(present)
    assert sorted(names) == sorted([*present, *dkim.OVERSIGNED_HEADERS])
    assert f" t={int(letter.issued_at.timestamp())};" in signature
    assert all(len(line) <= 78 for line in data.split(b"MIME-Version")[0].split(b"\r\n") if b"<" not in line)


def test_white_space_on_the_way_does_no_harm(
    composing: Composing, key_files: dict[Algorithm, Path], letter: MailRequest
) -> None:
    """A relay may fold a header, and add headers of its own above."""
    data = sent(composing(*ALL), letter)
    relayed = b"Received: from x by y\r\n" + data.replace(b"\r\nList-Id: ", b"\r\nlist-id:\r\n\t ", 1)
    assert verified(relayed, key_files) == [True, True]


def test_without_keys_nothing_is_signed(composing: Composing, letter: MailRequest) -> None:
    """Then the relay may do it."""
    composer = composing()
    assert not composer.signs
    assert b"DKIM-Signature" not in sent(composer, letter)


# --- ahead


def test_a_signature_made_ahead_is_the_one_made_later(
    composing: Composing, key_files: dict[Algorithm, Path], letter: MailRequest
) -> None:
    """It is taken as it is: not even a hash is computed."""
    composer = composing(*ALL)
    signature, signature_fingerprint = composer.signature(composer.draft(letter))
    ahead = letter._replace(signature=signature, signature_fingerprint=signature_fingerprint)
    draft = composing(*ALL).draft(ahead)
    assert draft.is_signed
    assert len(signature_fingerprint) <= 64
    assert composer.sign_and_serialize(draft).data == sent(composer, letter)
    assert verified(composer.sign_and_serialize(draft).data, key_files) == [True, True]


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
def test_what_a_letter_says_decides_whether_its_signature_holds(
    composing: Composing, key_files: dict[Algorithm, Path], letter: MailRequest, changed: dict[str, object]
) -> None:
    """Another address, epoch or id: the mail is signed anew."""
    composer = composing(*ALL)
    signature, signature_fingerprint = composer.signature(composer.draft(letter))
    other = letter._replace(signature=signature, signature_fingerprint=signature_fingerprint, **changed)  # type: ignore[arg-type]
    draft = composer.draft(other)
    assert not draft.is_signed
    assert verified(composer.sign_and_serialize(draft).data, key_files) == [True, True]


def test_settings_and_keys_decide_whether_a_signature_holds(
    composing: Composing, letter: MailRequest
) -> None:
    """Whatever shows in a mail, and the keys themselves."""
    composer = composing(*ALL)
    signature, signature_fingerprint = composer.signature(composer.draft(letter))
    ahead = letter._replace(signature=signature, signature_fingerprint=signature_fingerprint)
    assert composing(*ALL).draft(ahead).is_signed
    for other in (
        composing(*ALL, site_name="Newsboy"),
        composing(*ALL, postal_address="2 Example Street"),
        composing(*ALL, base_url="https://other.test"),
        composing(*ALL, from_address="digest@other.test"),
        composing(*ALL, contact_address="other@paperboy.test"),
        composing(*ALL, secret_keys=("another one of enough characters",)),  # type: ignore[arg-type]
        composing(Algorithm.RSA),
        composing(),
    ):
        assert not other.draft(ahead).is_signed


@pytest.mark.parametrize("template", ["digest/card.txt", "digest/body.mjml", "masthead.mjml"])
def test_templates_decide_whether_a_signature_holds(
    composing: Composing, letter: MailRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    """A new release may come between composing and sending."""
    composer = composing(*ALL)
    signature, signature_fingerprint = composer.signature(composer.draft(letter))
    released = shutil.copytree(render.FOLDER, tmp_path / "email")
    with (released / template).open("a") as file:
        file.write("\n")
    monkeypatch.setattr(render, "FOLDER", released)
    assert (
        not composing(*ALL)
        .draft(letter._replace(signature=signature, signature_fingerprint=signature_fingerprint))
        .is_signed
    )


# --- keys


def test_a_new_key_is_for_its_owner_only_and_never_overwrites(tmp_path: Path) -> None:
    """Nobody else can read it, and a key that is in use cannot be lost by a slip."""
    path = tmp_path / "key.pem"
    dkim.create(Algorithm.ED25519, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(Conflict, match="never overwritten"):
        dkim.create(Algorithm.ED25519, path)
    assert path.read_bytes() == before


def test_the_record_to_publish(key_files: dict[Algorithm, Path]) -> None:
    """Under the selector, in strings that DNS can hold."""
    weak, strong = dkim.load(f"{algorithm}:{key_files[algorithm]}" for algorithm in ALL)
    name, text = weak.record("paperboy.test")
    assert name == "rsa._domainkey.paperboy.test"
    assert text.startswith("v=DKIM1; k=rsa; p=MII")
    assert "".join(dkim.txt_strings(text)) == text
    assert [len(part) <= 255 for part in dkim.txt_strings(text)] == [True, True]
    assert re.fullmatch(r"v=DKIM1; k=ed25519; p=[A-Za-z0-9+/]{43}=", strong.record("paperboy.test")[1])
    assert (weak.bits, strong.bits) == (2048, 256)


def pem(private: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, password: bytes = b"") -> bytes:
    protection = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        (b"", "not a private key in PEM"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not a private key in PEM"),
        (pem(ec.generate_private_key(ec.SECP256R1()), b"secret"), "without a password"),
        (pem(ec.generate_private_key(ec.SECP256R1())), "only RSA and Ed25519 keys"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_at_start(
    settings: Settings, tmp_path: Path, content: bytes | None, words: str
) -> None:
    """With a sentence that names the setting, the selector, the file and the reason."""
    path = tmp_path / "key.pem"
    if content is not None:
        path.write_bytes(content)
    own = settings.model_copy(update={"dkim_keys": (f"mail:{path}",)})
    signer = LinkSigner(own.secret_keys, own.base_url)
    with pytest.raises(InvalidSettings, match=words) as refused:
        Composer(own, signer, Renderer(own, signer))
    assert f"PAPERBOY_DKIM_KEYS: the key of mail in {path} cannot be used" in str(refused.value)


def test_an_rsa_key_has_enough_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,024 are read, since some must use them; what is shorter than verifiers accept is refused."""
    short = pem(rsa.generate_private_key(public_exponent=65537, key_size=1024))  # noqa: S505 - too short on purpose
    assert dkim.parse_key("mail", short).bits == dkim.MIN_BITS == 1024 < dkim.GOOD_BITS
    monkeypatch.setattr(dkim, "MIN_BITS", 1025)
    with pytest.raises(ValueError, match="1024 bits are too few"):
        dkim.parse_key("mail", short)


# --- the command


Run = Callable[..., Result]


@pytest.fixture
def run(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in this process, in a folder of its own, where nothing is set but the From address."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"PAPERBOY_{name.upper()}", raising=False)
    monkeypatch.setenv("PAPERBOY_FROM_ADDRESS", settings.from_address)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, ["key", "dkim", *arguments], catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return invoke


def test_a_key_is_made_and_told_how_to_use(run: Run, tmp_path: Path) -> None:
    """What to publish and what to set, each a line to be copied."""
    record, setting = run("mail.pem").stdout.splitlines()
    name, kind, *strings = record.split(" ", 2)
    (key,) = dkim.load([setting.removeprefix("PAPERBOY_DKIM_KEYS=")])
    assert (name, kind) == ("paperboy-rsa._domainkey.paperboy.test.", "TXT")
    assert re.sub(r'" "|"', "", strings[0]) == key.record("paperboy.test")[1]
    assert stat.S_IMODE((tmp_path / "mail.pem").stat().st_mode) == 0o600
    assert (key.algorithm, key.bits) == (Algorithm.RSA, 2048)


def test_a_key_that_the_settings_name_already_is_named_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever set it first and makes it then; a selector of another file is taken."""
    monkeypatch.setenv("PAPERBOY_DKIM_KEYS", "s1:mail.pem")
    told = json.loads(run("mail.pem", "--selector", "s1", "--json").stdout)
    assert told["setting"] == f"PAPERBOY_DKIM_KEYS=s1:{tmp_path / 'mail.pem'}"
    assert "names a selector twice" in run("other.pem", "--selector", "s1", code=1).stderr


def test_a_second_key_is_set_beside_the_first(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that every mail has both signatures."""
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
        (("there.pem",), "never overwritten"),
        (("new.pem", "--selector", "-x"), "selector:file"),
        (("a,b.pem",), "comma"),
        (("nowhere/new.pem",), "No such file"),
    ],
)
def test_a_key_that_cannot_be_made(run: Run, tmp_path: Path, arguments: Sequence[str], words: str) -> None:
    """One line says why, and nothing is written."""
    (tmp_path / "there.pem").write_text("precious")
    assert words in run(*arguments, code=1).stderr
    assert [path.name for path in tmp_path.glob("*.pem")] == ["there.pem"]
    assert (tmp_path / "there.pem").read_text() == "precious"
