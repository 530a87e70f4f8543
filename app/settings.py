"""Load the settings from the environment (prefix PAPERBOY_) and `.env`. `.env.example` explains them."""

import logging
import re
from base64 import b64decode
from contextlib import suppress
from datetime import date
from enum import StrEnum
from ipaddress import ip_address, ip_network
from os.path import realpath
from pathlib import Path
from typing import Annotated, Self, cast
from urllib.parse import urlsplit

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key
from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from app.errors import InvalidSettings
from app.text import dates, domains, in_words
from app.text.identifiers import ARXIV_CATEGORY
from app.types import DEFAULT_MAX_PAPERS, MAX_CATEGORIES, Cadence

MIN_SECRET_CHARS = 32
ENCODING = "utf-8-sig"  # of .env: UTF-8, with or without a byte order mark
IGNORE_ENVIRONMENT = "IGNORE_ENVIRONMENT"  # in the demo's .env, which is then the only source of settings
_logged_warnings = set[str]()
_PLACEHOLDERS = ("change", "placeholder", "secret", "example", "password", "xxxx")


class SmtpSecurity(StrEnum):
    """The encryption of connections to the relay."""

    NONE = "none"
    OPPORTUNISTIC = "opportunistic"
    STARTTLS = "starttls"
    TLS = "tls"


