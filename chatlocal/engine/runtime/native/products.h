// Products of a weight matrix, as it lies in memory, and rows of activations.
//
// Decoding reads all weights for a few rows, so a step is bound by memory as long as widening a weight costs less than
// fetching it: a weight is widened in a register, once for a tile of up to 4 rows, and a thread takes a block of weight
// rows for all rows of activations, so that each is fetched once.
#pragma once

#include <algorithm>
#include <type_traits>

#include "crew.h"
#include "vectors.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace chatlocal {

constexpr Index kBlock = 48;  // weight rows that a thread takes at once: 55 KB of bfloat16 at a depth of 576

constexpr Index kTogether = 16;  // activation rows that meet a weight before the next one is fetched

// out[m][r] = sum over the depth of weights[r] * rows[m], for R weight rows and M activation rows. `ahead` fetches the
// weight rows of the tile after the next one.
template <int R, int M, bool Add, class W>
inline void product_tile(const W* weights, Index weight_stride, const float* rows, Index row_stride, Index depth,
                         float* out, Index out_stride, bool ahead) {
    constexpr Index kLine = 64 / sizeof(W);  // weights in a line of the cache
    __m256 sums[M][R];
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sums[m][r] = _mm256_setzero_ps();
    const auto step = [&](Index k) __attribute__((always_inline)) {
#pragma GCC unroll 2
        for (Index half = 0; half < kStep; half += kLanes) {
            __m256 wide[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) wide[r] = load_half(weights + r * weight_stride + k, half);
#pragma GCC unroll 6
            for (int m = 0; m < M; ++m) {
                const __m256 row = load(rows + m * row_stride + k + half);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) sums[m][r] = _mm256_fmadd_ps(wide[r], row, sums[m][r]);
            }
        }
    };
    Index k = 0;
    for (; k + kLine <= depth; k += kLine) {
        // These rows are too short and too many for the processor to foresee.
#pragma GCC unroll 8
        for (int r = 0; r < R && ahead; ++r)
            _mm_prefetch(reinterpret_cast<const char*>(weights + (2 * R + r) * weight_stride + k), _MM_HINT_T0);
        for (Index i = 0; i < kLine; i += kStep) step(k + i);
    }
    for (; k < depth; k += kStep) step(k);
    for (int m = 0; m < M; ++m) {
        float* to = out + m * out_stride;
        if (R == kLanes) {
            const __m256 sum = totals(sums[m]);
            store(to, Add ? _mm256_add_ps(load(to), sum) : sum);
            continue;
        }
        for (int r = 0; r < R; ++r) to[r] = Add ? to[r] + total(sums[m][r]) : total(sums[m][r]);
    }
}

// The shape of a tile where there are many activation rows: 12 sums, which keep the multipliers busy, and what is
// multiplied fill the registers. Widening bfloat16 takes one register more, and pays more the more rows share it.
template <class W>
struct TileShape {
    static constexpr int kWeights = 3, kRows = 4;
};

template <>
struct TileShape<bfloat16> {
    static constexpr int kWeights = 2, kRows = 6;
};

// A tile of R weight rows and up to M activation rows.
template <int R, int M, bool Add, class W>
inline void product_up_to(const W* weights, Index weight_stride, const float* rows, Index row_stride, Index tokens,
                          Index depth, float* out, Index out_stride, bool ahead) {
    if constexpr (M > 1)
        if (tokens < M)
            return product_up_to<R, M - 1, Add>(weights, weight_stride, rows, row_stride, tokens, depth, out, out_stride,
                                                ahead);
    product_tile<R, M, Add>(weights, weight_stride, rows, row_stride, depth, out, out_stride, ahead);
}

// R weight rows at a time, then one at a time, each with all of up to kTogether activation rows, in equal tiles of at
// most M.
template <int R, int M, bool Add, class W>
inline void product_rows(const W* weights, Index weight_stride, Index count, const float* rows, Index row_stride,
                         Index tokens, Index depth, float* out, Index out_stride) {
    const Index tiles = (tokens + M - 1) / M;
    const auto across = [&](auto width, Index r) __attribute__((always_inline)) {
        for (Index tile = 0, m = 0; tile < tiles; ++tile) {
            const Index size = (tokens + tile) / tiles;  // the sizes differ by one at most
            product_up_to<decltype(width)::value, M, Add>(weights + r * weight_stride, weight_stride,
                                                          rows + m * row_stride, row_stride, size, depth,
                                                          out + m * out_stride + r, out_stride, tile == 0);
            m += size;
        }
    };
    Index r = 0;
    for (; r + R <= count; r += R) across(std::integral_constant<int, R>(), r);
    for (; r < count; ++r) across(std::integral_constant<int, 1>(), r);
}

// out[m][r] for `count` weight rows and `tokens` activation rows.
template <bool Add, class W>
void product(const W* weights, Index weight_stride, Index count, const float* rows, Index row_stride, Index tokens,
             Index depth, float* out, Index out_stride) {
    if (tokens == 1)
        return product_rows<8, 1, Add>(weights, weight_stride, count, rows, row_stride, 1, depth, out, out_stride);
    if (tokens == 2)
        return product_rows<6, 2, Add>(weights, weight_stride, count, rows, row_stride, 2, depth, out, out_stride);
    for (Index m = 0; m < tokens; m += kTogether)
        product_rows<TileShape<W>::kWeights, TileShape<W>::kRows, Add>(weights, weight_stride, count, rows + m * row_stride,
                                                             row_stride, std::min(kTogether, tokens - m), depth,
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
template <bool Add, class W>
void linear_block(const Matrix& matrix, Index block, Index out_features, Index depth, const float* rows, Index tokens,
                  float* out, Index out_stride) {
    const Index first = block * kBlock, count = block_rows(block, out_features);
    product<Add>(static_cast<const W*>(matrix.weights) + first * depth, depth, count, rows, depth, tokens, depth, out,
                 out_stride);
    if (matrix.bias)
        for (Index m = 0; m < tokens; ++m)
            for (Index r = 0; r < count; ++r) out[m * out_stride + r] += matrix.bias[first + r];
}

// out [tokens, out_features] = rows [tokens, depth] times the matrix; `rows` are rearranged.
template <class W>
void linear(const Matrix& matrix, float* rows, Index tokens, Index depth, Index out_features, float* out, int threads) {
    for (Index m = 0; m < tokens; ++m) arrange<W>(rows + m * depth, depth);
    Crew::here().share(blocks(out_features), threads, [&](Index block) {
        linear_block<false, W>(matrix, block, out_features, depth, rows, tokens, out + block * kBlock, out_features);
    });
}

}  // namespace chatlocal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
