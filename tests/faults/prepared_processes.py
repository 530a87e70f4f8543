"""Prepare what each sender would otherwise do again: the fork server imports this once, before it forks."""

import gc

from sqlalchemy.orm import configure_mappers

from app import main
from app.mail import render, template_folders
from app.settings import Settings
from app.storage import schema
from tests.faults import sender_process  # noqa: F401  (with all that it imports)
from tests.support import compiled_templates

configure_mappers()
schema.known_revisions()
render.template_environment = compiled_templates.sharing(render.template_environment)  # type: ignore[assignment]
unused = Settings(_env_file=None, secret_keys=("prepared" * 4,)).model_copy(
    update={"database_url": "sqlite://"}
)
main.build(unused).db.dispose()
folder = template_folders.SHIPPED / "email"
templates = render.template_environment((folder,))
for path in (folder / "digest").iterdir():
    templates.get_template(f"digest/{path.name}")
gc.collect()
gc.freeze()  # else the first collection of each sender copies all that it shares with the fork server
