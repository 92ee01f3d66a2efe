"""JSON Schema and Lark grammars by llguidance, which also takes a regex that has too large an automaton.

llguidance never raises: a bad grammar, a token that does not fit or a limit put the matcher into an error state for
good. So every call here asks before it acts or checks after it did.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from chatlocal.engine.constraints.known_texts import KnownTexts
from chatlocal.engine.constraints.length_limits import LengthLimits
from chatlocal.engine.constraints.nesting import Nesting
from chatlocal.engine.constraints.normalise import Normalised, normalise
from chatlocal.engine.constraints.number_range import NumberRange
from chatlocal.engine.constraints.patterns import MAX_SIZE
from chatlocal.engine.constraints.protocol import Cursor, Grammar, GrammarBackend, Tokens, TooComplex, per_tokens
from chatlocal.engine.constraints.regex_dialect import rust_pattern
from chatlocal.engine.constraints.regex_size import expanded_size
from chatlocal.engine.constraints.shortest_values import shortest_strings, shortest_values
from chatlocal.engine.constraints.span_grammar import has_spans, span_grammar, with_a_span
from chatlocal.engine.constraints.spec import Spec
from chatlocal.engine.constraints.spelling import can_spell, check_spelling
from chatlocal.engine.constraints.text_spans import TextSpans
from chatlocal.engine.errors import UnsupportedSchema

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

# Ten times the default: the lexer is shared by all cursors of a grammar and grows with every text that it meets.
# About 0.2 s at most for a grammar that uses all of it. It holds for the whole and for each step: at the default for
# a step, 50 times less, a text of many ids without masks between them brings the lexer, and with it the grammar, down.
LEXER_FUEL = 10_000_000


class LLGuidanceGrammar:
    """A grammar over one vocabulary. Each cursor has a matcher of its own: one must not be used by two threads.

    `spelled` is the same grammar with every token as text, where `source` names ids.
    """

    def __init__(
        self, source: str, tokens: Tokens, left_to_validation: tuple[str, ...], spelled: str | None = None
    ) -> None:
        self.left_to_validation = left_to_validation
        self._spelled = source if spelled is None else spelled
        self._matcher = _matcher(source, _tokenizer(tokens))
        self._bytes: LLMatcher | None = None
        self._lock = Lock()
        # The first mask of a grammar builds its lexer and takes a hundred times as long as those that follow.
        self._matcher.compute_bitmask()
        _check(self._matcher)

    def accepts(self, text: str) -> bool:
        with self._lock:
            if self._bytes is None:
                self._bytes = _matcher(self._spelled, LLTokenizer("byte"))
            matcher = self._bytes.deep_copy()
        wanted = list(text.encode())
        taken = matcher.try_consume_tokens(wanted)
        if taken == len(wanted):
            _check(matcher)
            return bool(matcher.is_accepting())
        matcher.consume_token(wanted[taken])  # refused, and now it says why: a limit is not an answer
        if "doesn't satisfy the grammar" not in matcher.get_error() and not matcher.is_stopped():
            _check(matcher)
        return False

    def start(self) -> LLGuidanceCursor:
        with self._lock:
            return LLGuidanceCursor(self._matcher.deep_copy())


class LLGuidanceCursor(Cursor):
    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        _check(self._matcher)
        allowed |= np.unpackbits(bits, count=len(allowed), bitorder="little").view(np.bool_)

    def advance(self, id: int) -> bool:
        taken = self._matcher.try_consume_tokens([id])
        _check(self._matcher)
        return bool(taken == 1)

    def rollback(self, count: int) -> None:
        self._matcher.rollback(count)
        _check(self._matcher)

    def forced_bytes(self) -> bytes:
        forced: bytes = self._matcher.compute_ff_bytes()
        _check(self._matcher)
        return forced

    def copy(self) -> LLGuidanceCursor:
        return LLGuidanceCursor(self._matcher.deep_copy())

    @property
    def complete(self) -> bool:
        return bool(self._matcher.is_accepting())

    @property
    def exhausted(self) -> bool:
        return bool(self._matcher.is_stopped() and self._matcher.is_accepting())


class _Wrapper(TokenizerWrapper):
    """What LLTokenizer asks of a tokenizer. The end is an id of our own: end ids are no part of the text."""

    def __init__(self, tokens: Tokens) -> None:
        self.is_tokenizer_wrapper = True
        self.bos_token_id = None
        self.eos_token_id = len(tokens.texts)
        self.tokens = [*tokens.texts, b"\xff<end>"]
        for name, id in tokens.named.items():
            self.tokens[id] = b"\xff" + name.encode()
        self.special_token_ids = [self.eos_token_id, *tokens.named.values()]
        self._tokens = tokens

    def __call__(self, text: str) -> list[int]:
        return self._tokens.encode(text)


@per_tokens
def _tokenizer(tokens: Tokens) -> LLTokenizer:
    return LLTokenizer(_Wrapper(tokens), eos_token=len(tokens.texts))


def _matcher(source: str, tokenizer: LLTokenizer) -> LLMatcher:
    limits = LLParserLimits(initial_lexer_fuel=LEXER_FUEL, step_lexer_fuel=LEXER_FUEL)
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=limits)
    _check(matcher)
    return matcher


def _check(matcher: LLMatcher) -> None:
    if matcher.is_error():
        raise _error(matcher.get_error())


_LIMITS_MET = (
    *("too complex", "TooComplex", "too many", "limit", "exceeded", "too large", "too big", "fuel exhausted", "max is"),
    "Unable to determine",
)


def _error(message: str) -> UnsupportedSchema:
    first = message.partition("\n")[0]
    place = re.search(r"json-schema:///#(\S*)", message)
    if first.startswith("NoExtension"):
        return UnsupportedSchema("vocabulary", "", "the tokenizer has no token that can come next")
    if any(word in first for word in _LIMITS_MET):
        return TooComplex(first)
    return UnsupportedSchema("grammar", place[1] if place else "", first)


def _build(spec: Spec, tokens: Tokens) -> Grammar:
    if spec.kind == "marked":
        return _marked(spec, tokens)
    if spec.kind == "grammar":
        return LLGuidanceGrammar(LLMatcher.grammar_from_lark(spec.source), tokens, ())
    if spec.kind == "regex":
        if expanded_size(spec.source) > MAX_SIZE:
            raise TooComplex(f"written out the regex has more than {MAX_SIZE:,} characters and classes")
        return LLGuidanceGrammar(LLMatcher.grammar_from_regex(rust_pattern(spec.source)), tokens, ())
    normal = normalise(json.loads(spec.source), closed=spec.closed, spans=spec.text is not None)
    check_spelling(normal.schema, tokens)
    source, short = _json_grammar(normal, spec.separators), normal.schema
    if spec.text is not None and has_spans(normal.schema):
        spans = TextSpans(spec.text, lambda piece: can_spell(piece, tokens))
        source = LLMatcher.grammar_from_lark(span_grammar(normal.schema, spans, spec.separators))
        short = with_a_span(normal.schema, spans)
    grammar = LLGuidanceGrammar(source, tokens, normal.left_to_validation)
    strings, values = shortest_strings(short), shortest_values(short, spec.separators)
    whole = _of_json(grammar, tokens, strings, values)
    return whole if spec.limits is None else LengthLimits(whole, tokens, spec.limits.beside(normal.schema))


def _marked(spec: Spec, tokens: Tokens) -> Grammar:
    """A Lark grammar with rules added for its marks and for its JSON Schemas."""
    source = json.loads(spec.source)
    item, key = spec.separators
    form = {"whitespace_flexible": False, "item_separator": item, "key_separator": key}
    rules = [source["lark"]]
    left: list[str] = [*source["left"]]
    strings: list[str] = []
    values: list[str] = []
    for rule, schema in source["schemas"].items():
        normal = normalise(schema, closed=spec.closed)
        check_spelling(normal.schema, tokens)
        left += normal.left_to_validation
        strings += shortest_strings(normal.schema)
        values += shortest_values(normal.schema, spec.separators)
        rules.append(f"{rule}: %json {json.dumps({**normal.schema, 'x-guidance': form})}")
    spelled = [f"{rule}: {json.dumps(mark, ensure_ascii=False)}" for rule, mark in source["marks"].items()]
    by_id = [
        f"{rule}: <[{tokens.named[mark]}]>" if mark in tokens.named else text
        for (rule, mark), text in zip(source["marks"].items(), spelled, strict=True)
    ]
    made, plain = (LLMatcher.grammar_from_lark("\n".join([*rules, *marks])) for marks in (by_id, spelled))
    grammar = LLGuidanceGrammar(made, tokens, tuple(left), plain)
    whole = _of_json(grammar, tokens, strings, values, source["closings"])
    return whole if spec.limits is None else LengthLimits(whole, tokens, spec.limits.beside(source["schemas"]))


def _of_json(
    grammar: Grammar, tokens: Tokens, strings: Iterable[str], values: Iterable[str], closings: Iterable[str] = ()
) -> Grammar:
    """What every grammar of JSON text gets: numbers in range, ways to an end, a limit to the depth."""
    return Nesting(KnownTexts(NumberRange(grammar, tokens), tokens, strings, values, closings), tokens)


def _json_grammar(normal: Normalised, separators: tuple[str, str]) -> str:
    item, key = separators
    options: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": item, "key_separator": key}
    try:
        return str(LLMatcher.grammar_from_json_schema(json.dumps(normal.schema), overrides=options))
    except ValueError as error:  # its reader of JSON stops at some depth
        raise TooComplex(str(error)) from error


BACKEND = GrammarBackend("llguidance", ("json_schema", "grammar", "marked", "regex"), _build)
