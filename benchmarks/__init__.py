"""Benchmarks that anybody can repeat. docs/benchmarks.md has the results."""

import app  # noqa: F401  before numpy is imported: it says how many threads work
