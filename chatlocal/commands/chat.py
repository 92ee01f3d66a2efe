"""`chatlocal chat`: talk with a model in the terminal."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from chatlocal.commands.terminal import Style
from chatlocal.engine.errors import ContextOverflow
from chatlocal.engine.events import Finish, Text
from chatlocal.engine.messages import ChatMessage, Sampling

if TYPE_CHECKING:
    from chatlocal.engine import Engine


def add_to(commands: Any) -> None:
    """Describe the command to argparse."""
    about = "Talk with a model. Ctrl-C stops an answer, Ctrl-D ends the talk."
    parser = commands.add_parser("chat", help="talk with a model in this terminal", description=about)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: embedded)")
    parser.add_argument("--temperature", type=float, help="0 always takes the likeliest token")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the talk")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Load the model and talk until the input ends."""
    from chatlocal.engine import Engine

    sampling = Sampling(temperature=options.temperature)  # refused before anything is loaded
    with Engine.load(options.model) as engine:
        Talk(engine, sampling, options.system).until_input_ends()


class Talk:
    """A conversation between stdin and an engine. Only the answers are printed where these are no terminals."""

    def __init__(self, engine: Engine, sampling: Sampling, system: str | None = None) -> None:
        self._engine = engine
        self._sampling = sampling
        self._opening = [ChatMessage("system", system)] if system is not None else []
        self._turns: list[ChatMessage] = []
        self._asks = sys.stdin.isatty() and sys.stdout.isatty()
        self._style = Style(sys.stdout)

    def until_input_ends(self) -> None:
        """Read a line, answer it, and so on."""
        if self._asks:
            with suppress(ImportError):  # not on every system; input() then has no history
                import readline  # noqa: F401
            described = self._engine.describe()
            how = ", ".join(str(described[key]) for key in ("device", "dtype") if key in described)
            print(self._style.dim(f"{self._engine.name} ({how}). Ctrl-C stops an answer, Ctrl-D ends.\n"))
        while True:
            try:
                line = input("> " if self._asks else "")
            except EOFError:
                if self._asks:
                    print()
                return
            except KeyboardInterrupt:
                print(self._style.dim("\nCtrl-D ends."))
                continue
            if line.strip():
                self._answer(line)

    def _answer(self, line: str) -> None:
        self._turns.append(ChatMessage("user", line))
        while True:
            try:
                events = self._engine.stream([*self._opening, *self._turns], sampling=self._sampling)
                break
            except ContextOverflow as error:
                if len(self._turns) == 1:
                    self._turns.clear()
                    print(f"chatlocal: {error}", file=sys.stderr)
                    return
                del self._turns[:2]  # the oldest question and its answer
                print(self._style.dim("(The talk is longer than the model's context: its beginning is left out.)"))
        self._turns.append(ChatMessage("assistant", self._print(events)))

    def _print(self, events: Any) -> str:
        """Print an answer as it comes and return what was said."""
        said, remark = "", "(stopped)"
        began = time.perf_counter()
        try:
            for event in events:
                if isinstance(event, Text):
                    text = event.text if said else event.text.lstrip()
                    said += text
                    print(text, end="", flush=True)
                elif isinstance(event, Finish):
                    remark = self._remark(event, time.perf_counter() - began)
        except KeyboardInterrupt:
            pass  # the remark says so
        finally:
            events.close()
        print(self._style.dim(f"\n{remark}\n") if self._asks else "")
        return said

    @staticmethod
    def _remark(finish: Finish, seconds: float) -> str:
        cut = ", cut off" if finish.reason == "length" else ""
        made = finish.usage.completion
        return f"({made} tokens, {made / seconds:.0f} tokens/s{cut})"
