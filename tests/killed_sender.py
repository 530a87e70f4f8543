"""A sender that test_deliver kills: `python -m tests.killed_sender SETTINGS NOW`."""

from __future__ import annotations

import json
import sys
from datetime import datetime

from app import main, pipeline
from app.settings import Settings

if __name__ == "__main__":
    settings = Settings(_env_file=None, **json.loads(sys.argv[1]))
    pipeline.send_pending(main.build(settings), datetime.fromisoformat(sys.argv[2]))
