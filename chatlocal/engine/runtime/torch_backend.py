"""Our own backend: a transformers model, run by the scheduler thread."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict
from typing import Any

from chatlocal.engine.constraints import Constraint, Spec, TokenBudget, compile
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Request, Tokens
from chatlocal.engine.runtime.cpu_linear import widen_linears
from chatlocal.engine.runtime.runner_choice import choose_runner
from chatlocal.engine.runtime.scheduler import Scheduler
from chatlocal.engine.runtime.scoring import Scorer
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.stream import TokenStream, forked

_NO_LIMIT = 2**31


class TorchBackend:
    """Continues prompts with a transformers causal LM. One forward a step serves all requests that are running.

    `max_batch` is how many run at once; the others wait. The model is put in evaluation mode. Closing, garbage
    collection and the end of the interpreter stop the thread; an open stream keeps the backend alive.
    """

    def __init__(self, model: Any, tokenizer: Any, *, max_batch: int = 16) -> None:
        if max_batch < 1:
            raise UnsupportedInput(f"max_batch is how many requests run at once, at least 1, got {max_batch}.")
        model.eval()
        widened = widen_linears(model)
        self._tokenizer = tokenizer
        self._model = model
        self._embedded = int(model.get_input_embeddings().weight.shape[0])
        choice = choose_runner(model)
        self._how = f"{choice.how}; bfloat16 products in float32" if widened else choice.how
        self._width = choice.width
        self._scheduler = Scheduler(choice.runner, Scorer(model), max_batch)
        self._process = os.getpid()
        # At exit too: the thread must not be inside torch while the interpreter is torn down.
        self._stop = weakref.finalize(self, _stop, self._scheduler, self._process)

    def submit(self, request: Request) -> TokenStream:
        """Queue a request.

        UnsupportedInput for ids that the model does not have, UnsupportedSchema when the constraint cannot be compiled,
        BudgetTooSmall when its shortest text has more than `max_tokens`, EngineClosed after `close` and in a forked
        child.
        """
        self._check(request)
        constraint = self._constraint(request.constraint_spec, request.stop_ids)
        limit = request.sampling.max_tokens or _NO_LIMIT
        return self._queue(Sequence(request, None if constraint is None else TokenBudget(constraint, limit)))

    def score(self, prompt_ids: SequenceOf[int], continuations: SequenceOf[SequenceOf[int]]) -> list[float]:
        """For each continuation, the log-likelihood in nats of all its ids after the prompt, summed; blocks.

        They take their places among the running requests. Each costs one forward pass over the prompt and its own ids,
        and another one for each 128 ids beyond the first.
        """
        streams = [self._given(tuple(prompt_ids), tuple(ids)) if ids else () for ids in continuations]
        return [
            sum(report.logprob for event in stream if isinstance(event, Tokens) for report in event.logprobs)
            for stream in streams
        ]

    def prepare(self, spec: Spec, stop_ids: Iterable[int]) -> None:
        """Compile a constraint, so that a `submit` with it will not block."""
        constraint = self._constraint(spec, stop_ids)
        _ = None if constraint is None else constraint.shortest

    def describe(self) -> dict[str, Any]:
        """How the model runs, for a person to read."""
        dtype = str(self._model.dtype).removeprefix("torch.")
        return {"device": str(self._model.device), "dtype": dtype, "batching": self._how}

    def stats(self) -> dict[str, int]:
        scheduler = self._scheduler
        return {**asdict(scheduler.stats), "running": scheduler.running, "waiting": scheduler.waiting}

    @property
    def closed(self) -> bool:
        """Whether it takes no more requests: it was closed, or it died."""
        return self._scheduler.over

    def close(self) -> None:
        """Fail what runs with EngineClosed and end the thread."""
        self._stop()

    def _given(self, prompt_ids: tuple[int, ...], ids: tuple[int, ...]) -> TokenStream:
        """A request whose answer is known; its events carry the log-probabilities."""
        request = Request(prompt_ids, Sampling(max_tokens=len(ids)), logprobs=0)
        self._check(request, ids)
        return self._queue(Sequence(request, given=ids))

    def _queue(self, sequence: Sequence) -> TokenStream:
        self._scheduler.submit(sequence)
        return TokenStream(sequence.channel, owner=self)

    def _check(self, request: Request, given: tuple[int, ...] = ()) -> None:
        """Refuse what would make a forward pass fail for others too."""
        if os.getpid() != self._process:
            raise forked()
        if request.media:
            raise UnsupportedInput("This backend reads text only: leave the images out.")
        if not request.prompt_ids:
            raise UnsupportedInput("The prompt is empty: there is nothing that the model could continue.")
        wrong = [id for id in (*request.prompt_ids, *given) if not 0 <= id < self._embedded]
        if wrong:
            raise UnsupportedInput(
                f"The prompt has ids that the model does not know ({wrong[0]} of {self._embedded}): the tokenizer"
                " belongs to another model."
            )

    def _constraint(self, spec: Spec | None, stop_ids: Iterable[int]) -> Constraint | None:
        if spec is None:
            return None
        ends = sorted(id for id in stop_ids if id < self._width)
        return compile(spec, self._tokenizer, vocab_size=self._width, end_ids=ends)


def _stop(scheduler: Scheduler, process: int) -> None:
    if os.getpid() == process:
        scheduler.close()
