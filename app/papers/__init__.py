"""Turn upstream responses into one row per paper.

sources               one module per upstream: fetch its responses politely and parse them
bibliography          PURE: convert pasted or uploaded reference lists to records
source_registry       the configured sources: add, change, pause
poll_schedule         the schedule of polls: intervals, back-off, leases
poll_history          record the polls of each source: times, counts, rejected rows, errors
silent_sources        detect sources that have stopped listing papers
source_trial          try a source before it is added, without storing anything
polling               poll the sources that are due, read files, store their papers
rechecking            query the sources again about papers that were sent or liked
ingest                records → new, merged, changed, unchanged or rejected rows
record_days           PURE: correct days in the future, and those of feeds that are read again
stored_rows           the stored rows that a batch of records may change, by arXiv id, DOI and title
duplicate_candidates  find stored papers that new records may duplicate, before the archive is locked
dedupe                PURE: decide whether two records are the same paper
title_normalization   PURE: the words, numbers, names and abbreviations of a title, for comparison
title_differences     PURE: decide whether words that differ between two titles indicate two papers
field_precedence      PURE: choose the record that supplies each field of a paper; content hash
stored_fields         the fields of a row, as sources give them and as subscribers see them
editing               edit the fields of a paper
withdrawals           withdraw papers, and reinstate them
pinning               put a paper first in digests for a number of days
merging               merge two rows, undo a merge
splitting             split a paper that is really two papers
previous_archive      after a restore, copy what has changed in the archive since the backup
vote_history          the votes for a paper over time, as counted by one source
canonical_rows        find the current row of a paper, given a merged row, an arXiv id, a DOI or a URL
paper_views           papers as the other packages see them, with votes, listings and summaries
listings              the listings of a paper, and the sources that they come from
listing_days          the days on which sources listed papers
archive_lists         lists of papers: filtered, searched by operators, or ranked by votes; titles, keywords
updated_papers        papers that were withdrawn, or for which code was found, and when they were sent
searchable_papers     papers with their searchable fields, for the search index
bylines               PURE: a paper's authors in one line
pictures              the pictures of papers, as pages show them
picture_fetching      fetch the pictures of recently listed papers
picture_encoding      PURE: decode an untrusted picture, encode a small copy of it
llm_summaries         optional one-sentence summaries, written by a language model
"""
