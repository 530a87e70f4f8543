"""What comes back: notices → whose mail it was → events → scores → suppression.

events     a bounce or complaint becomes an event, and what follows from it
scores     PURE: when soft bounces are enough
"""

from app.bounces.events import note_refusal

__all__ = ["note_refusal"]
