"""Benchmarks that anybody can repeat. The results are in docs/benchmarks.md."""

import app  # noqa: F401  before numpy is imported, because it limits the number of BLAS threads
