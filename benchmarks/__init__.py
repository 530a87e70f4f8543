"""Figures that somebody can repeat: docs/benchmarks.md says what they were."""

import app  # noqa: F401  before numpy is imported: it says how many threads work
