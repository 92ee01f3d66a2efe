"""Our own backend: a transformers model, run by the scheduler thread."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from chatlocal.engine.constraints import Constraint, Spec, TokenBudget, compile
from chatlocal.engine.constraints.compilation import is_compiled
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Request, Tokens
from chatlocal.engine.runtime.cpu_linear import widen_linears
from chatlocal.engine.runtime.decoding import Decoder, Stats
from chatlocal.engine.runtime.early_start import EarlyStart
from chatlocal.engine.runtime.runner_choice import Choice, choose_runner, read_probe
from chatlocal.engine.runtime.scheduler import Scheduler
from chatlocal.engine.runtime.scoring import Scorer
from chatlocal.engine.runtime.selective_head import SelectiveHead
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.stream import TokenStream, forked

_NO_LIMIT = 2**31
# Seconds from which on compiling is worth an early start on the prompt: a refusal comes sooner and costs no forward.
_LONG = 0.1


class TorchBackend:
    """Continues prompts with a transformers causal LM. One forward a step serves all requests that are running.

    `max_batch` is how many run at once; the others wait. `forced_text`: what a grammar forces is not chosen id by id;
    `selective_head`: where a grammar allows few ids, only their logits are computed. The model is put in evaluation
    mode. Closing, garbage collection and the end of the interpreter stop the thread; an open stream keeps the backend
    alive.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_batch: int = 16,
        forced_text: bool = True,
        selective_head: bool = True,
    ) -> None:
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
        stats = Stats()
        decoder = Decoder(choice.runner, stats, choice.width, model.device, forced_text=forced_text)
        head = _selective_head(model, choice) if selective_head else None
        self._selects = 0 if head is None else head.limit
        self._scheduler = Scheduler(choice.runner, Scorer(model), decoder, stats, max_batch, head)
        self._process = os.getpid()
        # At exit too: the thread must not be inside torch while the interpreter is torn down.
        self._stop = weakref.finalize(self, _stop, self._scheduler, self._process)

    def submit(self, request: Request) -> TokenStream:
        """Queue a request. Where compiling its constraint takes long, the prompt is read meanwhile.

        UnsupportedInput for ids that the model does not have, UnsupportedSchema when the constraint cannot be compiled,
        BudgetTooSmall when its shortest text has more than `max_tokens`, EngineClosed after `close` and in a forked
        child.
        """
        self._check(request)
        spec = request.constraint_spec
        if spec is None:
            return self._queue(Sequence(request))
        settings = self._settings(request.stop_ids)
        if is_compiled(spec, self._tokenizer, **settings):
            return self._queue(Sequence(request, _budget(compile(spec, self._tokenizer, **settings), request)))
        sequence = Sequence(request, ready=False)
        early = EarlyStart(partial(self._scheduler.submit, sequence), _LONG)
        try:
            sequence.begin(_budget(compile(spec, self._tokenizer, **settings), request))
        except BaseException:
            sequence.channel.close()
            raise
        finally:
            begun = early.stop()
            self._scheduler.wake()
        return TokenStream(sequence.channel, owner=self) if begun else self._queue(sequence)

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
        """Compile a constraint, so that a `submit` with it will not take time for that."""
        _ = compile(spec, self._tokenizer, **self._settings(stop_ids)).shortest

    def describe(self) -> dict[str, Any]:
        """How the model runs, for a person to read."""
        dtype = str(self._model.dtype).removeprefix("torch.")
        described = {"device": str(self._model.device), "dtype": dtype, "batching": self._how}
        selects = f"up to {self._selects:,} ids" if self._selects else "never"
        return {**described, "logits of allowed ids alone": selects}

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

    def _settings(self, stop_ids: Iterable[int]) -> dict[str, Any]:
        """What a constraint is compiled for, beside the tokenizer."""
        return {"vocab_size": self._width, "end_ids": sorted(id for id in stop_ids if id < self._width)}


def _budget(constraint: Constraint, request: Request) -> TokenBudget:
    return TokenBudget(constraint, request.sampling.max_tokens or _NO_LIMIT)


@torch.inference_mode()
def _selective_head(model: Any, choice: Choice) -> SelectiveHead | None:
    def probe() -> torch.Tensor:
        try:
            return read_probe(choice.runner, model)
        finally:
            choice.runner.close()

    return SelectiveHead.fitting(model, choice.width, probe)


def _stop(scheduler: Scheduler, process: int) -> None:
    if os.getpid() == process:
        scheduler.close()
