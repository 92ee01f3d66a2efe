"""A finite automaton over bytes: which bytes may follow, where a text may end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, slots=True)
class ByteAutomaton:
    """State 0 is the start. `table` is [states, classes]: the next state or -1; `accepting` is bool [states].

    `classes` is [256]: bytes that behave alike in every state share a column of the table.
    Every state lies on a way from the start to an accepting one; an automaton that accepts nothing has no states.
    """

    table: NDArray[np.int32]
    classes: NDArray[np.int64]
    accepting: NDArray[np.bool_]

    @classmethod
    def build(cls, transitions: Mapping[int, Mapping[int, int]], start: int, accepting: Iterable[int]) -> ByteAutomaton:
        """From a dict of edges with states of any numbers: keep the useful states and number them anew."""
        useful = _backward(transitions, set(accepting)) & _forward(transitions, start)
        if start not in useful:
            return cls(np.zeros((0, 1), np.int32), np.zeros(256, np.int64), np.zeros(0, np.bool_))
        numbers = {state: number for number, state in enumerate([start, *sorted(useful - {start})])}
        columns = np.full((256, len(numbers)), -1, dtype=np.int32)
        for state, number in numbers.items():
            for byte, target in transitions.get(state, {}).items():
                columns[byte, number] = numbers.get(target, -1)
        alike: dict[bytes, int] = {}
        classes = np.array([alike.setdefault(column.tobytes(), len(alike)) for column in columns])
        first = np.unique(classes, return_index=True)[1]
        ends = np.zeros(len(numbers), dtype=np.bool_)
        ends[[numbers[state] for state in accepting if state in numbers]] = True
        return cls(np.ascontiguousarray(columns[first].T), classes, ends)

    def step(self, state: int, byte: int) -> int:
        """The next state, -1 for none."""
        return int(self.table[state, self.classes[byte]])

    @classmethod
    def of_texts(cls, texts: Iterable[bytes]) -> ByteAutomaton:
        """The automaton that accepts exactly these texts."""
        transitions: dict[int, dict[int, int]] = {0: {}}
        accepting = set()
        for text in texts:
            state = 0
            for byte in text:
                following = transitions[state].setdefault(byte, len(transitions))
                transitions.setdefault(following, {})
                state = following
            accepting.add(state)
        return cls.build(transitions, 0, accepting)

    def accepts(self, text: bytes) -> bool:
        """Whether the whole text is one of the automaton's."""
        state = 0 if len(self.table) else -1
        for byte in text:
            if state < 0:
                return False
            state = self.step(state, byte)
        return state >= 0 and bool(self.accepting[state])

    def distances(self) -> NDArray[np.int32]:
        """The least number of bytes from each state to an accepting one, int32 [states]."""
        sources, columns = np.nonzero(self.table >= 0)
        targets = self.table[sources, columns]
        order = np.argsort(targets, kind="stable")
        sources, first = sources[order], np.searchsorted(targets[order], np.arange(len(self.table) + 1))
        left = np.full(len(self.table), -1, dtype=np.int32)
        new, distance = np.flatnonzero(self.accepting), 0
        while len(new):
            left[new] = distance
            before = np.unique(np.concatenate([sources[first[state] : first[state + 1]] for state in new]))
            new, distance = before[left[before] < 0], distance + 1
        return left

    def forced(self, state: int) -> bytes:
        """The bytes that must follow a state: as long as there is one way on and the text cannot end."""
        text = bytearray()
        while not self.accepting[state]:
            ways = np.flatnonzero(self.table[state][self.classes] >= 0)
            if len(ways) != 1:
                break
            text.append(int(ways[0]))
            state = self.step(state, int(ways[0]))
        return bytes(text)


def _forward(transitions: Mapping[int, Mapping[int, int]], start: int) -> set[int]:
    seen, todo = {start}, [start]
    while todo:
        new = set(transitions.get(todo.pop(), {}).values()) - seen
        seen |= new
        todo.extend(new)
    return seen


def _backward(transitions: Mapping[int, Mapping[int, int]], accepting: set[int]) -> set[int]:
    sources: dict[int, set[int]] = {}
    for state, edges in transitions.items():
        for target in edges.values():
            sources.setdefault(target, set()).add(state)
    seen, todo = set(accepting), list(accepting)
    while todo:
        new = sources.get(todo.pop(), set()) - seen
        seen |= new
        todo.extend(new)
    return seen
