"""Our own backend: a transformers model, run by the scheduler thread."""

from __future__ import annotations

import os
import weakref
from dataclasses import asdict
from typing import Any

from chatlocal.engine.constraints import ConstraintState, Spec, compile
from chatlocal.engine.errors import EngineClosed
from chatlocal.engine.runtime.backend import Request
from chatlocal.engine.runtime.cpu_linear import widen_linears
from chatlocal.engine.runtime.runner import choose_runner
from chatlocal.engine.runtime.scheduler import Scheduler
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.stream import TokenStream


class TorchBackend:
    """Continues prompts with a transformers causal LM. One forward a step serves all requests that are running.

    `max_batch` is how many run at once; the others wait. The model is put in evaluation mode. Closing, garbage
    collection and the end of the interpreter stop the thread.
    """

    def __init__(self, model: Any, tokenizer: Any, *, max_batch: int = 16) -> None:
        model.eval()
        widened = widen_linears(model)
        self._tokenizer = tokenizer
        self._model = model
        self._vocab_size = int(model.get_output_embeddings().out_features)
        self._runner, how = choose_runner(model)
        self._how = f"{how}; bfloat16 products in float32" if widened else how
        self._scheduler = Scheduler(self._runner, max_batch)
        self._process = os.getpid()
        # At exit the thread must not be inside torch while the interpreter is torn down.
        self._stop = weakref.finalize(self, _stop, self._scheduler, self._process)
        self._stop.atexit = True

    def submit(self, request: Request) -> TokenStream:
        """Queue a request. UnsupportedSchema when its constraint cannot be compiled, EngineClosed after `close`."""
        if os.getpid() != self._process:
            raise EngineClosed(
                "This engine was loaded in another process, and a fork does not copy its thread: load the model in"
                " the child (or start the child with the 'spawn' method)."
            )
        stream = TokenStream(on_close=self._scheduler.wake)
        self._scheduler.submit(Sequence(request, stream, self._constraint(request)))
        return stream

    def describe(self) -> dict[str, Any]:
        """How the model runs, for a person to read."""
        return {"device": str(self._model.device), "dtype": str(self._model.dtype), "batching": self._how}

    def stats(self) -> dict[str, int]:
        scheduler = self._scheduler
        return {**asdict(scheduler.stats), "running": scheduler.running, "waiting": scheduler.waiting}

    def close(self) -> None:
        """Fail what runs with EngineClosed and end the thread."""
        self._stop()

    def _constraint(self, request: Request) -> ConstraintState | None:
        spec: Spec | None = request.constraint_spec
        if spec is None:
            return None
        compiled = compile(spec, self._tokenizer, vocab_size=self._vocab_size, end_ids=sorted(request.stop_ids))
        return compiled.start()


def _stop(scheduler: Scheduler, process: int) -> None:
    if os.getpid() == process:
        scheduler.close()
