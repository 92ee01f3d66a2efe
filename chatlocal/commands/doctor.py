"""`chatlocal doctor`: what was loaded, how a conversation reaches the model, how fast it answers."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from chatlocal.commands.terminal import Style
from chatlocal.engine.errors import UnsupportedRole
from chatlocal.engine.families import Markup
from chatlocal.engine.messages import ChatMessage, Sampling

if TYPE_CHECKING:
    from chatlocal.engine import Engine
    from chatlocal.engine.families import Prompt
    from chatlocal.engine.families.prompt import Part

_SYSTEM = ChatMessage("system", "You answer in one sentence.")
_TURNS = (
    ChatMessage("user", "What is a lighthouse for?"),
    ChatMessage("assistant", "It shows ships where the coast is."),
    ChatMessage("user", "Who looks after it?"),
)
_ANSWER_TOKENS = 32
_AT_A_GLANCE = 32  # characters


def add_to(commands: Any) -> None:
    """Describe the command to argparse."""
    about = "Show how a model was loaded, how it reads a conversation, and how fast it answers."
    parser = commands.add_parser("doctor", help="show how a model is loaded and prompted", description=about)
    parser.add_argument("model", nargs="?", metavar="MODEL", help="folder, hub id or GGUF file (default: embedded)")
    parser.add_argument("--template", metavar="NAME", help="prompt family, Jinja template, or path to one")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Load the model and report on it."""
    from chatlocal.engine import Engine

    with Engine.load(options.model, template=options.template) as engine:
        report(engine)


def report(engine: Engine) -> None:
    """Print what is known of an engine, a rendered conversation, and the speed of a short answer."""
    style = Style(sys.stdout)
    described = engine.describe()
    width = max(map(len, described))
    for name, value in described.items():
        label = name.replace("_", " ").ljust(width)
        for line in _lines(value):
            print(f"{style.bold(label)}  {line}")
            label = " " * width

    prompt, remark = _sample(engine)
    print(f"\n{style.bold('A conversation as the model reads it')}{style.dim(remark)}")
    print(_spelled(prompt, style))
    print(style.dim(f"({len(prompt.ids(engine.tokenizer))} tokens)"))

    began = time.perf_counter()
    reply = engine.generate(prompt, sampling=Sampling(temperature=0, max_tokens=_ANSWER_TOKENS))
    seconds = time.perf_counter() - began
    made = reply.finish.usage.completion
    print(f"\n{style.bold('Its answer, at temperature 0')}\n{reply.message.text.strip()}")
    print(style.dim(f"({made} tokens in {seconds:.1f} s, {made / seconds:.0f} tokens/s, reading the prompt included)"))


def _lines(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        # Numbers and tokens are read at a glance, sentences one by one.
        items = [str(item) for item in value]
        return items if any(len(item) > _AT_A_GLANCE for item in items) else [", ".join(items) or "none"]
    return ["unknown" if value is None else str(value)]


def _sample(engine: Engine) -> tuple[Prompt, str]:
    """The sample conversation, without the system text where the model's format has no place for it."""
    try:
        return engine.render((_SYSTEM, *_TURNS)), ""
    except UnsupportedRole:
        return engine.render(_TURNS), " (its format has no system turn)"


def _spelled(prompt: Prompt, style: Style) -> str:
    """The prompt with control tokens in colour; text tokenized on its own begins with a faint bar on a terminal."""
    return "".join(_part(part, style) for part in prompt.parts)


def _part(part: Part, style: Style) -> str:
    if isinstance(part, Markup):
        return style.accent(part.text)
    bar = style.dim("|") if style.on and part.own else ""
    return f"{part.gap or ''}{bar}{part.text}"
