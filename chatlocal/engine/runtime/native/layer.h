// What is known of a decoder layer, and of the place of the tokens of one forward.
#pragma once

#include "products.h"

namespace chatlocal {

// One decoder layer; Python fills it in (fused_layers.py has the same order). Norms and biases are float32 copies.
struct Layer {
    Index hidden, heads, key_heads, head, inner;  // sizes
    const float *input_norm, *inner_norm, *query_norm, *key_norm;  // the last two may be missing
    Matrix query, key, value, output, gate, up, down;
    float epsilon, scale;
};

// Where the tokens of one forward are, and the cache: [rows, key_heads, columns, head].
struct Place {
    Index tokens;
    const Index *rows, *columns;
    void *keys, *values;
    Index row_stride, head_stride;
    const float *cosines, *sines;  // [tokens, rotary]
    Index rotary;
};

}  // namespace chatlocal
