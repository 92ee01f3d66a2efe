"""Regex and choice: a byte automaton, token masks derived from it when a state is first met.

outlines-core compiles regexes; a choice is a tree of its texts and needs no compiler.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from functools import cached_property
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.byte_automaton import ByteAutomaton
from chatlocal.engine.constraints.protocol import Cursor, GrammarBackend, Tokens
from chatlocal.engine.constraints.regex_automaton import regex_automaton
from chatlocal.engine.constraints.spec import Spec
from chatlocal.engine.constraints.token_trie import TokenTrie, trie_of
from chatlocal.engine.errors import UnsupportedSchema

# Masks are kept as bits: 1,024 of them take 19 MB for a vocabulary of 151,000.
MAX_MASKS = 1024


class AutomatonGrammar:
    """An automaton over one vocabulary. A token is allowed when, after it, the end can still be reached in tokens."""

    left_to_validation: tuple[str, ...] = ()

    def __init__(self, automaton: ByteAutomaton, tokens: Tokens) -> None:
        self.automaton = automaton
        self.tokens = tokens
        self._trie = trie_of(tokens)
        self._live = _live(automaton, self._trie)
        self._masks: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()
        self._lock = Lock()
        if not len(automaton.table):
            raise UnsupportedSchema("regex", "", "no text matches it")
        if not self._live[0]:
            raise UnsupportedSchema("vocabulary", "", "the tokenizer has no tokens to spell any of the allowed texts")

    def accepts(self, text: str) -> bool:
        return self.automaton.accepts(text.encode())

    def start(self) -> AutomatonCursor:
        return AutomatonCursor(self)

    def mask(self, state: int) -> NDArray[np.bool_]:
        """Which ids may follow a state; bool, one entry for each token."""
        with self._lock:
            bits = self._masks.get(state)
            if bits is not None:
                self._masks.move_to_end(state)
        if bits is None:
            bits = np.packbits(self._derive(state))
            with self._lock:
                self._masks[state] = bits
                if len(self._masks) > MAX_MASKS:
                    self._masks.popitem(last=False)
        return np.unpackbits(bits, count=len(self.tokens.texts)).view(np.bool_)

    def _derive(self, state: int) -> NDArray[np.bool_]:
        after = self._trie.walk(self.automaton, state)
        allowed = np.zeros(len(self.tokens.texts), dtype=np.bool_)
        allowed[self._trie.ids] = (after >= 0) & self._live[after]
        return allowed

    def way_out(self, state: int) -> int | None:
        """The id that leaves the fewest bytes to an end, None at one."""
        if self.automaton.accepting[state]:
            return None
        after = self._trie.walk(self.automaton, state)
        left = np.where((after >= 0) & self._live[after], self._distances[after], np.iinfo(np.int32).max)
        return int(self._trie.ids[left.argmin()])

    @cached_property
    def _distances(self) -> NDArray[np.int32]:
        return self.automaton.distances()

    def step(self, state: int, id: int) -> int:
        """The state after an id, -1 where it must not follow."""
        for byte in self.tokens.texts[id]:
            state = self.automaton.step(state, byte)
            if state < 0:
                return -1
        return state if self.tokens.texts[id] and self._live[state] else -1


class AutomatonCursor(Cursor):
    """The states after each id so far."""

    def __init__(self, grammar: AutomatonGrammar, state: int = 0) -> None:
        self._grammar = grammar
        self._states = [state]

    def copy(self) -> AutomatonCursor:
        return AutomatonCursor(self._grammar, self._states[-1])

    def fill(self, allowed: NDArray[np.bool_]) -> None:
        allowed |= self._grammar.mask(self._states[-1])

    def advance(self, id: int) -> bool:
        state = self._grammar.step(self._states[-1], id)
        if state >= 0:
            self._states.append(state)
        return state >= 0

    def rollback(self, count: int) -> None:
        del self._states[len(self._states) - count :]

    def forced_bytes(self) -> bytes:
        return self._grammar.automaton.forced(self._states[-1])

    def way_out(self) -> tuple[int, ...]:
        known = self._grammar.way_out(self._states[-1])
        return () if known is None else (known,)

    @property
    def complete(self) -> bool:
        return bool(self._grammar.automaton.accepting[self._states[-1]])

    @property
    def exhausted(self) -> bool:
        return self.complete and not (self._grammar.automaton.table[self._states[-1]] >= 0).any()


def _live(automaton: ByteAutomaton, trie: TokenTrie) -> NDArray[np.bool_]:
    """Bool [states]: whether an accepting state can be reached in whole tokens.

    One byte at a time decides nearly all states; the rest, where the vocabulary lacks single bytes, walk the tokens.
    """
    live = automaton.accepting.copy()
    edges = automaton.table[:, automaton.classes[trie.single_bytes]]
    sources, columns = np.nonzero(edges >= 0)
    targets = edges[sources, columns]
    order = np.argsort(targets)
    sources, first = sources[order], np.searchsorted(targets[order], np.arange(len(edges) + 1))
    new = np.flatnonzero(live).tolist()
    while new:
        while new:
            target = new.pop()
            for source in sources[first[target] : first[target + 1]].tolist():
                if not live[source]:
                    live[source] = True
                    new.append(source)
        for state in np.flatnonzero(~live).tolist():
            after = trie.walk(automaton, state)
            if ((after >= 0) & live[after]).any():
                live[state] = True
                new.append(state)
    return live


def _build(spec: Spec, tokens: Tokens) -> AutomatonGrammar:
    if spec.kind == "choice":
        return AutomatonGrammar(ByteAutomaton.of_texts(text.encode() for text in json.loads(spec.source)), tokens)
    return AutomatonGrammar(regex_automaton(spec.source), tokens)


BACKEND = GrammarBackend("outlines", ("regex", "choice"), _build)
