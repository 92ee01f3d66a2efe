// Products of a weight matrix, as it lies in memory, and rows of activations.
//
// Decoding reads all weights for a few rows, so a step is bound by memory as long as widening a weight costs less than
// fetching it: a weight is widened in a register, once for a tile of a few rows, and a thread takes a block of weight
// rows for all rows of activations, so that each is fetched once.
#pragma once

#include <algorithm>
#include <type_traits>

#include "crew.h"
#include "tiles.h"
#include "wide_tiles.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace chatlocal {

constexpr Index kBlock = 48;  // weight rows that a thread takes at once: 55 KB of bfloat16 at a depth of 576

constexpr Index kTogether = 16;  // activation rows that meet a weight before the next one is fetched

// What is multiplied: weight rows, and rows of activations in the form of the format.
template <class F>
struct Operands {
    const typename F::Weight* weights;
    Index weight_stride;
    const typename F::Active* rows;
    Index row_stride, depth;

    Operands at(Index weight, Index row) const {
        return {weights + weight * weight_stride, weight_stride, rows + row * row_stride, row_stride, depth};
    }
};

// A tile of R weight rows and up to M activation rows.
template <class F, int R, int M, bool Add>
inline void product_up_to(const Operands<F>& of, Index tokens, float* out, Index out_stride, bool ahead) {
    if constexpr (M > 1)
        if (tokens < M) return product_up_to<F, R, M - 1, Add>(of, tokens, out, out_stride, ahead);
    Tiles<F>::template product<R, M, Add>(of.weights, of.weight_stride, of.rows, of.row_stride, of.depth, out, out_stride,
                                          ahead);
}

// R weight rows at a time, then one at a time, each with all of up to kTogether activation rows, in equal tiles of at
// most M.
template <class F, int R, int M, bool Add>
inline void product_rows(const Operands<F>& of, Index count, Index tokens, float* out, Index out_stride) {
    const Index tiles = (tokens + M - 1) / M;
    const auto across = [&](auto width, Index r) __attribute__((always_inline)) {
        for (Index tile = 0, m = 0; tile < tiles; ++tile) {
            const Index size = (tokens + tile) / tiles;  // the sizes differ by one at most
            product_up_to<F, decltype(width)::value, M, Add>(of.at(r, m), size, out + m * out_stride + r, out_stride,
                                                             tile == 0);
            m += size;
        }
    };
    Index r = 0;
    for (; r + R <= count; r += R) across(std::integral_constant<int, R>(), r);
    for (; r < count; ++r) across(std::integral_constant<int, 1>(), r);
}

// out[m][r] for `count` weight rows and `tokens` activation rows.
template <class F, bool Add>
void product(const Operands<F>& of, Index count, Index tokens, float* out, Index out_stride) {
    using Shape = Tiles<F>;
    if (tokens == 1) return product_rows<F, Shape::kForOne, 1, Add>(of, count, 1, out, out_stride);
    if (tokens == 2) return product_rows<F, Shape::kForTwo, 2, Add>(of, count, 2, out, out_stride);
    for (Index m = 0; m < tokens; m += kTogether)
        product_rows<F, Shape::kWeights, Shape::kRows, Add>(of.at(0, m), count, std::min(kTogether, tokens - m),
                                                            out + m * out_stride, out_stride);
}

// A matrix [out_features, in_features], with a float32 bias or none.
struct Matrix {
    const void* weights;
    const float* bias;
};

inline Index blocks(Index out_features) { return (out_features + kBlock - 1) / kBlock; }

inline Index block_rows(Index block, Index out_features) { return std::min(kBlock, out_features - block * kBlock); }

// Results of one block of a matrix's rows for all tokens; `out` is where the block's first one goes.
template <class F, bool Add>
void linear_block(const Matrix& matrix, Index block, Index out_features, Index depth, const typename F::Active* rows,
                  Index tokens, float* out, Index out_stride) {
    const Index first = block * kBlock, count = block_rows(block, out_features);
    const auto* weights = static_cast<const typename F::Weight*>(matrix.weights) + first * depth;
    product<F, Add>({weights, depth, rows, active_stride<F>(depth), depth}, count, tokens, out, out_stride);
    if (matrix.bias)
        for (Index m = 0; m < tokens; ++m)
            for (Index r = 0; r < count; ++r) out[m * out_stride + r] += matrix.bias[first + r];
}

// out [tokens, out_features] = rows [tokens, depth] times the matrix; `rows` are put into the form of the format.
template <class F>
void linear(const Matrix& matrix, float* rows, Index tokens, Index depth, Index out_features, float* out, int threads) {
    for (Index m = 0; m < tokens; ++m) F::arrange(rows + m * depth, depth, active<F>(rows + m * depth));
    Crew::here().share(blocks(out_features), threads, [&](Index block) {
        linear_block<F, false>(matrix, block, out_features, depth, active<F>(rows), tokens, out + block * kBlock,
                               out_features);
    });
}

}  // namespace chatlocal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
