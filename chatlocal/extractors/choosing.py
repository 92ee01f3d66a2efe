"""A record filled value by value: each is chosen by likelihood among what the text offers.

For models that were never trained to write JSON. Nothing is generated where the text has what is asked for: a string is
a span of the text, a number or date one that stands in it, a choice one of those listed, and "not given" competes where
a field may be absent. Whatever has another form is written by the model under a grammar. So the answer is always whole
and valid as far as a grammar can make it.

Of a list of records the field that names them is read first, for all of them; then each record is read from its part of
the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from chatlocal.engine import Engine, Sampling, constraints
from chatlocal.engine.constraints.drafts import checker
from chatlocal.engine.constraints.keywords import SPAN
from chatlocal.engine.constraints.references import escape
from chatlocal.engine.families import Prompt, Text
from chatlocal.engine.field_list import resolve
from chatlocal.extractors.extraction_prompt import WorkedExample
from chatlocal.extractors.field_kinds import may_be_offered, naming_field, single_kind
from chatlocal.extractors.grounded_fields import demands_spans
from chatlocal.extractors.growing_value import nested
from chatlocal.extractors.labelled_lines import Wording, label_of, wording_of
from chatlocal.extractors.likelihood import Likelihood, total
from chatlocal.extractors.lines_of_examples import ExampleLines
from chatlocal.extractors.record_parts import Needs, border, marks_between
from chatlocal.extractors.record_schema import within
from chatlocal.extractors.text_offers import Offer, date_offers, number_offers, span_offers, torn_borders

# In nats, fitted on the first half of benchmarks/data/records_labelled.jsonl and on extraction.jsonl. What is said
# against a value that stands where one of another field does, against a string that is a number or a day, and against
# "and" within an item of a list.
_TAKEN = 4.0
_BARE = 2.0
# Against each border of a span that may be in the middle of a word, against a choice that the text does not say in its
# own words, and against "not given" where a number is left that no other field has.
_TORN = 0.7
_UNSAID = 3.0
_FREE = 1.5
# Against "no" where the text denies nothing.
_DENIED = 1.1
_JOINED = 3.0
# Against each mark that is skipped to an item, and to the first one; against an empty list.
_SKIPPED = 0.5
_SKIPPED_FIRST = 0.15
_EMPTY = 2.0
# What the next item's own likelihood counts for going on with a list, and where it counts for nothing.
_NEXT = 0.5
_USUAL = 6.0

# A list is over after so many items, whatever the model says; a record in a record in a record so deep is written.
_MOST_ITEMS = 100
# So many records of a list are shown in front of the next one.
_SHOWN_RECORDS = 2
_DEEPEST = 4
_WRITTEN_TOKENS = 200
_SILENT = ("title", "description", "default", "examples", SPAN)


@dataclass(frozen=True)
class _Place:
    """Where the walk is: the path in the answer, the part of the text that is read, the prompt, and what is taken.

    The fields of one record share `taken` and `lines`.
    """

    path: tuple[str | int, ...]
    start: int
    end: int
    prompt: str
    taken: list[tuple[int, int]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def at(self, key: str | int) -> _Place:
        return replace(self, path=(*self.path, key))

    @property
    def pointer(self) -> str:
        return "".join(f"/{escape(str(key))}" for key in self.path)

    @property
    def depth(self) -> int:
        return sum(isinstance(key, str) for key in self.path)

    @property
    def so_far(self) -> str:
        return self.prompt + "".join(self.lines)


class Filling:
    """Fills an answer of one JSON Schema from one text.

    `grown` is called with the answer as far as it is there. `confidence` has the probability of each leaf among what
    was offered for it, by JSON pointer.
    """

    def __init__(
        self,
        engine: Engine,
        schema: Mapping[str, Any],
        text: str,
        likelihood: Likelihood,
        *,
        instructions: str | None = None,
        examples: Sequence[WorkedExample] = (),
        grown: Callable[[Any], None] | None = None,
    ) -> None:
        self._engine = engine
        self._root = schema
        self._text = text
        self._words: Wording = wording_of(text)
        self._likelihood = likelihood
        self._spans = list(span_offers(text))
        self._grown = grown
        told = f"{instructions}\n\n" if instructions else ""
        own = ExampleLines(schema, self._words)
        self._head = told + self._words.examples + "".join(map(own.whole, examples))
        self._list_head = told + self._words.lists + "".join(map(own.lists, examples))
        self._leaves: list[tuple[tuple[str | int, ...], Any]] = []
        self.confidence: dict[str, float] = {}
        self.written_tokens = 0

    def fill(self) -> Any:
        """The answer, a JSON value."""
        return self._value(self._root, self._read((), 0, len(self._text)), "")

    def _read(self, path: tuple[str | int, ...], start: int, end: int, before: str = "") -> _Place:
        """The beginning of a record that is read from a part of the text, behind those of its list `before` it."""
        return _Place(path, start, end, f"{self._head}{before}\n{self._shown(start, end)}\n")

    def _shown(self, start: int, end: int) -> str:
        return f"{self._words.text}{self._words.space}{' '.join(self._text[start:end].split())}"

    # the walk

    def _value(self, schema: Any, place: _Place, label: str, required: bool = True) -> Any:
        whole = resolve(schema, self._root)
        inner, nullable = single_kind(whole, self._root)
        absent = nullable or not required
        if inner.get("properties") and inner.get("type", "object") == "object" and "allOf" not in inner:
            if absent and label and not self._is_there(place, label):
                return self._leaf_done(None, place)
            if place.depth < _DEEPEST:
                return self._object(inner, place, label)
        elif inner.get("type") == "array" and isinstance(inner.get("items"), Mapping) and "prefixItems" not in inner:
            return self._array(inner, place, label)
        else:
            return self._leaf_done(self._leaf(inner, place, label, absent, whole), place)
        return self._leaf_done(self._written(whole, place, label), place)

    def _object(
        self, schema: Mapping[str, Any], place: _Place, label: str, known: Mapping[str, Any] | None = None
    ) -> Any:
        out: dict[str, Any] = {}
        for name, child in schema["properties"].items():
            if known is not None and name in known:
                out[name] = self._leaf_done(known[name], place.at(name))
                continue
            own = label_of(name, resolve(child, self._root))
            required = name in schema.get("required", ())
            value = self._value(child, place.at(name), f"{label} {own}" if label else own, required)
            if value is not None or required or self._takes_null(child):
                out[name] = value
        return out

    def _array(self, schema: Mapping[str, Any], place: _Place, label: str) -> list[Any]:
        item = resolve(schema["items"], self._root)
        if place.depth > _DEEPEST and not schema.get("minItems"):
            return list(self._leaf_done([], place))
        if item.get("properties"):
            return self._records(schema, item, place, label)
        found = self._listed(item, place, label, schema, None)
        if found is None:
            return list(self._leaf_done(self._written(schema, place, label), place))
        between = self._words.comma + self._words.space
        place.lines.append(self._words.line(label, between.join(each.words for each in found) or self._words.absent))
        place.taken.extend((each.start, each.end) for each in found)
        return list(self._leaf_done([each.value for each in found], place))

    def _records(self, schema: Mapping[str, Any], item: Mapping[str, Any], place: _Place, label: str) -> list[Any]:
        name = naming_field(item, self._root)
        key = resolve(item["properties"][name], self._root) if name is not None else {}
        own = label_of(name or "", key)
        found = self._listed(key, place, f"{label} {own}" if label else own, schema, self._needs(item, name))
        if name is None or found is None:
            return list(self._leaf_done(self._written(schema, place, label), place))
        out: list[Any] = []
        before: list[str] = []
        if not found:
            self._leaf_done(out, place)
        borders = [border(self._text, one.end, other.start) for one, other in pairwise(found)]
        parts = zip([place.start, *borders], [*borders, place.end], strict=True)
        for number, (offer, (start, end)) in enumerate(zip(found, parts, strict=False)):
            read = self._read((*place.path, number), start, end, "".join(before[-_SHOWN_RECORDS:]))
            read.lines.append(self._words.line(own, offer.words))
            read.taken.append((offer.start, offer.end))
            self.confidence[read.at(name).pointer] = self.confidence.pop(read.pointer, 1.0)
            out.append(self._object(item, read, "", {name: offer.value}))
            before.append(f"\n{self._shown(start, end)}\n{''.join(read.lines)}")
        place.taken.extend((each.start, each.end) for each in found)
        return out

    def _leaf_done(self, value: Any, place: _Place) -> Any:
        if self._grown is not None:
            self._leaves.append((place.path, value))
            self._grown(nested(self._leaves))
        return value

    def _is_there(self, place: _Place, label: str) -> bool:
        """Whether the text has anything of a record that may be absent."""
        taken, lines = list(place.taken), list(place.lines)
        found = self._leaf({"type": "string"}, replace(place, taken=taken, lines=lines), label, True, {})
        if found is not None:  # what is asked of it is not its own
            del self.confidence[place.pointer]
        return found is not None

    def _takes_null(self, schema: Any) -> bool:
        return bool(checker(within(resolve(schema, self._root), self._root)).is_valid(None))

    def _needs(self, item: Mapping[str, Any], name: str | None) -> Needs:
        """What each record must have beside its name."""
        kinds = [resolve(child, self._root) for key, child in item["properties"].items() if key != name]
        must = [
            each
            for key, each in zip((key for key in item["properties"] if key != name), kinds, strict=True)
            if key in item.get("required", ()) and "enum" not in each
        ]
        numbers = sum(each.get("type") in ("integer", "number") for each in must)
        return Needs(self._text, numbers, sum(each.get("format") == "date" for each in must))

    # values

    def _leaf(
        self, schema: Mapping[str, Any], place: _Place, label: str, absent: bool, whole: Mapping[str, Any]
    ) -> Any:
        offers = self._offers(schema, place)
        if not offers and not absent:  # better a value from elsewhere in the text than one that is not in it
            offers = self._offers(schema, replace(place, start=0, end=len(self._text)))
        if not offers and (not absent or not may_be_offered(schema)):
            value = self._written(whole, place, label)
            place.lines.append(self._words.line(label, _said(value, self._words)))
            return value
        space = self._words.space
        texts: dict[str, Offer | None] = {f"{space}{each.words}\n": each for each in reversed(offers)}
        penalties = {text: -self._penalty(each, schema, place) for text, each in texts.items() if each is not None}
        if absent:
            texts[empty := f"{space}{self._words.absent}\n"] = None
            if any(
                not isinstance(each.value, (str, bool)) and not self._penalty(each, schema, place) for each in offers
            ):
                penalties[empty] = -_FREE
        scores = self._likelihood.best(place.so_far + self._words.label(label), list(texts), penalties)
        best, self.confidence[place.pointer] = _likeliest(scores, texts)
        place.lines.append(self._words.line(label, self._words.absent if best is None else best.words))
        if best is None:
            return None
        if best.end > best.start:
            place.taken.append((best.start, best.end))
        return best.value

    def _listed(
        self, item: Mapping[str, Any], place: _Place, label: str, schema: Mapping[str, Any], needs: Needs | None
    ) -> list[Offer] | None:
        """The items of a list, in the order of the text, each behind the one before; None where none can be offered.

        `needs`, of a list of records, are the numbers and dates that a record with such an item must have too.
        """
        if not may_be_offered(item):
            return None
        space, comma = self._words.space, self._words.comma
        least, most = schema.get("minItems", 0), min(schema.get("maxItems", _MOST_ITEMS), _MOST_ITEMS)
        empty = f"{space}{self._words.absent}\n"
        line = self._words.label(label + self._words.every)
        prompt = f"{self._list_head}\n{self._shown(place.start, place.end)}\n"
        possible = self._offers(item, place)
        found: list[Offer] = []
        going = 0.0  # what speaks for one more item before that one is known
        while len(found) < most:
            behind = found[-1].end if found else place.start
            offers = [each for each in possible if (each.start >= behind if each.end else each not in found)]
            offers = [each for each in offers if needs is None or needs.may_stand(each, found, place.end)]
            texts: dict[str, Offer | None] = {
                f"{space}{each.words}{end}": each for each in reversed(offers) for end in ("\n", comma)
            }
            penalties = {
                text: -self._item_penalty(each, item, place, behind, needs, first=not found)
                for text, each in texts.items()
                if each is not None
            }
            if not found and not least:
                texts[empty], penalties[empty] = None, -_EMPTY * (1 if needs is None else 2)
            if not texts:
                break
            scores = self._likelihood.best(prompt + line, list(texts), penalties)
            best, sure = _likeliest(scores, texts)
            if best is None:
                break
            end, more = (scores.get(f"{space}{best.words}{mark}", -math.inf) for mark in ("\n", comma))
            if len(found) >= max(least, 1) and going + _NEXT * (max(end, more) + _USUAL) < 0:
                break
            self.confidence[place.at(len(found)).pointer] = sure
            found.append(best)
            line += f"{space}{best.words}{comma}"
            going = max(-20.0, min(more - end, 20.0)) + (0.0 if needs is None else needs.left(found, place.end))
        return found if len(found) >= least else None

    def _item_penalty(
        self, offer: Offer, item: Mapping[str, Any], place: _Place, behind: int, needs: Needs | None, *, first: bool
    ) -> float:
        against = 2 * self._penalty(offer, item, place) + _JOINED * (_JOINS.search(offer.words) is not None)
        if offer.end:
            step = _SKIPPED_FIRST if first else _SKIPPED
            against += step * marks_between(self._text, behind, offer.start)
        return against + (0.0 if needs is None else needs.against(offer, behind))

    def _penalty(self, offer: Offer, schema: Mapping[str, Any], place: _Place) -> float:
        """What is said against a value beforehand, in nats."""
        if offer.value is False:
            return 0.0 if _DENIES.search(self._text, place.start, place.end) else _DENIED
        against = _TORN * torn_borders(self._text, offer)
        if not offer.end and not isinstance(offer.value, bool):
            within = self._text[place.start : place.end].casefold()
            return 0.0 if offer.words.casefold() in within else _UNSAID
        against += _TAKEN if any(start < offer.end and offer.start < end for start, end in place.taken) else 0.0
        if schema.get("type") == "string" and offer.end:
            against += _BARE * (_FIGURE.fullmatch(offer.words) is not None)
        return against

    def _offers(self, schema: Mapping[str, Any], place: _Place) -> list[Offer]:
        """What may be said of a field, as far as its schema takes it."""
        bare = {key: schema[key] for key in schema if key not in _SILENT}
        offers = self._possible(schema, place)
        if set(bare) <= {"type"}:
            return list(offers)
        valid = checker(within(bare, self._root)).is_valid
        return [each for each in offers if valid(each.value)]

    def _possible(self, schema: Mapping[str, Any], place: _Place) -> Iterable[Offer]:
        words, kinds = self._words, schema.get("type")
        if "const" in schema or "enum" in schema:
            values = schema["enum"] if "enum" in schema else [schema["const"]]
            yield from (Offer(_said(value, words), value, 0, 0) for value in values if value is not None)
            return
        for kind in kinds if isinstance(kinds, list) else [kinds]:
            if kind == "boolean":
                yield Offer(words.true, True, 0, 0)
                yield Offer(words.false, False, 0, 0)
            elif kind in ("integer", "number"):
                yield from self._within(number_offers(self._text, whole=kind == "integer"), place)
            elif kind == "string":
                dated = schema.get("format") == "date"
                yield from self._within(date_offers(self._text) if dated else self._spans, place)

    def _within(self, offers: Iterable[Offer], place: _Place) -> Iterator[Offer]:
        return (each for each in offers if place.start <= each.start and each.end <= place.end)

    def _written(self, schema: Mapping[str, Any], place: _Place, label: str) -> Any:
        """A value that the model writes, held to its schema by a grammar."""
        self._likelihood.look()
        line = self._words.label(label) if label else ""
        prompt = Prompt((Text(f"{place.so_far}{line} "),), begins=True)
        whole = within(schema, self._root)
        spec = constraints.json_schema(whole, text=self._text if demands_spans(whole) else None)
        reply = self._engine.generate(prompt, spec=spec, sampling=Sampling(temperature=0.0, max_tokens=_WRITTEN_TOKENS))
        self.written_tokens += reply.finish.usage.completion
        for pointer, sure in (reply.finish.confidence or {}).items():
            self.confidence[place.pointer + pointer] = sure
        return json.loads(reply.message.text)


def _likeliest(scores: Mapping[str, float], texts: Mapping[str, Offer | None]) -> tuple[Offer | None, float]:
    """The offer that is likeliest, all ways to write its value together, and its share."""
    values: dict[str, list[str]] = {}
    for text in scores:
        offer = texts[text]
        values.setdefault("" if offer is None else json.dumps(offer.value), []).append(text)
    sums = {value: total([scores[text] for text in ways]) for value, ways in values.items()}
    best = max(sums, key=sums.__getitem__)
    text = max(values[best], key=scores.__getitem__)
    return texts[text], math.exp(sums[best] - total(list(sums.values())))


def _said(value: Any, words: Wording) -> str:
    if value is None:
        return words.absent
    if isinstance(value, bool):
        return words.true if value else words.false
    return value.replace("_", " ") if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_FIGURE = re.compile(r"[\d.,]+|\d{4}-\d\d-\d\d")
_DENIES = re.compile(
    r"\b(?:no|not|never|none|nobody|nothing|without|neither|cannot)\b|n['’]t\b|[不没無无未非]", re.IGNORECASE
)
_JOINS = re.compile(r"\b(?:and|or)\b|[和与及或]")
