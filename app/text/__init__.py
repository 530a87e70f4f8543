"""PURE functions on text.

characters     normal form C; removing invisible and direction-changing characters
sanitize       untrusted values → clean text, numbers, URLs
identifiers    untrusted values → arXiv ids and DOIs
dates          untrusted values → dates
latex          LaTeX → Unicode
tokenizer      tokens, stems, stop words
names          names of people and organisations, as they are compared
abbreviations  abbreviations and their long forms, learned from texts (Schwartz–Hearst)
display        one safe line, wrapped lines, text direction
shortening     texts cut between words, titles cut to the name before the colon
openings       sentences without the words that refer to the sentence before
summarizer     the most informative sentence of an abstract
"""
