"""The command line: exit codes, what goes to which stream, and a talk that is stopped and ended."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chatlocal import Engine, __version__
from chatlocal.__main__ import main
from tests.scripted import ScriptedBackend, backend_of, scripted_engine, spell
from tests.tiny import save_tiny, tiny_model, tiny_tokenizer

ROOT = Path(__file__).parent.parent


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the commands load a given engine; returns the list of names that were asked for."""

    def use(engine: Engine) -> list[str | None]:
        asked: list[str | None] = []

        def load(model: str | None = None, **_: Any) -> Engine:
            asked.append(model)
            return engine

        monkeypatch.setattr(Engine, "load", load)
        return asked

    return use


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def prompts(engine: Engine) -> list[str]:
    return [str(engine.tokenizer.decode(request.prompt_ids)) for request in backend_of(engine).requests]


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"chatlocal {__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["dance"], ["chat", "--temperature", "warm"], ["doctor", "one", "two"]])
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: chatlocal")


@pytest.mark.parametrize(
    "arguments", [["doctor", "/no/such/model"], ["chat", "--model", "/no/such/model"], ["chat", "--temperature", "-1"]]
)
def test_an_error_of_ours_is_1_with_its_message_on_stderr(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("chatlocal: ")
    assert arguments[-1] in captured.err
    assert "Traceback" not in captured.err


def test_the_module_runs_and_passes_the_code_on() -> None:
    command = [sys.executable, "-m", "chatlocal", "doctor", "/no/such/model"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith("chatlocal: ")
    assert run.stdout == ""


def test_doctor_reports_on_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(save_tiny(tmp_path))]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^context length +512$", out, re.MULTILINE)
    assert re.search(r"^device +\w+", out, re.MULTILINE)
    assert "<|im_start|>user\nWhat is a lighthouse for?<|im_end|>" in out
    assert out.count("<|im_start|>assistant") == 2  # the past answer and the one to come
    made = re.search(r"\((\d+) tokens in [\d.]+ s", out)
    assert made is not None
    assert 0 < int(made[1]) <= 32
    assert "\x1b" not in out  # no colour off a terminal
    stops = r"stops +'<\|im_end\|>'"
    for line in ("family +jinja", "rule +chat_template", "tool format +prompted: .*", stops, "end ids +2"):
        assert re.search(f"^{line}$", out, re.MULTILINE), line
    assert re.search(r"^special tokens .*eos <\|im_end\|>", out, re.MULTILINE)


def test_doctor_shows_a_family_that_is_asked_for(loads: Any, capsys: pytest.CaptureFixture[str]) -> None:
    loads(scripted_engine("The keeper.", template="vicuna"))
    assert main(["doctor", "--template", "vicuna"]) == 0
    out = capsys.readouterr().out
    assert re.search("^template source +written in chatlocal$", out, re.MULTILINE)
    assert re.search(r"^stops +'</s>', ' USER:', '\\nUSER:'$", out, re.MULTILINE)
    assert "USER: What is a lighthouse for? ASSISTANT: It shows ships where the coast is.</s>USER:" in out


def test_doctor_colours_control_tokens_on_a_terminal(loads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", screen := Terminal())
    loads(scripted_engine("The keeper.", template="llama2"))
    assert main(["doctor"]) == 0
    assert "\x1b[36m<s>\x1b[0m\x1b[2m|\x1b[0m[INST] <<SYS>>\nYou answer" in screen.getvalue()


def test_doctor_says_when_a_format_has_no_system_turn(loads: Any, capsys: pytest.CaptureFixture[str]) -> None:
    template = (
        "{% for message in messages %}"
        "{% if message['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}"
    )
    loads(scripted_engine("The keeper.", template=template))
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "no system turn" in out
    assert "The keeper." in out


def test_chat_answers_each_line_and_remembers(
    loads: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = scripted_engine("Hello.", "You said hi.")
    asked = loads(engine)
    typed(monkeypatch, "hi", "", "what did I say?")
    assert main(["chat", "--model", "some/model", "--system", "Be brief.", "--temperature", "0.5"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Hello.\nYou said hi.\n"
    assert captured.err == ""
    assert asked == ["some/model"]
    first, second = prompts(engine)
    assert "<|im_start|>system\nBe brief.<|im_end|>" in first
    assert "user\nhi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nwhat did I say?" in second
    assert backend_of(engine).requests[0].sampling.temperature == 0.5
    assert engine.closed


def test_an_interrupt_stops_the_answer_and_not_the_talk(
    loads: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: Any) -> Iterator[int]:
        yield from spell("One, two, three")
        raise KeyboardInterrupt

    engine = scripted_engine(interrupted, "Yes.")
    loads(engine)
    typed(monkeypatch, "count", "still there?")
    assert main(["chat"]) == 0
    assert capsys.readouterr().out == "One, two, three\nYes.\n"
    assert "One, two, three" in prompts(engine)[1]
    assert backend_of(engine).running == 0


def test_an_interrupt_while_loading_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> Engine:
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "load", load)
    assert main(["chat"]) == 130


def test_a_long_talk_loses_its_beginning(
    loads: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = ScriptedBackend(spell("fine"))
    engine = Engine(tiny_model(max_position_embeddings=96), tiny_tokenizer(), backend=answers)
    loads(engine)
    typed(monkeypatch, "first " * 8, "second " * 8, "third " * 8, "x" * 400)
    assert main(["chat", "--system", "S"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("fine") == 3
    assert "its beginning is left out" in captured.out
    assert "first" in prompts(engine)[0]
    assert "first" not in prompts(engine)[-1]
    assert all("system\nS" in prompt for prompt in prompts(engine))
    assert "tokens" in captured.err  # the last line alone is longer than the context: said, and the talk goes on


def test_a_terminal_shows_a_prompt_colour_and_the_speed(tmp_path: Path) -> None:
    if sys.platform == "win32":
        pytest.skip("needs a pseudo-terminal")
    terminal, side = os.openpty()
    command = [sys.executable, "-m", "chatlocal", "chat", "--model", str(save_tiny(tmp_path))]
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": ""}
    with subprocess.Popen(
        command, cwd=ROOT, stdin=side, stdout=side, stderr=side, env=environment, preexec_fn=hear_interrupts
    ) as run:
        os.close(side)
        try:
            seen = read_until(terminal, "> ")
            os.write(terminal, b"hello\n")
            seen += read_until(terminal, r"tokens/s.*> ")
            seen += interrupt_until(run, terminal, "Ctrl-D ends.")
            for _ in range(60):  # a key that is pressed while the last Ctrl-C is heard is dropped with the line
                os.write(terminal, b"\x04")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    assert run.wait(1) == 0
                    break
            assert run.poll() == 0
        finally:
            run.kill()
            os.close(terminal)
    assert "Traceback" not in seen
    assert "\x1b[2m" in seen


def hear_interrupts() -> None:
    """A process that was started in the background ignores Ctrl-C, and so do its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupt_until(run: subprocess.Popen[bytes], terminal: int, wanted: str) -> str:
    """Press Ctrl-C until it is heard: one that comes between the prompt and the wait for a key waits for that key."""
    for _ in range(60):
        run.send_signal(signal.SIGINT)
        if select.select([terminal], [], [], 1)[0]:
            break
    return read_until(terminal, wanted)


def read_until(terminal: int, wanted: str, seconds: float = 60) -> str:
    seen = ""
    end = time.monotonic() + seconds
    while not re.search(wanted, seen, re.DOTALL):
        ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
        assert ready, f"{wanted!r} did not come, but: {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen
