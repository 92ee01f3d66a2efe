def runs_here(format: int, /) -> bool:
    """Whether the processor has what a Format of __init__.py needs. The other functions are there on x86-64 alone."""

def linear(
    weight: int, format: int, rows: int, tokens: int, in_features: int, out_features: int, out: int, threads: int, /
) -> None:
    """out [tokens, out_features] = rows [tokens, in_features] @ weight.T; all but the weight is float32.

    Addresses of contiguous memory. `format` is one of the weight's type. in_features is a multiple of 16. The rows are
    changed. ValueError for a format that does not run here.
    """

def scratch_size(layers: bytes, tokens: int, longest: int, threads: int, /) -> int:
    """How many float32 numbers `decoder_layers` needs as scratch; `longest` is the largest of its columns."""

def decoder_layers(
    layers: bytes,
    caches: bytes,
    tokens: int,
    rows: int,
    columns: int,
    row_stride: int,
    head_stride: int,
    cosines: int,
    sines: int,
    rotary: int,
    hidden: int,
    scratch: int,
    threads: int,
    format: int,
    /,
) -> None:
    """Put `hidden` (float32 [tokens, hidden_size]) through layers of one size, in place.

    `layers` are structs Layer of layer.h. `caches` are the addresses of all layers' keys, then of all values: [rows,
    key_heads, columns, head_dim] of the weights' type, whose strides are given in numbers, not bytes. `rows` and
    `columns` (int64 [tokens]) say where each token goes; it sees its row up to its own column, and tokens of a row are
    in order. `cosines` and `sines` are float32 [tokens, rotary].
    """
