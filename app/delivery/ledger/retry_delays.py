"""When an email is sent again that the relay may accept later, such as after a temporary refusal."""

from datetime import timedelta

from app.storage.growing_delays import GrowingDelays

EMAILS = GrowingDelays(first=timedelta(minutes=5), longest=timedelta(hours=4), factor=2)
