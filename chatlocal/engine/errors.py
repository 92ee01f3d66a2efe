"""Every error that chatlocal raises on purpose.

ChatLocalError
├── ModelNotFound          no such folder, file or hub id (also FileNotFoundError)
├── ModelLoadError         the files are there but do not make a model
├── DownloadError          the network, the disk or a checksum got in the way (also OSError)
├── TemplateError          a chat template cannot render these messages (also ValueError)
│   └── UnsupportedRole    the family has no place for this role
├── ContextOverflow        the prompt does not fit the model's context (also ValueError)
├── UnsupportedSchema      a schema keyword that cannot be enforced (also ValueError)
├── BudgetTooSmall         max_tokens is below the shortest valid answer (also ValueError)
├── UnsupportedInput       an argument or content part that this model or call cannot take (also ValueError)
├── EngineClosed           the engine was closed, or belongs to another process
├── EngineBusy             too many requests wait already; try again later
├── EngineDied             a forward pass failed; the request may be tried again
├── OutputInvalid          the model's answer does not fit the schema (also ValueError)
├── OutputConflict         an output file belongs to a run with other settings, or to none (also ValueError)
├── LibraryMissing         an optional library is not installed (also ImportError)
└── GenerationTimeout      the time limit of the call ran out (also TimeoutError)
"""

from __future__ import annotations

from dataclasses import dataclass


class ChatLocalError(Exception):
    """The root: catch this to catch everything that chatlocal raises on purpose."""


class ModelNotFound(ChatLocalError, FileNotFoundError):
    """The name is neither a folder, nor a GGUF file, nor a model on the hub: check the spelling or the path."""

    def __str__(self) -> str:  # OSError would print its arguments as a tuple
        return str(self.args[0]) if self.args else ""


class ModelLoadError(ChatLocalError):
    """The files were found but do not make a model: the message names what is missing or broken."""


class DownloadError(ChatLocalError, OSError):
    """Fetching a model failed (network, disk or checksum): nothing half-made was kept, so the call can be repeated."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class TemplateError(ChatLocalError, ValueError):
    """A chat template could not render the messages: pass another `template=` or change the messages."""


class UnsupportedRole(TemplateError):
    """The model's prompt format has no place for this role: merge it into another turn or drop it."""


class ContextOverflow(ChatLocalError, ValueError):
    """The prompt is longer than the model's context; raised before any forward pass.

    `prompt_tokens` and `context_length` are counts of ids.
    """

    def __init__(self, prompt_tokens: int, context_length: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.context_length = context_length
        super().__init__(
            f"The prompt has {prompt_tokens} tokens, the model's context holds {context_length} and must keep room for"
            " at least one new token: shorten the prompt (langchain_core's trim_messages can) or choose a model with"
            " a longer context."
        )

    def __reduce__(self) -> tuple[type[ContextOverflow], tuple[int, int]]:
        return type(self), (self.prompt_tokens, self.context_length)


class UnsupportedSchema(ChatLocalError, ValueError):
    """A schema cannot be enforced; raised at compile time.

    `keyword` is the offending keyword (or a short name for the trouble), `path` where it stands, as a JSON pointer.
    """

    def __init__(self, keyword: str, path: str, detail: str) -> None:
        self.keyword = keyword
        self.path = path
        self.detail = detail
        super().__init__(f"{keyword!r} at {path or '/'} is not supported: {detail}")

    def __reduce__(self) -> tuple[type[UnsupportedSchema], tuple[str, str, str]]:
        return type(self), (self.keyword, self.path, self.detail)


class BudgetTooSmall(ChatLocalError, ValueError):
    """`max_tokens` is below the shortest answer that the schema allows: raise it."""


class UnsupportedInput(ChatLocalError, ValueError):
    """An argument or content part that this model or call cannot take: the message names it and what is accepted."""


class EngineClosed(ChatLocalError, RuntimeError):
    """The engine was closed, or was loaded in another process: load it again here."""


class EngineBusy(ChatLocalError, RuntimeError):
    """Too many requests are waiting: try again later or raise the limit."""


class EngineDied(ChatLocalError, RuntimeError):
    """A forward pass failed, or the engine stopped working: the message says whether to try again or to load it again.

    `__cause__` is what went wrong.
    """


@dataclass(frozen=True, slots=True)
class Try:
    """One answer to a question that is asked until an answer fits; `error` says why it was refused, None if it fits."""

    answer: str
    error: str | None


class OutputInvalid(ChatLocalError, ValueError):
    """The model's answer does not fit what was asked for; `raw` is the whole text as the model wrote it.

    `tries` are all answers to this question in their order, where they were counted: `raw` is the last one's.
    """

    def __init__(self, message: str, raw: str, tries: tuple[Try, ...] = ()) -> None:
        self.raw = raw
        self.tries = tries
        super().__init__(message)

    def __reduce__(self) -> tuple[type[OutputInvalid], tuple[str, str, tuple[Try, ...]]]:
        return type(self), (str(self.args[0]), self.raw, self.tries)


class OutputConflict(ChatLocalError, ValueError):
    """An output file was begun with other settings, is no file of a run, or is being written by another run.

    Nothing in it was changed: give the same settings, choose another output, or move the file away.
    """


class LibraryMissing(ChatLocalError, ImportError):
    """What was asked for needs a library that is not installed: the message says what to install."""


class GenerationTimeout(ChatLocalError, TimeoutError):
    """The time limit of the call ran out; its slot was freed. Raise `timeout` or lower `max_tokens`."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""
