"""PURE. The codes and phrases with which receivers ask the sender to slow down."""

import re

# Of Gmail, Yahoo, Outlook and Orange. Other temporary refusals defer one email, and sending goes on.
THROTTLING = re.compile(
    r"\b4\.7\.(?:28|65\d)\b|\[TSS?\d\d\]|\bS77\d{1,3}\b|\bOFR(?:004)?_\d{3}\b"
    r"|\bunusual rate of (?:unsolicited|e-?mail)"
    r"|\btemporarily (?:rate[- ]limited|deferred due to unexpected volume)",
    re.IGNORECASE,
)
