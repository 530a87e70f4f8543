"""Find accessibility problems with axe-core."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

AXE = Axe()
# All rules that are no experiments: WCAG to 2.2 AA, and what is good practice beside. Two are off unless one
# asks for them: targets that are large enough for fingers, and ids that are there twice.
OPTIONS: dict[str, Any] = {"rules": {"target-size": {"enabled": True}, "duplicate-id": {"enabled": True}}}
ARROW = "contains only non-text characters"  # how well it stands out is for our own eyes


def violations(page: Page) -> list[str]:
    """Return a line `rule: element: fix` for each problem, including those that axe cannot decide."""
    results: dict[str, Any] = AXE.run(page, options=OPTIONS).response
    return [
        f"{rule['id']}: {node['html'][:160]}: {node['failureSummary']}"
        for rule in (*results["violations"], *results["incomplete"])
        for node in rule["nodes"]
        if ARROW not in node["failureSummary"]
    ]
