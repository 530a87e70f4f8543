"""Find accessibility problems with axe-core."""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

# All rules except experimental ones: WCAG 2.2 AA and best practices. Two are off by default:
# targets that are large enough for fingers, and duplicate ids. Frames show emails in a sandbox, where axe
# cannot run: test_mails.py tests these.
OPTIONS: dict[str, Any] = {
    # axe then reports one element that passes each rule. Reporting all takes a third of its time.
    "resultTypes": ["violations", "incomplete"],
    "rules": {
        "target-size": {"enabled": True},
        "duplicate-id": {"enabled": True},
        "frame-tested": {"enabled": False},
    },
}
RUN = "options => axe.run(options).then(found => [...found.violations, ...found.incomplete])"
ARROW = "contains only non-text characters"  # contrast is judged by eye


def violations(page: Page) -> list[str]:
    """Return a line `rule: element: fix` for each problem, including those that axe cannot decide."""
    if not page.evaluate("'axe' in window"):  # on its first run on this page
        page.evaluate(AXE_SCRIPT)
    problems: list[dict[str, Any]] = page.evaluate(RUN, OPTIONS)
    return [
        f"{rule['id']}: {node['html'][:160]}: {node['failureSummary']}"
        for rule in problems
        for node in rule["nodes"]
        if ARROW not in node["failureSummary"]
    ]
