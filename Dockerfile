# Two stages. Everything is in /app and owned by root; the unprivileged user may write only to /app/var.
# `scripts/check-container` runs these steps without Docker, so keep paths relative to /app.

FROM python:3.11-slim AS builder
WORKDIR /app
COPY requirements.lock ./
RUN python3 -m venv .venv \
    && .venv/bin/python -m pip install -qq --disable-pip-version-check --require-hashes --requirement requirements.lock
COPY pyproject.toml README.md LICENSE alembic.ini .env.example ./
COPY app app
COPY migrations migrations
COPY templates templates
RUN .venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable . \
    && .venv/bin/python -m compileall -q app \
    && mkdir -p var \
    && chmod 1777 var

FROM python:3.11-slim AS runtime
ENV PYTHONUNBUFFERED=1 PAPERBOY_LOG_JSON=true
WORKDIR /app
COPY --from=builder /app /app
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD [".venv/bin/python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
# `serve` migrates the database before it accepts requests.
CMD [".venv/bin/paperboy", "serve", "--host", "0.0.0.0", "--port", "8000"]
