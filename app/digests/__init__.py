"""Digests: select the papers for each subscriber, and explain why.

builder           load the candidates once per run, and build digests from them
interest_matching match each distinct interest and muted text once; give hints about interests
planning          write one delivery, or one skip with its reason, for everyone who is due
clock_check       refuse to plan while the clocks differ
ranking           PURE: subscribers × papers → the papers above the floor, best first
too_few_papers    PURE: decide whether a digest with too few papers is held back
selection         PURE: quotas, the best paper of each interest, diversity by MMR
paper_news        find news about papers that subscribers were sent or liked
notes             PURE: the headings and notes of a digest: why none was sent, what was left out
compose           PURE: selected papers → sections, notes and cards, or a skip with its reason
explanation       collect the facts on why a subscriber was or was not sent a paper
explanation_types the types of these facts
explanation_text  the one-sentence summary of these facts
backtesting       the digests that interests would have produced on recent days
hiding            hide a paper, and take it out of unsent digests
operator_changes  an operator's changes to a paper, recorded in the audit log
after_restore     hold the digests that may have been sent since a backup was made
reconciliation    compare the ledger with an independent count of who was due
"""
