"""PURE functions on text.

characters             normal form C; single lines without invisible and direction-changing characters
sanitize               untrusted values → clean text, numbers, URLs
identifiers            untrusted values → arXiv ids and DOIs; arXiv categories
dates                  untrusted values → dates; names of time zones
domains                international domains in ASCII, also in addresses
latex                  LaTeX → Unicode
tokenizer              split texts into tokens with their stems; stop words
word_forms             stems, and the forms of a word: British spellings, plurals, endings
names                  put given names first; normalize names for comparison
acronyms               acronyms that are spelled like ordinary words: "CLIP" and "clip"
preposition_compounds  compounds that need their hyphen: "in-context"
definitions            find the short forms that a text defines: "diffusion model (DM)" (Schwartz–Hearst)
abbreviations          abbreviations and their long forms, learned from texts
shorter_readings       words that long forms can leave out: "diffusion (language) models"
in_words               write counts with their nouns, and validation errors in plain words
direction              detect right-to-left texts
wrapping               wrap lines
shortening             cut texts between words, and titles to the name before the colon
sentence_openings      remove openings that refer to the previous sentence
summarizer             choose the most informative sentence of an abstract
"""
