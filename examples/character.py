"""How an answer in a form is written without asking the model for what it must be.

    python examples/character.py
    python examples/character.py --model path/or/hub-id

A Character has a name and an age. Shown are the automaton of its JSON text, what becomes of it when steps are tokens
and forced text is one step, and one answer with forced text off and on. docs/structured_output.md explains it.

A call of the model is a forward pass that an id is chosen from, the pass over the prompt not counted: the first id that
is chosen comes out of that one. The two answers may differ: other ids before a value are another context for it.
"""

from __future__ import annotations

import argparse
import textwrap
from functools import reduce

from pydantic import BaseModel, Field

from chatlocal.engine.constraints import Constraint, Spec, compile, json_schema, regex
from chatlocal.engine.constraints.byte_automaton import ByteAutomaton
from chatlocal.engine.constraints.regex_automaton import regex_automaton
from chatlocal.engine.engine import Engine
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Request, Tokens

NAME = "[A-Z][a-z]{1,9}"
PATTERN = r'\{"name": "' + NAME + r'", "age": [1-9][0-9]?\}'
QUESTION = "Generate a young character named Paul."


class Character(BaseModel):
    name: str = Field(pattern=f"^{NAME}$")
    age: int = Field(ge=1, le=99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: the embedded SmolLM2-135M-Instruct)")
    model = parser.parse_args().model
    plain = {"drafting": False}  # the calls that forced text saves, and no others
    with Engine.load(model, forced_text=False, **plain) as asked, Engine.load(model, **plain) as forcing:
        show_automata(forcing)
        print(f"\n# Answers to {QUESTION!r}: [chosen], and what had no alternative")
        for name, spec in (("the regex", regex(PATTERN)), ("json_schema(Character)", json_schema(Character))):
            for switch, engine in (("off", asked), ("on", forcing)):
                print(f"\n{name}, forced text {switch}", flush=True)
                show_answer(engine, spec)


def show_automata(engine: Engine) -> None:
    automaton = regex_automaton(PATTERN)
    ways = (automaton.table[:, automaton.classes] >= 0).sum(1)  # automaton.classes: the column of each of the 256 bytes
    print(f"# Automaton over bytes of {PATTERN}")
    print(f"{len(ways)} states, {ways.sum()} transitions; {(ways == 1).sum()} states have one way on only")
    constraint = compile(regex(PATTERN), engine.tokenizer)
    print(f"\n# Index over the {constraint.vocab_size:,} tokens of {engine.name}")
    for simplified in (False, True):
        steps, forced = token_index(automaton, constraint, simplified)
        kind = "with forced text as one step" if simplified else "every step a token"
        print(f"{kind}: {len(steps)} states, {sum(steps.values()):,} transitions")
    print(f"{sum(count > 1 for count in steps.values())} of the {len(steps)} states ask the model; written unasked are")
    print("\n".join(f"  in state {state:2}  {readable(text)}" for state, text in sorted(forced.items())))


def token_index(
    automaton: ByteAutomaton, constraint: Constraint, simplified: bool
) -> tuple[dict[int, int], dict[int, bytes]]:
    """The transitions out of each state that tokens reach, and of `simplified` the texts that are one step."""
    steps, forced = {}, {}
    todo = {0: constraint.start()}
    while todo:
        number, state = todo.popitem()
        if simplified and (text := state.forced_bytes()):
            forced[number] = text
            ways = [tuple(state.tokens.encode(text.decode()))]
        else:
            ways = [(id,) for id in state.mask().nonzero()[:, 0].tolist() if id not in constraint.end_ids]
        steps[number] = len(ways)
        for ids in ways:
            target = reduce(automaton.step, b"".join(state.tokens.texts[id] for id in ids), number)
            if target not in steps and target not in todo:
                todo[target] = state.copy()
                for id in ids:
                    todo[target].advance(id)
    return steps, forced


def show_answer(engine: Engine, spec: Spec) -> None:
    prompt = engine.render([{"role": "user", "content": QUESTION}])
    ids, ends = prompt.ids(engine.tokenizer), prompt.stop_ids(engine.tokenizer)
    engine.backend.prepare(spec, ends)  # while a grammar compiles a prompt would be read early, in a pass of its own
    _, reading = run(engine, Request(ids, Sampling(max_tokens=1), ends))
    written, passes = run(engine, Request(ids, Sampling(max_tokens=40, temperature=0), ends, spec))
    texts = [(engine.tokenizer.decode([id]), choice < 0) for id, choice in written]
    marked = [f"[{readable(text)}]" if chosen else readable(text) for text, chosen in texts]
    print(textwrap.fill(" ".join(marked), 98, initial_indent="  ", subsequent_indent="  ", break_long_words=False))
    print(f"  {Character.model_validate_json(''.join(text for text, _ in texts))!r}")
    alone = sum(not chosen for _, chosen in texts)
    print(f"  {len(texts)} ids, {alone} of them without alternative; calls of the model: {passes - reading}")


def run(engine: Engine, request: Request) -> tuple[list[tuple[int, float]], int]:
    """The ids of an answer, each with the logarithm of its probability among the allowed ones, and the passes."""
    before = engine.stats()["forwards"]
    written: list[tuple[int, float]] = []
    for event in engine.backend.submit(request):
        if isinstance(event, Tokens):
            del written[len(written) - event.replaces :]  # spelled anew, together with the forced text behind them
            written += zip(event.ids, event.choices or (0.0,) * len(event.ids), strict=True)
    return written, engine.stats()["forwards"] - before


def readable(text: str | bytes) -> str:
    return (text if isinstance(text, str) else text.decode()).replace(" ", "·")


if __name__ == "__main__":
    main()
