import structlog

# By default, structlog formats a logged exception with all local variables, which takes seconds.
structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback
