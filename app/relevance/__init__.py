"""How well papers fit interests and likes.

query_language   PURE: what a reader typed → words, phrases, exclusions, `author:`, `cat:`
vector_space     PURE: papers as rows of numbers: BM25F, TF-IDF, LSA
model            PURE: term statistics, abbreviations and LSA learned from the archive
model_store      train, store, load and verify models
index_cache      the last few match indexes
phrase_index     PURE: exact phrases in many papers at once
filters          PURE: required and excluded phrases, authors, categories
highlights       PURE: the matched words as the paper spells them
matching         PURE: interests × papers → relevance, and the facts for its reason
user_profile     PURE: likes and dislikes → relevance (Rocchio relevance feedback)
reasons          PURE: the sentences on cards that say why a paper is shown
trending         PURE: votes over time → a score, and words for it
archive_search   search over the newest papers of the archive, in memory
"""