class UncertainPolicy(StrEnum):
    """The policy for an email that was in flight when the sender died."""

    RESEND = "resend"
    HOLD = "hold"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class Settings(BaseSettings):
    """The settings of an installation. Sources, subscribers and API keys are stored in the database."""

    model_config = SettingsConfigDict(
        env_prefix="PAPERBOY_", env_file=".env", env_file_encoding=ENCODING, extra="ignore", frozen=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Ignore the environment if `.env` sets IGNORE_ENVIRONMENT, as the demo's file does.

        Otherwise, commands in the demo's folder could change the database that the environment names.
        """
        in_file = cast("DotEnvSettingsSource", dotenv_settings).env_vars
        if IGNORE_ENVIRONMENT.lower() in in_file:
            return init_settings, dotenv_settings
        return init_settings, env_settings, dotenv_settings, file_secret_settings

    # Identity
    base_url: str = "http://127.0.0.1:8000"
    site_name: str = "Paperboy"
    from_address: str = "paperboy@localhost.localdomain"
    postal_address: str = ""
    contact_address: str = ""
    admin_addresses: Annotated[tuple[str, ...], NoDecode] = ()  # for the daily report and alerts
    report_hour: int = Field(default=7, ge=0, le=23)  # in default_zone
    templates_dir: str = ""  # the operator's own templates, which take precedence

    # Secrets: the first signs and all verify, so that keys can be rotated
    secret_keys: Annotated[tuple[str, ...], NoDecode] = Field(default=(), repr=False)

    # Storage
    database_url: str = "sqlite:///var/paperboy.db"
    search_dir: str = "var/search"

    # The relay
    smtp_host: str = "127.0.0.1"
    smtp_port: int = Field(default=25, ge=1, le=65535)
    smtp_username: str = Field(default="", repr=False)  # hidden: some relays use a key as the user name
    smtp_password: str = Field(default="", repr=False)
    smtp_security: SmtpSecurity = SmtpSecurity.OPPORTUNISTIC
    smtp_connections: int = Field(default=10, ge=1, le=200)
    smtp_messages_per_connection: int = Field(default=100, ge=1, le=1_000_000)
    when_uncertain: UncertainPolicy = UncertainPolicy.RESEND
    pause_at_failures: int = Field(default=30, ge=1, le=100)  # percent of the most recent replies
    pause_at_complaints: float = Field(default=0.3, ge=0, le=100)  # percent of the emails to a receiver
    # the first day of the warm-up of a new sending domain
    warm_up_start: date | None = Field(default=None, ge=date(2000, 1, 1), le=date(2999, 12, 31))
    warm_up_mails: int = Field(default=50, ge=1, le=1_000_000)  # per day and receiver on the first day
    warm_up_days: int = Field(default=2, ge=1, le=30)  # the number of days after which the limit doubles
    journal_dir: str = "var/journal"
    journal_fsync: bool = False

    # DKIM: comma-separated selector:file pairs. Each file is a private key in PEM. Empty if the relay signs.
    dkim_keys: Annotated[tuple[str, ...], NoDecode] = ()

    # Bounces
    bounce_mailbox: str = Field(default="", repr=False)
    bounce_folder: str = ""
    sns_topics: Annotated[tuple[str, ...], NoDecode] = ()
    sendgrid_key: str = Field(default="", repr=False)
    mailgun_key: str = Field(default="", repr=False)

    # The digest
    candidate_days: int = Field(default=7, ge=1, le=60)
    compose_ahead_minutes: int = Field(default=10, ge=0, le=240)
    approve_editions: bool = False
    default_zone: str = "UTC"
    default_hour: int = Field(default=8, ge=0, le=23)
    default_cadence: Cadence = Cadence.DAILY
    default_max_papers: int = Field(default=DEFAULT_MAX_PAPERS, ge=1, le=30)
    default_max_trending: int = Field(
        default=3, ge=0, le=30
    )  # trending papers that match none of the interests

    # Sources
    arxiv_categories: Annotated[tuple[str, ...], NoDecode] = ("cs.AI", "cs.CL", "cs.CV", "cs.LG")
    backfill_days: int = Field(default=14, ge=0, le=365)
    user_agent_contact: str = ""
    allow_private_sources: Annotated[tuple[str, ...], NoDecode] = ()
    pictures: bool = True

    # Summaries from a language model, for papers without a summary
    summary_url: str = ""
    summary_model: str = ""
    summary_key: str = Field(default="", repr=False)

    # The service
    scheduler: bool = True
    signups_per_hour: int = Field(default=20, ge=1, le=1_000_000)
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = ()
    max_import_bytes: int = Field(
        default=100_000_000, ge=1000, le=100_000_000_000
    )  # of an uploaded file of subscribers
    retention_days: int = Field(default=400, ge=60, le=100_000)
    log_level: LogLevel = LogLevel.INFO
    log_json: bool = False
    otel_endpoint: str = ""

    # Limits
    api_requests_per_minute: int = Field(default=600, ge=1, le=100_000)  # per key
    invitations_per_hour: int = Field(default=100, ge=0, le=10_000)  # per key without the `send` scope
    pages_per_minute: int = Field(default=240, ge=10, le=100_000)  # per visitor, like the next four limits
    searches_per_minute: int = Field(default=30, ge=1, le=10_000)
    previews_per_minute: int = Field(default=60, ge=1, le=10_000)
    feeds_per_minute: int = Field(default=30, ge=1, le=10_000)
    first_digests_per_hour: int = Field(default=10, ge=1, le=10_000)
    pastes_per_hour: int = Field(default=20, ge=1, le=1000)  # per subscriber
    test_sends_per_hour: int = Field(default=20, ge=1, le=1000)  # per key
    max_interests: int = Field(default=20, ge=1, le=50)  # of a subscriber
    confirm_link_days: int = Field(default=7, ge=1, le=30)
    preferences_link_days: int = Field(default=30, ge=1, le=365)
    admin_idle_minutes: int = Field(default=60, ge=5, le=720)
    admin_session_hours: int = Field(default=12, ge=1, le=168)  # after which operators must sign in again
    source_timeout_seconds: int = Field(default=60, ge=5, le=240)  # two attempts fit in POLL_DEADLINE
    unconfirmed_days: int = Field(default=30, ge=1, le=365)  # at least confirm_link_days
    run_retention_days: int = Field(default=90, ge=7, le=3650)

    @field_validator(
        "secret_keys",
        "arxiv_categories",
        "allow_private_sources",
        "trusted_proxies",
        "dkim_keys",
        "sns_topics",
        "admin_addresses",
        mode="before",
    )
    @classmethod
    def _split_commas(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("warm_up_start", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("base_url", "otel_endpoint")
    @classmethod
    def _http_url(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.field_name == "otel_endpoint":
            return value
        if not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        if not re.fullmatch(r"[!-;=?-~]+", value):
            raise ValueError(
                "must be ASCII without spaces: write the host as xn--… and the rest percent-encoded"
            )
        try:
            parts = urlsplit(value)
            is_valid = bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port above 65535, or an incomplete IPv6 address
            is_valid = False
        excluded, hint = "#", "without #, such as http://collector:4318"
        if info.field_name == "base_url":
            excluded, hint = "[?#]", "without ? or #, such as https://papers.example.org"
        if not is_valid or re.search(excluded, value):
            raise ValueError(f"must be a URL with a host, and a port from 1 to 65535 if needed, {hint}")
        return value.rstrip("/")

    @field_validator("user_agent_contact", "summary_key")
    @classmethod
    def _header_value(cls, value: str) -> str:
        if value and not re.fullmatch(r"[!-~]([ -~]*[!-~])?", value):
            raise ValueError("must be ASCII without spaces at the ends: it is sent in an HTTP header")
        return value

    @field_validator("default_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        if not (name := dates.find_zone(value)):  # subscribers could not have it, so sign-ups would fail
            raise ValueError("must be UTC, or an IANA time zone such as Europe/Berlin")
        return name

    @field_validator("admin_addresses")
    @classmethod
    def _bare_addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        requirement = "must be comma-separated email addresses without names"
        return tuple(domains.encode_address(address, requirement) for address in value)

    @field_validator("from_address", "contact_address")
    @classmethod
    def _own_address(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.field_name == "contact_address":
            return value
        requirement = "must be an email address without a name, such as papers@example.org"
        if "<" in value and info.field_name == "from_address":
            requirement += "; the sender's name is PAPERBOY_SITE_NAME"
        return domains.encode_address(value, requirement)

    @field_validator("smtp_host")
    @classmethod
    def _host(cls, value: str) -> str:
        if not re.fullmatch(r"[\w.-]+", value):
            try:
                ip_address(value)  # an IPv6 address
            except ValueError:
                raise ValueError(
                    "must be only a host name or an IP address, such as mail.example.org: set the port with "
                    "PAPERBOY_SMTP_PORT, and TLS with PAPERBOY_SMTP_SECURITY"
                ) from None
        return value

    @field_validator("database_url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        return check_database_url(value)

    @field_validator("search_dir", "journal_dir")
    @classmethod
    def _named_folder(cls, value: str) -> str:
        if not value.strip():
            raise ValueError(
                "must not be empty: name a folder, or remove the setting to use the default in var/"
            )
        return value

    @field_validator("arxiv_categories")
    @classmethod
    def _categories(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > MAX_CATEGORIES or not all(map(ARXIV_CATEGORY.fullmatch, value)):
            raise ValueError(
                f"must be at most {MAX_CATEGORIES} comma-separated arXiv categories, such as cs.CL,stat.ML"
            )
        return value

    @field_validator("trusted_proxies", "allow_private_sources")
    @classmethod
    def _networks(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        may_be_names = info.field_name == "allow_private_sources"
        for entry in value:
            if may_be_names and re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", entry):
                continue
            try:
                ip_network(entry, strict=False)
            except ValueError:
                accepted = "host names or networks" if may_be_names else "addresses or networks"
                example = "wiki.lab" if may_be_names else "::1"
                raise ValueError(
                    f"must be comma-separated {accepted}, such as {example},10.0.0.0/8"
                ) from None
        return value

    @field_validator("dkim_keys")
    @classmethod
    def _selectors(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for key in value:
            if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?:.+", key):
                raise ValueError("must be comma-separated selector:file pairs")
        if len({key.partition(":")[0].lower() for key in value}) < len(value):
            raise ValueError("names a selector twice: use a different selector for each key")
        return value

    @field_validator("bounce_mailbox")
    @classmethod
    def _mailbox(cls, value: str) -> str:
        if value and not (value.startswith(("imaps://", "imap://")) and _has_a_login(value)):
            raise ValueError(
                "must be imaps://name:password@host/INBOX, where @, : and / in the name and password are "
                "written as %40, %3A and %2F"
            )
        return value

    @field_validator("sns_topics")
    @classmethod
    def _topic_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(re.fullmatch(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d+:[\w.-]+", topic) for topic in value):
            raise ValueError(
                "must be comma-separated topic ARNs, for example arn:aws:sns:eu-west-1:123456789012:mail"
            )
        return value

    @field_validator("sendgrid_key")
    @classmethod
    def _verification_key(cls, value: str) -> str:
        try:
            key = value and load_der_public_key(b64decode(value, validate=True))
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not (value == "" or isinstance(key, EllipticCurvePublicKey)):
            raise ValueError("must be the verification key shown in SendGrid's webhook settings")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper_case(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @field_validator("summary_url")
    @classmethod
    def _endpoint(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _name_the_model(self) -> Self:
        if self.summary_url and not self.summary_model:
            raise ValueError("PAPERBOY_SUMMARY_URL is set, but PAPERBOY_SUMMARY_MODEL is not: set both")
        return self

    @model_validator(mode="after")
    def _keep_the_unconfirmed(self) -> Self:
        if self.unconfirmed_days < self.confirm_link_days:
            raise ValueError("PAPERBOY_UNCONFIRMED_DAYS must not be less than PAPERBOY_CONFIRM_LINK_DAYS")
        return self

    @model_validator(mode="after")
    def _refuse_shared_bounce_folder(self) -> Self:
        """Raise ValueError if the bounce folder is, or directly contains, another path of the settings.

        The bounce job deletes or moves the files in it or in `new`, but not those in other subfolders.
        """
        if not self.bounce_folder:
            return self
        url = make_url(self.database_url)
        files = [("PAPERBOY_DKIM_KEYS", key.partition(":")[2]) for key in self.dkim_keys]
        if url.get_backend_name() == "sqlite":
            files.append(("PAPERBOY_DATABASE_URL", (url.database or "").removeprefix("file:")))
        names = "search_dir", "journal_dir", "templates_dir"
        folders = [(f"PAPERBOY_{name.upper()}", getattr(self, name)) for name in names]
        with suppress(FileNotFoundError):  # the current folder was removed
            emptied = {Path(realpath(each)) for each in (self.bounce_folder, f"{self.bounce_folder}/new")}
            shared = [("the current folder", ".", Path(realpath(".")))]
            shared += [(name, path, Path(realpath(path)).parent) for name, path in files if path]
            shared += [(name, path, Path(realpath(path))) for name, path in folders if path]
            for name, path, folder in shared:
                if folder in emptied:
                    raise ValueError(
                        f"PAPERBOY_BOUNCE_FOLDER must not be or contain {path} ({name}), because Paperboy "
                        "deletes or moves the files in it: name a folder that is used for nothing else"
                    )
        return self

    @model_validator(mode="after")
    def _refuse_weak_secrets(self) -> Self:
        for key in self.secret_keys:
            weak = len(key) < MIN_SECRET_CHARS or any(word in key.lower() for word in _PLACEHOLDERS)
            if weak:
                raise ValueError(
                    "PAPERBOY_SECRET_KEYS contains a short or placeholder secret: "
                    "create one with `paperboy key secret`"
                )
        return self

    @property
    def relay_security(self) -> SmtpSecurity:
        """Return `smtp_security`, or STARTTLS instead of OPPORTUNISTIC if the relay needs a login."""
        if self.smtp_security is SmtpSecurity.OPPORTUNISTIC and self.smtp_username:
            return SmtpSecurity.STARTTLS
        return self.smtp_security

    @property
    def mail_domain(self) -> str:
        """Return the domain of the From address. Message-IDs and List-Ids use it."""
        return self.from_address.rpartition("@")[2]


def _has_a_login(url: str) -> bool:
    """Return whether a URL has a user, a percent-encoded password and a host.

    Parts of an unencoded password would end up in other parts of the URL, which are displayed.
    """
    try:
        parts = urlsplit(url)
        complete = bool(parts.username and parts.password and parts.hostname and parts.port != 0)
    except ValueError:
        return False
    return complete and not (parts.query or parts.fragment or "@" in parts.path)


def check_database_url(url: str) -> str:
    """Return a database URL. Raise ValueError if it is not a valid SQLite or PostgreSQL URL.

    The message does not quote the URL, which may contain a password.
    """
    if not url.startswith(("sqlite:", "postgresql:", "postgresql+psycopg:")):
        raise ValueError("must begin with sqlite:/// or postgresql+psycopg://")
    try:
        parts = make_url(url)
    except (ArgumentError, ValueError):
        parts = None
    is_sqlite = parts is not None and parts.get_backend_name() == "sqlite"
    if parts is None or (is_sqlite and (parts.host or parts.database in (None, "", ":memory:"))):
        raise ValueError(
            "must be sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST:PORT/NAME, where @, : and / "
            "in the user and password are written as %40, %3A and %2F"
        )
    return url


def _name_env_file(record: logging.LogRecord) -> bool:
    """Complete python-dotenv's warning about a line that it cannot parse. A logging filter.

    Each warning is logged once, although a command reads the file several times.
    """
    warning = f".env: {record.getMessage()}; the line is ignored"
    is_new = warning not in _logged_warnings
    _logged_warnings.add(warning)
    record.msg, record.args = warning, ()
    return is_new


def load(*, needs_secret: bool = True, **overrides: object) -> Settings:
    """Load the settings. Raise InvalidSettings with one line for each problem."""
    logging.getLogger("dotenv.main").addFilter(_name_env_file)
    try:
        settings = Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        lines = []
        for problem in error.errors():
            name = "PAPERBOY_" + "_".join(str(part) for part in problem["loc"]).upper()
            message = in_words.describe_invalid(problem)
            lines.append(f"{name}: {message}" if problem["loc"] else message)
        raise InvalidSettings("\n".join(lines)) from None
    except UnicodeDecodeError:
        raise InvalidSettings(".env is not encoded in UTF-8: save it as UTF-8") from None
    if needs_secret and not settings.secret_keys:
        env_file = Path(".env").absolute()
        if not env_file.exists():
            raise InvalidSettings(
                f"PAPERBOY_SECRET_KEYS is not set, and there is no {env_file}: run this command in "
                "Paperboy's folder; for a new service, run `make .env` there, which writes a new secret"
            )
        raise InvalidSettings(
            "PAPERBOY_SECRET_KEYS is not set: run `paperboy key secret`, and add the secret that it prints "
            "to .env"
        )
    return settings
