"""Digests: select the papers for each subscriber, and explain why.

builder           load the candidates once per run, and build digests from them
digest_requests   load what a digest is built from: the subscriber, interests, feedback, earlier papers
covered_days      decide which listing days a digest covers, such as more after one that failed
interest_matching match each distinct interest and muted text once; give hints about interests
planning          write one delivery, or one skip with its reason, for everyone who is due
clock_check       refuse to plan while the clocks differ
ranking           PURE: rank the papers that are relevant enough to each subscriber
too_few_papers    PURE: decide whether a digest with too few papers is held back
selection         PURE: select papers: quotas, the best of each interest, diversity by MMR
paper_updates     find updates on papers that subscribers were sent or liked
notes             PURE: the notes of a digest, such as what was left out
skip_reasons      PURE: the reasons for a missing digest, such as words that no paper mentions
compose           PURE: compose sections, notes and cards, or a skip with its reason
latest_digest     the digest that a subscriber would get now, or else their last one
explanation       explain why a subscriber was or was not sent a paper
explanation_types the types that make up an explanation
explanation_text  write an explanation: its sentence, a note on changed preferences, the scores
backtesting       compute the digests that interests would have produced on recent days
hiding            hide a paper; take hidden and merged papers out of unsent digests
operator_changes  change papers for an operator, and record the changes in the audit log
reconciliation    compare the ledger with an independent count of who was due
"""
