"""Where words begin and end in a text: the places at which a value taken from it may begin and end.

A border stands everywhere but between two characters of one word. In scripts that put no spaces between words, or hang
particles on them (Chinese, Japanese, Korean, Thai and its neighbours), it stands between any two characters. What
belongs to the character before it (combining marks, joiners, skin tones) is never cut off.
"""

from __future__ import annotations

import re
import unicodedata

# Blocks of Unicode: Thai and Lao, Tibetan and Myanmar, Hangul letters, Khmer, kana to hangul compatibility letters and
# bopomofo, CJK extension A, CJK, Yi, Hangul syllables, CJK compatibility, half-width kana, CJK extensions B and on.
_UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_PIECE = re.compile(rf"[^\W{_UNSPACED}]+|.", re.DOTALL)
_WORD = re.compile(rf"[^\W{_UNSPACED}]")
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_JOINER = "\u200d"
_SKIN_TONES = re.compile("[\U0001f3fb-\U0001f3ff]")


def pieces(text: str) -> list[str]:
    """The text cut at every border: words, and single characters where nothing joins them."""
    found = _PIECE.findall(text)
    return found if text.isascii() else _joined(found)


def borders(text: str) -> list[int]:
    """The offsets of all borders, 0 and len(text) among them, in order."""
    found = [0]
    for piece in pieces(text):
        found.append(found[-1] + len(piece))
    return found


def is_unspaced(character: str) -> bool:
    """Whether a character is of a script in which words need no space between them."""
    return _UNSPACED_CHARACTER.match(character) is not None


def _joined(found: list[str]) -> list[str]:
    """Pieces with what belongs to the character before it."""
    out: list[str] = []
    goes_on = False  # a mark stood in a word, which goes on behind it
    for piece in found:
        if out and (clings(piece[0]) or out[-1][-1] == _JOINER or (goes_on and _WORD.match(piece))):
            goes_on = goes_on or _WORD.match(out[-1]) is not None
            out[-1] += piece
        else:
            goes_on = False
            out.append(piece)
    return out


def clings(character: str) -> bool:
    """Whether a character belongs to the one before it."""
    return not character.isascii() and (
        character == _JOINER or unicodedata.category(character)[0] == "M" or _SKIN_TONES.match(character) is not None
    )
