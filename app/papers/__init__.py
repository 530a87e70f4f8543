"""From upstream responses to one row per paper.

sources               one file per upstream: parse its responses, fetch them politely
bibliography          PURE: pasted or uploaded reference lists → records
source_registry       the configured sources: add, change, pause
poll_schedule         when each source is polled: intervals, back-off, leases
polling               poll the sources that are due, read files, store what they give
ingest                records → new, merged, changed, unchanged or rejected rows
duplicate_candidates  find the stored papers that new records may be, before anything is locked
dedupe                PURE: are two records the same paper?
field_precedence      PURE: field-by-field precedence between records, content hash
merging               merge two rows, undo a merge
vote_history          the votes for a paper over time, as one source counted them
queries               papers as the later packages see them; find a paper by arXiv id, DOI or URL
display               PURE: how a paper's authors and summary are shown, in mails and pages alike
llm_summaries         optional one-sentence summaries by a language model
"""
