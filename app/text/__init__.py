"""PURE functions on text.

characters     one spelling for what strangers write; removes invisible and direction-changing characters
sanitize       untrusted values → clean text, ids, URLs, days
latex          LaTeX → Unicode
tokenizer      tokens, stems, stop words, normalised names of people
abbreviations  short forms and what they stand for, learned from texts (Schwartz–Hearst)
summarizer     the most informative sentence of an abstract
"""
