"""Ask an operator to confirm an action that cannot be undone, and say what it does."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Response

from app.web.admin.sign_in import Operator


def confirmation_page(
    operator: Operator,
    question: str,
    consequences: str,
    *,
    confirm: str,
    section: str,
    back: str,
    facts: Mapping[str, str] = {},
) -> Response:
    """Return a page whose button, labelled `confirm`, sends a form to the path of the request.

    `section` is the path of the section of the admin pages, and `back` the page to which “Go back” leads.
    `facts` describes what the action is about. Code in `consequences` is between backticks.
    """
    return operator.page(
        "admin/confirmation.html", question=question, consequences=consequences, confirm=confirm,
        section=section, back=back, facts=facts, action=operator.request.url.path,
    )  # fmt: skip
