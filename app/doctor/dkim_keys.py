"""Check the DKIM keys and the DNS records that publish them."""

import base64
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from app.doctor import file_permissions
from app.doctor.dns_lookup import DnsLookup, parse_tags
from app.doctor.findings import Finding, error, ok, warning
from app.errors import InvalidSettings
from app.mail import dkim
from app.settings import Settings


def check_key(setting: str) -> Iterator[Finding]:
    """Check that a DKIM key is readable only by its owner, can sign, and is long enough."""
    selector, _, name = setting.partition(":")
    check_name, path, is_accessible = f"dkim key {selector}", Path(name), False
    with suppress(OSError):  # `dkim.load` reports a missing file
        is_accessible = file_permissions.others_have_access(path)
    if is_accessible:
        yield file_permissions.access_warning(check_name, path, "600")
    try:
        (key,) = dkim.load([setting])
    except InvalidSettings as fault:
        fix = (
            "create a key with `paperboy key dkim dkim.pem`, and set PAPERBOY_DKIM_KEYS to the printed value"
        )
        yield error(check_name, str(fault), fix)
        return
    if key.algorithm is dkim.Algorithm.RSA and key.bits < dkim.GOOD_BITS:
        message = f"it has {key.bits} bits: some providers ignore signatures made with such short keys"
        fix = "create a key with `paperboy key dkim new.pem --selector new`; add it to PAPERBOY_DKIM_KEYS"
        yield warning(check_name, message, fix)
    elif not is_accessible:
        yield ok(check_name, f"it can sign: {key.algorithm}, {key.bits} bits")


def check_records(settings: Settings, lookup: DnsLookup) -> Iterator[Finding]:
    """Check that one DNS record publishes each key. Raise DnsError if a record cannot be looked up."""
    if not settings.dkim_keys:
        yield warning(
            "dkim",
            "no key is set: emails are signed only if the relay signs them, which this machine cannot check",
            f"unless the relay signs for {settings.mail_domain}, create a key with "
            "`paperboy key dkim dkim.pem`, set PAPERBOY_DKIM_KEYS, and publish the key's record",
        )
    for setting in settings.dkim_keys:
        try:
            (key,) = dkim.load([setting])
        except InvalidSettings:  # `check_key` reports invalid keys
            continue
        check_name, (name, record) = f"dkim {key.selector}", key.record(settings.mail_domain)
        fix = f"publish the TXT record of {name}: {record}"
        texts = lookup.texts(name)
        published = parse_tags(texts[0]) if texts else {}
        if not texts:
            yield error(check_name, f"{name} has no record: receivers cannot verify our signatures", fix)
        elif len(texts) > 1:
            yield error(check_name, f"{name} has {len(texts)} records: receivers may use any of them", fix)
        elif not published.get("p"):
            yield error(check_name, f"the record of {name} has no key: an empty p= revokes the key", fix)
        elif published.get("k", "rsa") != key.algorithm or _decode_public_key(published["p"]) != key.public:
            message = f"the record of {name} does not have our public key: all our signatures fail"
            yield error(check_name, message, fix)
        elif "y" in published.get("t", "").split(":"):
            message = f"the record of {name} says that this domain is testing DKIM (t=y)"
            yield warning(check_name, message, fix)
        else:
            yield ok(check_name, f"{name} has our public key")


def _decode_public_key(published: str) -> bytes:
    """Decode the public key in a `p=` tag. Convert both encodings of RSA keys to SubjectPublicKeyInfo."""
    try:
        raw = base64.b64decode(published, validate=True)
    except ValueError:
        return b""
    try:
        key = serialization.load_der_public_key(raw)
    except (ValueError, UnsupportedAlgorithm):
        return raw  # Ed25519 keys are published as raw bytes
    return key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
