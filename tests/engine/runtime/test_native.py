"""Products by our own kernels."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator

import pytest
import torch

from chatlocal.engine.runtime import native

pytestmark = pytest.mark.skipif(native.kernels() is None, reason="the kernels were not built for this processor")
TYPES = [torch.bfloat16, torch.float32]
FORMATS = [(dtype, one) for dtype, formats in native.FORMATS.items() for one in formats]


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=FORMATS, ids=lambda pair: pair[1].name.lower())
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.dtype:
    """The type of weights, in every format that runs on this processor."""
    weights, form = request.param
    kernels = native.kernels()
    assert kernels is not None
    if not kernels.runs_here(form):
        pytest.skip(f"this processor does not run {form.name}")
    monkeypatch.setattr(native, "format_of", lambda _: form)
    return weights  # type: ignore[no-any-return]


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("tokens", "in_features", "out_features"),
    [(1, 16, 1), (1, 48, 100), (2, 64, 13), (3, 576, 97), (4, 32, 48), (7, 80, 49), (65, 112, 50), (130, 16, 200)],
)
def test_a_product_is_the_exact_one_rounded(
    dtype: torch.dtype, threads: int, tokens: int, in_features: int, out_features: int
) -> None:
    torch.set_num_threads(threads)
    weight, rows = numbers(out_features, in_features).to(dtype), numbers(tokens, in_features, seed=1)
    before = rows.clone()
    product = native.linear(rows, weight)
    assert torch.equal(rows, before)
    if native.format_of(dtype) == native.Format.PAIRED:
        rows = rows.bfloat16()
    exact = rows.double() @ weight.double().T
    # float32 sums: off by the rounding of each step, in units of what the terms add up to.
    size = rows.double().abs() @ weight.double().abs().T
    assert ((product.double() - exact).abs() <= size * in_features * 2**-24).all()
    assert product.dtype == torch.float32


def test_a_row_has_the_same_bits_whatever_is_beside_it(dtype: torch.dtype) -> None:
    weight, rows = numbers(101, 96).to(dtype), numbers(23, 96, seed=1)
    together = native.linear(rows, weight)
    for count in (1, 2, 3, 4, 5, 8):
        parts = [native.linear(part, weight) for part in rows.split(count)]
        assert torch.equal(torch.cat(parts), together)


@pytest.mark.parametrize("shape", [(64,), (2, 3, 64), (0, 64)])
def test_shapes_are_those_of_torch(shape: tuple[int, ...]) -> None:
    weight = numbers(10, 64).bfloat16()
    assert (
        native.linear(numbers(*shape), weight).shape
        == torch.nn.functional.linear(numbers(*shape), weight.float()).shape
    )


def test_rows_of_other_types_and_strides() -> None:
    weight = numbers(10, 32)
    rows = numbers(32, 6).bfloat16().T
    assert not rows.is_contiguous()
    torch.testing.assert_close(native.linear(rows, weight), rows.float() @ weight.T)


def test_what_is_no_number_stays_none() -> None:
    weight = numbers(10, 32).bfloat16()
    rows = numbers(3, 32)
    rows[1, 5] = torch.nan
    product = native.linear(rows, weight)
    assert product[1].isnan().all()
    assert product[0].isfinite().all()
    assert product[2].isfinite().all()


@pytest.mark.parametrize(
    "weight",
    [
        torch.zeros(4, 24),
        torch.zeros(32, 4).T,
        torch.zeros(4, 32, dtype=torch.float16),
        torch.zeros(4, 32, dtype=torch.float64),
        torch.zeros(32),
        torch.zeros(4, 32, device="meta"),
        torch.nn.Buffer(torch.zeros(4, 64)[:, ::2]),
    ],
)
def test_other_weights_are_not_multiplied(weight: torch.Tensor) -> None:
    assert not native.multiplies(weight)


def test_a_parameter_is_multiplied() -> None:
    assert native.multiplies(torch.nn.Linear(32, 4, dtype=torch.bfloat16).weight)


def test_many_threads_multiply_at_once() -> None:
    torch.set_num_threads(3)
    weight, rows = numbers(500, 64).bfloat16(), numbers(8, 64)
    expected = native.linear(rows, weight)
    wrong: list[int] = []

    def work(number: int) -> None:
        torch.set_num_threads(3)
        wrong.extend(number for _ in range(200) if not torch.equal(native.linear(rows, weight), expected))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _in_child(rows: torch.Tensor, weight: torch.Tensor, results: multiprocessing.SimpleQueue[list[float]]) -> None:
    results.put(native.linear(rows, weight).flatten().tolist())


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*use of fork\\(\\) may lead to deadlocks.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own() -> None:
    torch.set_num_threads(2)
    weight, rows = numbers(500, 64), numbers(2, 64)
    expected = native.linear(rows, weight).flatten().tolist()  # the parent's threads run
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(rows, weight, results))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert results.get() == expected


def test_the_fastest_format_of_this_processor_is_taken() -> None:
    kernels = native.kernels()
    assert kernels is not None
    for kind, formats in native.FORMATS.items():
        assert next(one for one in formats if kernels.runs_here(one)) == native.format_of(kind)


def test_wrong_calls_are_type_errors() -> None:
    kernels = native.kernels()
    assert kernels is not None
    with pytest.raises(TypeError, match="takes 8 arguments, got 1"):
        kernels.linear(1)
    with pytest.raises(TypeError):
        kernels.linear(None, native.Format.WIDE, 0, 0, 16, 1, 0, 1)
    with pytest.raises(ValueError, match="format 99 does not run"):
        kernels.linear(0, 99, 0, 0, 16, 1, 0, 1)
    with pytest.raises(ValueError, match="bytes"):
        kernels.scratch_size(b"short", 1, 1, 1)
