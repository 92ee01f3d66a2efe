"""The tokens of a vocabulary as a trie in flat arrays, so that one state's mask is a few array operations.

Nodes are numbered breadth first, so the children of a node are neighbours. Node 0 is the empty text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chatlocal.engine.constraints.byte_automaton import ByteAutomaton
from chatlocal.engine.constraints.protocol import Tokens, per_tokens


class TokenTrie:
    """`tokens[id]` are bytes; an id with b"" has no node and is never reached.

    `ids` are those with a node, `single_bytes` the bytes that are tokens of their own.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.ids = np.array([id for id, token in enumerate(tokens) if token], dtype=np.int64)
        texts = [tokens[id] for id in self.ids]
        lengths = np.array([len(text) for text in texts], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]) if texts else np.zeros(0, dtype=np.int64)
        flat = np.frombuffer(b"".join(texts), dtype=np.uint8).astype(np.int64)

        self.single_bytes = np.unique(flat[starts[lengths == 1]])
        self.nodes = np.zeros(len(texts), dtype=np.int64)  # the node at which each of `ids` ends
        parents, chars, size = [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.int64)], 1
        longer = np.arange(len(texts))
        for depth in range(int(lengths.max(initial=0))):
            longer = longer[lengths[longer] > depth]
            edges, place = np.unique(self.nodes[longer] * 256 + flat[starts[longer] + depth], return_inverse=True)
            self.nodes[longer] = size + place
            parents.append(edges // 256)
            chars.append(edges % 256)
            size += len(edges)
        self._chars = np.concatenate(chars)
        count = np.bincount(np.concatenate(parents)[1:], minlength=size)
        self._first = 1 + np.concatenate([[0], np.cumsum(count)[:-1]])
        self._count = count

    def walk(self, automaton: ByteAutomaton, state: int) -> NDArray[np.int32]:
        """The automaton's state after each of `ids` from `state`, -1 where it cannot be followed."""
        after = np.full(len(self._chars), -1, dtype=np.int32)
        alive, states = np.zeros(1, dtype=np.int64), np.array([state], dtype=np.int32)
        while len(alive):
            count = self._count[alive]
            # the children of every living node: first, first + 1, ... for each
            offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            children = np.repeat(self._first[alive], count) + offset
            states = automaton.table[np.repeat(states, count), automaton.classes[self._chars[children]]]
            keep = states >= 0
            alive, states = children[keep], states[keep]
            after[alive] = states
        return after[self.nodes]

    def following(self, text: bytes) -> NDArray[np.int64]:
        """The bytes that come next in tokens which begin with this text and go on."""
        node = 0
        for byte in text:
            children = self._children(node)
            found = np.flatnonzero(self._chars[children] == byte)
            if not len(found):
                return np.zeros(0, dtype=np.int64)
            node = children.start + int(found[0])
        return self._chars[self._children(node)]

    def _children(self, node: int) -> slice:
        first = int(self._first[node])
        return slice(first, first + int(self._count[node]))


@per_tokens
def trie_of(tokens: Tokens) -> TokenTrie:
    """The trie of these tokens."""
    return TokenTrie(tokens.texts)
