"""Configuration of structured logging, and redaction of keys and signed links."""

import logging
import re
import sys
from collections.abc import Callable
from typing import Any

import stamina
import structlog
from structlog.typing import EventDict, Processor

from app.links import RETURN_PATH_DIGITS, TOKEN_CHARS
from app.runtime import tracing
from app.settings import Settings
from app.text import sanitize

# A person who can read the logs must not be able to unsubscribe others, call the API or forge a bounce. Every
# run of characters that is long enough to contain a token, a key or a return path is truncated, even if it
# is percent-encoded or split by quoted-printable soft breaks or folded header lines. Its first characters
# remain, so that lines about the same link can be matched.
_LEAST_CHARS = min(TOKEN_CHARS, RETURN_PATH_DIGITS)  # a key has 46
_SHOWN_CHARS = 7
_LINE_BREAK = r"=?(?:\r?\n|(?:\\r)?\\n)[ \t]?"
_SECRETS = re.compile(rf"(?:[\w-]|%[0-9A-Fa-f]{{2}}|{_LINE_BREAK}){{{_LEAST_CHARS},}}", re.ASCII)
_HARMLESS = (int, float, type(None))
# Access logs contain the values of only these query parameters. Other parameters may contain addresses,
# interests and search terms.
_HARMLESS_PARAMETERS = "page|day|source|code|state|kind|job|failed|limit|edition|done|of|v"
_QUERY = re.compile(rf"([?&])(?!(?:{_HARMLESS_PARAMETERS})=)([^?&=\s\"]+)=[^&\s\"]+")
_QUIET = ("httpx", "httpcore", "apscheduler", "procrastinate", "alembic", "aiosmtplib", "mail.log")


def configure(settings: Settings, level: str | None = None) -> None:
    """Write our own log lines and those of libraries to standard error in one format.

    `level` overrides the configured level, for commands that print their own results.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _with_trace,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        _without_colours,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    last: Processor = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    if settings.log_json:
        last = structlog.processors.JSONRenderer(ensure_ascii=False)
    tidy = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    processors: list[Processor] = [tidy, structlog.processors.format_exc_info, conceal, last]
    handler = logging.StreamHandler(sys.stderr)
    formatter = structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=processors)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level or settings.log_level)
    # BibTeX errors are shown to the person who pasted the BibTeX.
    logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)
    stamina.instrumentation.set_on_retry_hooks([_log_retry])
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(root.level, logging.WARNING))


def _log_retry(details: stamina.instrumentation.RetryDetails) -> None:
    """Log why a request is retried, without its URL, which may contain a secret."""
    error, wait = str(details.caused_by), round(details.wait_for, 1)
    structlog.get_logger(__name__).warning("request failed; retrying", error=error, wait_seconds=wait)


def _with_trace(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Add the ids of the current trace and span, if there are any. A structlog processor."""
    return {**event, **tracing.current_ids()}


def _without_colours(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Remove the colored copy of uvicorn's messages. A structlog processor."""
    event.pop("color_message", None)
    if "_record" in event:
        event.pop("message", None)  # the same text again, if another handler has already formatted the record
    return event


def conceal(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Truncate secrets, and hide addresses and the values of query parameters.

    At the DEBUG level, addresses are visible. A structlog processor.
    """
    if event.get("logger") == "uvicorn.access":
        event["event"] = _QUERY.sub(r"\1\2=…", str(event["event"]))
    hide = _without_secrets if event.get("level") == "debug" else _without_secrets_and_addresses
    return {name: _concealed(value, hide) for name, value in event.items()}


def _concealed(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {_concealed(name, hide): _concealed(inner, hide) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_concealed(inner, hide) for inner in value]
    if isinstance(value, _HARMLESS):
        return value
    printed = repr(value)  # as it would be logged: an exception, bytes, a URL
    concealed = hide(printed)
    return value if concealed == printed else concealed


def _without_secrets_and_addresses(text: str) -> str:
    concealed = _without_secrets(text)
    return sanitize.redact_addresses(concealed) if "@" in concealed else concealed


def _without_secrets(text: str) -> str:
    if len(text) < _LEAST_CHARS:
        return text
    return _SECRETS.sub(lambda match: match[0][:_SHOWN_CHARS] + "…", text)
