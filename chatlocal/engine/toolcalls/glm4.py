"""GLM-4: a line with the name, and the arguments as a JSON object on the next, as in its chat template."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chatlocal.engine.messages import Tool, ToolCall
from chatlocal.engine.toolcalls.answer_text import read_text
from chatlocal.engine.toolcalls.bare_name import read_name
from chatlocal.engine.toolcalls.call_grammar import CallGrammar, Way
from chatlocal.engine.toolcalls.format import ToolFormat
from chatlocal.engine.toolcalls.json_arguments import read_arguments
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.writing import arguments_object

_TURN = "<|assistant|>"  # begins each part of an answer that has several


class GLM4(ToolFormat):
    """Calls stand at the start of a part; a part that begins otherwise is text."""

    name = "glm4"
    unwritable = ("<", "{")
    ends = ("<|endoftext|>", "<|user|>", "<|observation|>")

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        while True:
            space = yield from source.skip_space()
            if (yield from self._is_call(source, out)):
                source.keep()
                name = (yield from read_name(source, out, "\n")) or ""
                yield from read_arguments(source, out, name, (_TURN, *self.ends))
                continue
            out.text(space)
            if not (yield from read_text(source, out.text, (_TURN,), self.ends)):
                return

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """The calls as the model would write them."""
        return _TURN.join(f"{self.named(call)}\n{arguments_object(call)}" for call in calls)

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """One call, at the start of the answer."""
        return [Way(f"{tool.name}\n", grammar.arguments(tool), "start") for tool in tools]

    def _is_call(self, source: Source, out: Output) -> Reading[bool]:
        """Whether a name and the beginning of a JSON object go on; nothing is read. The name need not be declared."""
        if not out.expects_calls:
            return False
        source.keep()
        found = (yield from read_name(source, out, "\n")) is not None and (yield from source.skip("{"))
        if found:
            yield from source.skip_space()
            found = (yield from source.peek()) in ('"', "}", "")
        source.rewind()
        return found


FORMATS = (GLM4(),)
