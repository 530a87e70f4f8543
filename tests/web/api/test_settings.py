"""Test that no secret of the settings is shown, by the API, on the admin page or by the command."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from app import clock, main
from app.application import Application
from app.cli.commands import cli
from app.settings import Settings, load
from app.storage import api_keys
from app.storage.api_keys import Scope
from app.web.admin.sign_in import COOKIE
from tests.web.api.conftest import admin_api

# A marker is in every part of a value that may be secret.
FILLED = {
    "SECRET_KEYS": f"{'hush' * 9},{'hush' * 10}",
    "DATABASE_URL": "postgresql+psycopg://hush:hush%40hush@db.test/papers?password=hush&sslpassword=hush",
    "SMTP_USERNAME": "hush",
    "SMTP_PASSWORD": "hush/hush",
    "BOUNCE_MAILBOX": "imaps://hush:hush@mail.test/INBOX",
    "MAILGUN_KEY": "hush",
    "SUMMARY_URL": "https://hush:hush@model.test/v1?key=hush",
    "SUMMARY_MODEL": "small",
    "SUMMARY_KEY": "hush",
    "OTEL_ENDPOINT": "http://hush@collector.test:4318/?token=hush",
    "BASE_URL": "https://hush:hush@papers.test",
    "SITE_NAME": "Papers of the lab",
}


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """Fill the environment with settings that contain secrets, and load them."""
    monkeypatch.chdir(tmp_path)
    for name, value in FILLED.items():
        monkeypatch.setenv(f"PAPERBOY_{name}", value)
    return load(admin_addresses=("ada@example.org",))


@pytest.mark.once
def test_no_secret_is_shown(app: Application, filled: Settings) -> None:
    """Not even in part. The rest of each URL is visible, and so is that a secret is set."""
    assert str(filled.model_dump()).count("hush") > 30
    with app.db.write() as session:
        key = api_keys.create(session, "desk", [Scope.READ], clock.utcnow())[1]
    site = main.create_app(app)
    for part in (site, admin_api(site)):
        part.state.paperboy = replace(app, settings=filled)
    browser = TestClient(site, base_url="https://testserver", raise_server_exceptions=False)
    answer = browser.get("/api/v1/settings", headers={"Authorization": f"Bearer {key}"})
    browser.post("/admin/sign-in", data={"key": key}, follow_redirects=False)
    assert COOKIE in browser.cookies
    shown = browser.get("/admin/settings")
    commands = [
        CliRunner().invoke(cli, ["settings", *options]) for options in ([], ["--json"], ["--changed"])
    ]
    texts = [answer.text, shown.text, *(command.stdout for command in commands)]
    for text in texts:
        assert "hush" not in text, text
        for visible in ("@db.test/papers", "@model.test/v1", "collector.test:4318", "Papers of the lab"):
            assert visible in text, visible
    listed = {each["name"]: each for each in answer.json()["items"]}
    assert list(listed) == [f"PAPERBOY_{name.upper()}" for name in Settings.model_fields]
    password = listed["PAPERBOY_SMTP_PASSWORD"]
    assert (password["value"], password["changed"], password["secret"]) == ("…", True, True)
    assert listed["PAPERBOY_SMTP_PORT"] == {
        "name": "PAPERBOY_SMTP_PORT", "value": 25, "default": 25, "changed": False, "secret": False,
    }  # fmt: skip
    assert [each["name"] for each in json.loads(commands[1].stdout)] == list(listed)
    assert "PAPERBOY_SMTP_PORT" not in commands[2].stdout
    assert re.search(r"<strong>Papers of the lab</strong>", shown.text)
