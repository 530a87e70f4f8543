"""Score how well papers match interests and likes.

query_language   PURE: what a subscriber typed → words, phrases, exclusions, `author:`, `org:`, `cat:`
mute_suggestions  PURE: words of a paper that its reader may want to mute
vocabulary       PURE: the words of papers, as they are spelled
misspellings     PURE: misspelt words → the words that they most likely mean
translations     PURE: terms of the field in other languages → English
suggestions      PURE: correct interests by the archive's words, and suggest other topics
bm25             PURE: papers as rows of term weights: BM25F, TF-IDF
vector_space     PURE: the LSA space of an archive, and its examples
model            PURE: term statistics, abbreviations and LSA learned from the archive
model_store      train, store, load and verify models
match_index_cache cache the last few match indexes
phrase_index     PURE: find exact phrases in many papers at once
filters          PURE: required and excluded phrases, authors, organisations, categories
typed_organizations PURE: organisations that subscribers type as plain words
highlights       PURE: the matching words, as the paper spells them
matching         PURE: interests × papers → relevance, and the facts for its reason
query_examples   PURE: the archive's papers that show what an interest means
cut_offs         PURE: agreement → relevance; the agreement that an interest's papers need
user_profile     PURE: likes and dislikes → relevance (Rocchio relevance feedback)
reasons          PURE: the texts on cards that say why a paper is shown
trending         PURE: votes over time → a score
trend_notes      PURE: describe votes over time in a note on a card: “6 → 81 votes since yesterday”
scoring          PURE: matrices of words and meaning → agreement → relevance, and their weights
search_index_folder the versions of the search index on disk
search_index     write and read one version
search_index_fields the fields of the search index; translate queries for it
search_index_records PURE: encode the data that ranking needs about a paper
search_index_updates bring the search index up to date with the archive
search_ranking     find candidates in the search index, and rank them
archive_search   search the whole archive
"""
