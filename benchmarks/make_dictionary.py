"""Write app/relevance/dictionary.txt.xz: English words, which are never taken for slips.

    python -m benchmarks.make_dictionary /usr/share/dict/american-english-large

The list of words is that of Debian's package wamerican-large (SCOWL, level 70). Its license is in
app/relevance/dictionary-licence.txt.
"""

import lzma
import sys
from pathlib import Path

from app.relevance import misspellings, vocabulary
from app.text.characters import fold_accents


def main() -> None:
    lines = Path(sys.argv[1]).read_text("utf-8").splitlines()
    folded = {fold_accents(line) for line in lines}
    words = sorted(
        word for word in folded if len(word) >= misspellings.MIN_LETTERS and word.isascii() and word.isalpha()
    )
    packed = lzma.compress("\n".join(words).encode(), preset=9 | lzma.PRESET_EXTREME)
    vocabulary.DICTIONARY.write_bytes(packed)
    print(f"{len(words)} words, {len(packed) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
