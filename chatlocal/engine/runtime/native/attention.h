// Attention of new tokens over the keys and values of their own sequences, which lie in rows of one cache.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "layer.h"
#include "products.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace chatlocal {

constexpr Index kChunk = 512;   // positions of the context whose softmax is done in one go
constexpr Index kQueries = 32;  // queries that share one reading of keys and values, at most
constexpr Index kMaxHead = 256;

// Tokens of one sequence at consecutive positions, which read the same keys and values.
struct Tile {
    Index first, count;
};

// A partial result is the softmax over a chunk of positions, not divided by its sum yet: the largest score, the sum of
// the weights, the weighted values [head].
inline Index partial_size(const Layer& layer) { return layer.head + 2; }

// Joins `other` to `sum`; both are of the same query.
void merge(float* sum, const float* other, Index head) {
    const float largest = std::max(sum[0], other[0]);
    const float mine = exponential(sum[0] - largest), theirs = exponential(other[0] - largest);
    sum[0] = largest;
    sum[1] = sum[1] * mine + other[1] * theirs;
    const __m256 a = _mm256_set1_ps(mine), b = _mm256_set1_ps(theirs);
    for (Index i = 0; i < head; i += kLanes)
        store(sum + 2 + i, _mm256_fmadd_ps(load(sum + 2 + i), a, _mm256_mul_ps(load(other + 2 + i), b)));
}

// Weighted sum of values for Q queries and 16 values of the head at a time.
template <int Q, class W>
void weigh(const float* weights, const W* values, Index positions, Index head, float* const* out) {
    for (Index d = 0; d < head; d += 2 * kLanes) {
        __m256 sums[Q][2];
#pragma GCC unroll 6
        for (int q = 0; q < Q; ++q) sums[q][0] = sums[q][1] = _mm256_setzero_ps();
        for (Index c = 0; c < positions; ++c) {
            const __m256 low = load(values + c * head + d), high = load(values + c * head + d + kLanes);
#pragma GCC unroll 6
            for (int q = 0; q < Q; ++q) {
                const __m256 weight = _mm256_broadcast_ss(weights + q * kChunk + c);
                sums[q][0] = _mm256_fmadd_ps(weight, low, sums[q][0]);
                sums[q][1] = _mm256_fmadd_ps(weight, high, sums[q][1]);
            }
        }
        for (int q = 0; q < Q; ++q) {
            store(out[q] + 2 + d, sums[q][0]);
            store(out[q] + 2 + d + kLanes, sums[q][1]);
        }
    }
}

template <class W>
void weigh_all(const float* weights, const W* values, Index positions, Index head, float* const* out, Index queries) {
    Index q = 0;
    for (; q + 6 <= queries; q += 6) weigh<6>(weights + q * kChunk, values, positions, head, out + q);
    if (queries - q >= 3) {
        weigh<3>(weights + q * kChunk, values, positions, head, out + q);
        q += 3;
    }
    for (; q < queries; ++q) weigh<1>(weights + q * kChunk, values, positions, head, out + q);
}

// Which query of a forward is number q of a tile's, for a key head: [tokens, heads].
inline Index query_row(const Layer& layer, const Tile& tile, Index key_head, Index q) {
    const Index group = layer.heads / layer.key_heads;
    return (tile.first + q / group) * layer.heads + key_head * group + q % group;
}

// Attention of a tile's queries that share a key head over one chunk of positions. `partials` has one for each query:
// [count, heads / key_heads]. `weights` is room for [kQueries, kChunk].
template <class F>
void attend(const Layer& layer, const Place& place, const Tile& tile, Index key_head, Index chunk, float* queries,
            float* const* partials, float* weights) {
    using W = typename F::Weight;
    const Index head = layer.head, group = layer.heads / layer.key_heads, all = tile.count * group;
    const Index begin = chunk * kChunk;
    const Index last = place.columns[tile.first + tile.count - 1];
    const Index positions = std::min(kChunk, last + 1 - begin);
    const Index offset = place.rows[tile.first] * place.row_stride + key_head * place.head_stride + begin * head;
    const W* keys = static_cast<const W*>(place.keys) + offset;
    const W* values = static_cast<const W*>(place.values) + offset;
    typename F::Active gathered[kQueries * kMaxHead];
    for (Index q = 0; q < all; ++q) {
        const auto* query = active<F>(queries + query_row(layer, tile, key_head, q) * head);
        std::copy(query, query + head, gathered + q * head);
    }
    product<F, false>({keys, head, gathered, head, head}, positions, all, weights, kChunk);
    for (Index q = 0; q < all; ++q) {
        float* row = weights + q * kChunk;
        const Index seen = std::min(positions, place.columns[tile.first + q / group] + 1 - begin);
        if (seen <= 0) {  // a later chunk of which this query sees nothing
            partials[q][0] = -INFINITY;
            partials[q][1] = 0.0f;
            std::fill(row, row + positions, 0.0f);
            continue;
        }
        const float largest = *std::max_element(row, row + seen);
        const __m256 base = _mm256_set1_ps(largest);
        __m256 sums = _mm256_setzero_ps();
        // What lies behind the seen positions becomes 0: their weights, up to the end of the last vector.
        for (Index c = seen; c < std::min(kChunk, (positions + kLanes - 1) / kLanes * kLanes); ++c) row[c] = -INFINITY;
        for (Index c = 0; c < positions; c += kLanes) {
            const __m256 weight = exponential(_mm256_sub_ps(load(row + c), base));
            store(row + c, weight);
            sums = _mm256_add_ps(sums, weight);
        }
        partials[q][0] = largest;
        partials[q][1] = total(sums);
    }
#ifdef CHATLOCAL_AVX512
    if constexpr (F::kAvx512) return weigh_all_wide(weights, kChunk, values, positions, head, partials, all);
#endif
    weigh_all(weights, values, positions, head, partials, all);
}

std::vector<Tile> tiles_of(const Place& place, Index group) {
    const Index most = std::max<Index>(1, kQueries / group);
    std::vector<Tile> tiles;
    for (Index token = 0; token < place.tokens; ++token) {
        const bool follows = token && place.rows[token] == place.rows[token - 1] &&
                             place.columns[token] == place.columns[token - 1] + 1 && tiles.back().count < most;
        if (follows)
            ++tiles.back().count;
        else
            tiles.push_back({token, 1});
    }
    return tiles;
}

inline Index chunks(Index column) { return column / kChunk + 1; }

}  // namespace chatlocal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
