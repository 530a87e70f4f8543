# `make demo` and `make test` need only Python 3.11 or newer with venv. The first run installs their dependencies.

PYTHON ?= python3
PIP = .venv/bin/python -m pip -qq --disable-pip-version-check
DEMO_ARGS ?=
SERVE_ARGS ?=
TEST_ARGS ?=
# The number of test processes: twice the cores of a small machine, because tests wait as much as they compute. Each
# process takes only a few tests at a time, so that none has many left when the others are done.
WORKERS ?= 4
PYTEST = .venv/bin/pytest -q -n $(WORKERS) --maxschedchunk 2

# The tests start many processes. Without stored bytecode, each of them would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check format lint types install serve lock clean

help:  ## List the commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: .venv/runtime.stamp  ## Try everything offline; DEMO_ARGS=--once ends after the summary
	@.venv/bin/paperboy demo $(DEMO_ARGS)

test: .venv/dev.stamp tools  ## Run all tests on SQLite, and those that use a database also on a real PostgreSQL
	$(PYTEST) --database both $(TEST_ARGS)

check: lint types test  ## Run everything that must pass before a change is proposed

format: .venv/dev.stamp  ## Format the code
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

lint: .venv/dev.stamp  ## Check formatting, lint rules and imports between packages
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/lint-imports --no-cache
	.venv/bin/python scripts/measure_code.py

types: .venv/dev.stamp  ## Check types with mypy, strict
	.venv/bin/mypy

install: .venv/runtime.stamp .env  ## Install the dependencies and write .env, without starting anything

serve: install  ## Run the web app and the schedule with .env; SERVE_ARGS='--port 8001'
	@.venv/bin/paperboy serve $(SERVE_ARGS)

lock:  ## Update the lock files from pyproject.toml (needs uv)
	uv pip compile --quiet --upgrade pyproject.toml --extra fast --extra postgres --group build $(LOCK_ARGS) -o requirements.lock
	uv pip compile --quiet --upgrade pyproject.toml --extra fast --extra postgres --group dev --constraints requirements.lock \
		$(LOCK_ARGS) -o requirements-dev.lock

clean:  ## Remove the files that the commands above created, except .env and var/
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

# --no-strip-extras: pip before 24 treats "coverage[toml]" as a different package from "coverage", which is not pinned.
LOCK_ARGS = --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-strip-extras

.PHONY: tools
tools:
	@scripts/ensure-tools

.env:
	@umask 077 && $(PYTHON) scripts/new-env > $@.new && mv $@.new $@
	@echo "Wrote .env with new secrets. Now set your addresses and relay there; .env.example explains all settings."

.venv/runtime.stamp: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Paperboy needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	@$(PIP) --version > /dev/null 2>&1 || $(PYTHON) -m venv .venv
	@echo "Installing the pinned dependencies into .venv …"
	@$(PIP) install --require-hashes --requirement requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev.stamp: .venv/runtime.stamp requirements-dev.lock
	@echo "Installing the pinned development tools into .venv …"
	@$(PIP) install --require-hashes --requirement requirements-dev.lock
	@touch $@
