"""PURE functions on text.

characters     normal form C; one safe line, without invisible and direction-changing characters
sanitize       untrusted values → clean text, numbers, URLs
identifiers    untrusted values → arXiv ids and DOIs
dates          untrusted values → dates
latex          LaTeX → Unicode
tokenizer      tokens, stems, stop words
names          names of people and organisations, as they are compared
abbreviations  abbreviations and their long forms, learned from texts (Schwartz–Hearst)
in_words       counts and messages in words
direction      right-to-left texts
wrapping       wrapped lines
shortening     texts cut between words, titles cut to the name before the colon
sentence_openings sentences without the words that refer to the sentence before
summarizer     the most informative sentence of an abstract
"""
