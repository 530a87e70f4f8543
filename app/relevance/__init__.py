"""Score how well papers match interests and likes.

query_language            PURE: parse interests: words, phrases, exclusions, filters
query_rewriting           PURE: split, correct and describe the texts of interests, and write filters
muted_texts               PURE: parse muted words, phrases and filters
mute_suggestions          PURE: suggest words of a paper that its reader may want to mute
vocabulary                PURE: the words of papers in their usual spelling, and an English dictionary
misspellings              PURE: find the most likely correction of a misspelled word
arxiv_categories          PURE: the categories of arXiv, and the one that an unknown category may mean
translations              PURE: translate technical terms into English
suggestions               PURE: correct interests with the archive's vocabulary, and suggest other topics
bm25                      PURE: papers as rows of term weights: BM25F, TF-IDF
vector_space              PURE: the LSA space of an archive, and the papers that serve as examples
model                     PURE: the term statistics, abbreviations and LSA space learned from the archive
model_store               train, store, load and verify models
match_index_cache         cache the most recently used match indexes
phrase_index              PURE: find phrases in many papers at once
filters                   PURE: check required and excluded phrases and filters
typed_organizations       PURE: recognize organizations that subscribers type as plain words
word_runs                 PURE: find the runs of neighboring words that are terms of an interest
highlights                PURE: find the matching words of a paper, as the paper spells them
query_words               PURE: prepare the words of an interest for comparison with papers
matching                  PURE: match interests with papers: the relevance, and the reason on the card
pseudo_relevance_feedback PURE: find papers in the archive that show what an interest means
cut_offs                  PURE: estimate each interest's cut-off, and convert agreement to relevance
user_profile              PURE: score papers by likes and dislikes (Rocchio relevance feedback)
reasons                   PURE: the texts on cards that say why a paper is shown, with related words
trending                  PURE: score how strongly papers trend, from their votes
trend_notes               PURE: describe votes over time in a note on a card: “6 → 81 votes since yesterday”
scoring                   PURE: combine words and meaning into agreement, relevance and strength
search_index_folder       the versions of the search index on disk
search_index              write and read one version of the search index
search_index_fields       the fields of the search index, and its queries
search_index_records      PURE: encode the data that ranking needs about a paper
search_index_updates      bring the search index up to date with the archive
search_ranking            find candidates in the search index, and rank them
search_offers             PURE: choose the other searches that a page of results offers
archive_search            search the whole archive
"""
