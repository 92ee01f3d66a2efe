"""What a text offers as values: spans of words, numbers and dates, each with where it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chatlocal.engine.constraints.word_borders import is_unspaced
from chatlocal.extractors.date_forms import dates
from chatlocal.extractors.number_forms import numbers

# A span of more words than this is a sentence rather than a value; a character of Chinese counts half.
_MOST_WORDS = 8.0

_CHINESE = "\u3400-\u9fff"
_PIECE = re.compile(
    rf"[{_CHINESE}]|[#§]?[^\W{_CHINESE}](?:[^\s{_CHINESE}()\[\]\"“”«»<>《》，。；：！？、]*[^\W{_CHINESE}])?|\S"
)
# Between a word and the next one these end what is said; a comma inside a number is no mark of its own.
_ENDS = frozenset('。；;！？!?，、：:"“”«»《》()（）[]【】,|')
# Words that join others: a span neither begins nor ends with one.
# Not where it is part of a name: The Hague.
_ARTICLE = re.compile(r"(?:the|an?|The|An?) (?=[a-z])")
# Words that a point may shorten: Mr., Prof., J.
_SHORT = re.compile(r"[A-Z]\w{0,3}|\w")
_FIGURES = frozenset("〇零一二两三四五六七八九十百千万亿")
_CHINESE_JOINING = "的了是在和与及或由从到向把被将于至也都就还很而且给对为着过吗呢吧"
_ENGLISH_JOINING = "to of in at on by for with from and or is are was were who which that has have had"
_JOINING = frozenset(_CHINESE_JOINING) | frozenset(_ENGLISH_JOINING.split(" "))


@dataclass(frozen=True)
class Offer:
    """A value that text[start:end] may stand for; `words` is how it is written in a line of an answer."""

    words: str
    value: Any
    start: int
    end: int


def span_offers(text: str) -> Iterator[Offer]:
    """Spans from word to word that cross no mark and no end of a sentence, without the article in front of a noun."""
    pieces = list(_PIECE.finditer(text))
    for first, piece in enumerate(pieces):
        if not _may_border(piece[0]):
            continue
        size = 0.0
        for last in range(first, len(pieces)):
            word = pieces[last]
            gap = text[pieces[last - 1].end() : word.start()] if last > first else ""
            if last > first and _apart(gap, pieces[last - 1][0], pieces[last - 2][0]):
                break
            if word[0] in _ENDS:
                break
            size += 0.5 if is_unspaced(word[0][0]) else 1.0
            if size > _MOST_WORDS:
                break
            if _may_border(word[0]):
                span = text[piece.start() : word.end()]
                article = _ARTICLE.match(span)
                value = span[article.end() :] if article else span
                yield Offer(span, value, word.end() - len(value), word.end())


def number_offers(text: str, *, whole: bool) -> Iterator[Offer]:
    """Numbers, as digits and as they are written; `whole`: integers only."""
    for found in numbers(text):
        integral = found.value == found.value.to_integral_value()
        if whole and not integral:
            continue
        value: int | float = int(found.value) if integral else float(found.value)
        for words in dict.fromkeys((str(value), text[found.start : found.end])):
            yield Offer(words, value, found.start, found.end)


def date_offers(text: str) -> Iterator[Offer]:
    """Whole dates, in the form that JSON Schema's `date` wants."""
    for found in dates(text):
        for words in dict.fromkeys((found.value.isoformat(), text[found.start : found.end])):
            yield Offer(words, found.value.isoformat(), found.start, found.end)


def torn_borders(text: str, offer: Offer) -> int:
    """How many ends of an offer may be in the middle of a word: scripts without spaces do not show it."""
    if not offer.end or not is_unspaced(text[offer.start]):
        return 0
    around = (text[offer.start - 1 : offer.start], text[offer.end : offer.end + 1])
    return sum(bool(each) and is_unspaced(each) and each not in _JOINING and each not in _FIGURES for each in around)


def _may_border(piece: str) -> bool:
    return piece[-1].isalnum() and piece not in _JOINING


def _apart(gap: str, before: str, word: str) -> bool:
    """Whether a line or a sentence ends between two pieces, `word` being the one before a point."""
    if "\n" in gap:
        return True
    return before in (".", "…") and gap != "" and _SHORT.fullmatch(word) is None
