"""Who gets which papers, and why.

builder         load the candidates once per run and match each distinct interest once
planning        write one delivery, or one skip with its reason, for everyone who is due
ranking         PURE: readers × papers → the papers above the floor, best first
compose         PURE: select for variety, group by interest, say what was left out
explanation     why a reader was sent a paper, or was not
backtesting     what interests would have brought over the last days
reconciliation  compare the ledger with who was due
"""
