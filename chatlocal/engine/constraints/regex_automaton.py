"""A regex to a byte automaton, by outlines-core, in a process of its own.

A short regex can need an automaton of any size (`(a|b)*a(a|b){30}` has 2^31 states) and the compiler cannot be stopped
from outside, so a child process runs it under limits. It starts in about 20 ms: it imports nothing but outlines-core.

outlines-core 0.2.14 drops the transitions out of final states (`\\d+(\\.\\d+)?` never accepts 1.5), so the pattern gets
a sentinel behind it, the null byte: a state that the sentinel leads out of is one where the text may end.
"""

from __future__ import annotations

import marshal
import subprocess
import sys
from pathlib import Path
from typing import Any

from chatlocal.engine.constraints.byte_automaton import ByteAutomaton
from chatlocal.engine.constraints.protocol import TooComplex
from chatlocal.engine.constraints.regex_dialect import rust_pattern
from chatlocal.engine.constraints.regex_size import expanded_size
from chatlocal.engine.errors import UnsupportedSchema

MAX_SIZE = 1000  # characters and classes once repetitions are written out: more is not tried
MAX_TRANSITIONS = 500_000
MAX_STATES = 50_000
MAX_SECONDS = 5.0
MAX_BYTES = 2 << 30
SENTINEL = 0

_PROGRAM = """
import marshal, sys
path, pattern, most_states, most_transitions, most_bytes = marshal.loads(sys.stdin.buffer.read())
sys.path.insert(0, path)
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (most_bytes, most_bytes))
except ImportError:  # not on this system: the time limit alone stops it
    pass
from outlines_core.outlines_core import Index, Vocabulary
vocabulary = Vocabulary(256, {bytes([byte]): [byte] for byte in range(256)})
try:
    index = Index(pattern, vocabulary)
except ValueError as error:
    answer = str(error)
else:
    edges = index.get_transitions()
    if len(edges) > most_states or sum(map(len, edges.values())) > most_transitions:
        sys.exit(3)
    answer = (edges, index.get_initial_state(), list(index.get_final_states()))
sys.stdout.buffer.write(marshal.dumps(answer))
"""


def regex_automaton(pattern: str) -> ByteAutomaton:
    """The automaton of a whole-text match. UnsupportedSchema for a pattern outside the dialect, TooComplex."""
    import outlines_core

    if expanded_size(pattern) > MAX_SIZE:
        raise TooComplex(f"written out it has more than {MAX_SIZE:,} characters and classes")
    path = str(Path(outlines_core.__file__).parents[1])
    question = marshal.dumps((path, f"(?:{rust_pattern(pattern)})\\x00", MAX_STATES, MAX_TRANSITIONS, MAX_BYTES))
    try:
        child = subprocess.run(
            [sys.executable or "python", "-I", "-S", "-c", _PROGRAM],
            input=question,
            capture_output=True,
            timeout=MAX_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise TooComplex(f"its automaton takes more than {MAX_SECONDS:g} s") from None
    except OSError as error:
        raise TooComplex(f"the process that compiles it does not start: {error}") from error
    if child.returncode:
        raise TooComplex(
            f"its automaton is larger than {MAX_STATES:,} states, {MAX_TRANSITIONS:,} edges or {MAX_BYTES >> 30} GiB"
        )
    answer: Any = marshal.loads(child.stdout)
    if isinstance(answer, str):
        raise UnsupportedSchema("regex", "", f"{pattern!r}: {answer}")
    edges, start, finals = answer
    ends = set(finals)
    accepting = {state for state, out in edges.items() if out.get(SENTINEL) in ends}
    # 256 stands for the end of the sequence in that index, and the sentinel itself is no part of any text.
    inner = {
        state: {byte: to for byte, to in out.items() if byte < 256 and byte != SENTINEL} for state, out in edges.items()
    }
    return ByteAutomaton.build(inner, start, accepting)
