"""Our own backend: a transformers model, run by the scheduler thread."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from chatlocal.engine.constraints import Constraint, Spec, TokenBudget, compile
from chatlocal.engine.constraints.compilation import is_compiled
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Request, Tokens
from chatlocal.engine.runtime.cache_budget import positions
from chatlocal.engine.runtime.cpu_linear import widen_linears
from chatlocal.engine.runtime.decoding import Decoder, Stats
from chatlocal.engine.runtime.drafting import Drafter
from chatlocal.engine.runtime.early_start import EarlyStart
from chatlocal.engine.runtime.runner import Runner
from chatlocal.engine.runtime.runner_choice import Choice, choose_runner, read_probe
from chatlocal.engine.runtime.scheduler import Scheduler
from chatlocal.engine.runtime.scoring import Scorer
from chatlocal.engine.runtime.selective_head import SelectiveHead
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.slots import MOST_HELD
from chatlocal.engine.runtime.stream import TokenStream, forked

_NO_LIMIT = 2**31
# Seconds from which on compiling is worth an early start on the prompt: a refusal comes sooner and costs no forward.
_LONG = 0.1
# Positions of a model that does not say how many it has.
_LONG_CONTEXT = 2**20


class TorchBackend:
    """Continues prompts with a transformers causal LM. One forward a step serves all requests that are running.

    `max_batch` is how many run at once; the others wait. `forced_text`: what a grammar forces is not chosen id by id;
    `selective_head`: where a grammar allows few ids, only their logits are computed; `fused_layers`: decoder layers run
    in kernels of our own where there are some for them (chatlocal.engine.runtime.fused_layers); `drafting`: ids that
    are likely to come next are read along and checked in the same forward, where that pays. `cache_tokens`: how many
    positions the cache may have, as a number or as a share of the free memory (chatlocal.engine.runtime.cache_budget);
    requests whose answers outgrow it take turns. `max_waiting`: how many may wait, None for any number. `prefix_reuse`:
    what requests have read is held for those that begin alike. The model is put in evaluation mode.
    Closing, garbage collection and the end of the interpreter stop the thread; an open stream keeps the backend
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
        fused_layers: bool = True,
        drafting: bool = True,
        cache_tokens: float | None = None,
        max_waiting: int | None = None,
        prefix_reuse: bool = True,
    ) -> None:
        if max_batch < 1:
            raise UnsupportedInput(f"max_batch is how many requests run at once, at least 1, got {max_batch}.")
        if max_waiting is not None and max_waiting < 0:
            raise UnsupportedInput(f"max_waiting is how many requests may wait, at least 0, got {max_waiting}.")
        model.eval()
        widened = widen_linears(model)
        self._tokenizer = tokenizer
        self._model = model
        self._embedded = int(model.get_input_embeddings().weight.shape[0])
        choice = choose_runner(model, fused_layers=fused_layers)
        self._how = f"{choice.how}; bfloat16 products in float32" if widened else choice.how
        self._layers = choice.layers
        self._width = choice.width
        stats = Stats()
        drafter = Drafter.fitting(choice.runner) if drafting else None
        self._drafts = "where they pay" if drafter is not None else "never"
        decoder = Decoder(choice.runner, stats, choice.width, model.device, forced_text=forced_text, drafter=drafter)
        head = _selective_head(model, choice) if selective_head else None
        self._selects = 0 if head is None else head.limit
        self._positions = _positions(model, choice.runner, cache_tokens, max_batch)
        choice.runner.allot(self._positions, max_batch, reuse=prefix_reuse)
        self._reuses = choice.runner.reuses and prefix_reuse
        self._scheduler = Scheduler(
            choice.runner, Scorer(model), decoder, stats, max_batch, head, max_waiting=max_waiting
        )
        self._process = os.getpid()
        # At exit too: the thread must not be inside torch while the interpreter is torn down.
        self._stop = weakref.finalize(self, _stop, self._scheduler, self._process)

    def submit(self, request: Request) -> TokenStream:
        """Queue a request. Where compiling its constraint takes long, the prompt is read meanwhile.

        UnsupportedInput for ids that the model does not have and for a prompt that the cache has no room for,
        UnsupportedSchema when the constraint cannot be compiled, BudgetTooSmall when its shortest text has more than
        `max_tokens`, EngineBusy where more than `max_waiting` would wait, EngineClosed after `close` and in a forked
        child. An answer ends with reason "length" where it alone fills the cache.
        """
        self._check(request)
        request = self._limited(request)
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

        They take their places among the running requests. The prompt is read once where the model allows it, and held
        for a request that follows; each continuation costs a forward over its ids for each 128 of them.
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
        described = {
            "device": str(self._model.device),
            "dtype": dtype,
            "batching": self._how,
            "decoder layers": self._layers,
        }
        selects = f"up to {self._selects:,} ids" if self._selects else "never"
        held = "held for requests that begin alike" if self._reuses else "dropped"
        return {
            **described,
            "logits of allowed ids alone": selects,
            "drafts from prompt and answer": self._drafts,
            "cache": f"{self._positions:,} positions; what was read is {held}",
        }

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

    def _limited(self, request: Request) -> Request:
        """The request with no more new ids than the cache has room for; the last one is never read."""
        room = self._positions - len(request.prompt_ids) + 1
        limit = request.sampling.max_tokens
        if limit is not None and limit <= room:
            return request
        return replace(request, sampling=replace(request.sampling, max_tokens=room))

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
        needed = len(request.prompt_ids) + max(len(given) - 1, 0)
        if needed > self._positions:
            raise UnsupportedInput(
                f"The prompt needs {needed} positions and the cache has {self._positions}: shorten the prompt, or raise"
                " cache_tokens."
            )

    def _settings(self, stop_ids: Iterable[int]) -> dict[str, Any]:
        """What a constraint is compiled for, beside the tokenizer."""
        return {"vocab_size": self._width, "end_ids": sorted(id for id in stop_ids if id < self._width)}


def _budget(constraint: Constraint, request: Request) -> TokenBudget:
    return TokenBudget(constraint, request.sampling.max_tokens or _NO_LIMIT)


def _positions(model: Any, runner: Runner, cache_tokens: float | None, max_batch: int) -> int:
    """How many positions the cache may have."""
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None) or _LONG_CONTEXT
    return positions(
        cache_tokens,
        position_bytes=runner.position_bytes,
        device=model.device,
        most=(max_batch + MOST_HELD) * int(context),
    )


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
