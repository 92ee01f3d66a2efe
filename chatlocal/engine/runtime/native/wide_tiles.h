// The same in vectors of sixteen float32 numbers or thirty-two bfloat16 ones (AVX-512), whose sums have 32 registers.
#pragma once

#include <type_traits>

#include "tiles.h"

#if defined(__clang__) || __GNUC__ >= 11
#define CHATLOCAL_AVX512 1

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#endif

namespace chatlocal {

inline __m512 load16(const float* from) { return _mm512_loadu_ps(from); }

inline __m512 load16(const bfloat16* from) {
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
}

// The totals of four vectors.
inline __m128 totals(__m512 a, __m512 b, __m512 c, __m512 d) {
    const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512 all = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xEE));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// The numbers that one multiplication takes of a weight row or an activation row.
template <class F>
struct Lanes {
    static constexpr Index kCount = 16;
    using Vector = __m512;
    template <class T>
    static Vector load(const T* from) {
        return load16(from);
    }
    template <class T>
    static Vector load_rest(const T* from) {
        return load16(from);
    }
    static __m512 add(__m512 sum, Vector a, Vector b) { return _mm512_fmadd_ps(a, b, sum); }
};

template <>
struct Lanes<Paired> {
    static constexpr Index kCount = 32;
    using Vector = __m512i;
    static Vector load(const bfloat16* from) { return _mm512_loadu_si512(from); }
    static Vector load_rest(const bfloat16* from) {  // sixteen of them
        return _mm512_zextsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    }
    static __m512 add(__m512 sum, Vector a, Vector b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
};

// Tiles in vectors of 64 bytes.
template <class F>
struct WideTiles {
    static constexpr int kWeights = 4, kRows = 6, kForOne = 8, kForTwo = 8;

    template <int R, int M, bool Add>
    static void product(const typename F::Weight* weights, Index weight_stride, const typename F::Active* rows,
                        Index row_stride, Index depth, float* out, Index out_stride, bool ahead) {
        using Of = Lanes<F>;
        constexpr Index kLine = 64 / sizeof(typename F::Weight);
        __m512 sums[M][R];
#pragma GCC unroll 6
        for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) sums[m][r] = _mm512_setzero_ps();
        const auto step = [&](Index k, auto whole) __attribute__((always_inline)) {
            const auto read = [](const auto* from) __attribute__((always_inline)) {
                if constexpr (decltype(whole)::value) return Of::load(from);
                return Of::load_rest(from);
            };
            typename Of::Vector wide[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) wide[r] = read(weights + r * weight_stride + k);
#pragma GCC unroll 6
            for (int m = 0; m < M; ++m) {
                const auto row = read(rows + m * row_stride + k);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) sums[m][r] = Of::add(sums[m][r], wide[r], row);
            }
        };
        Index k = 0;
        for (; k + kLine <= depth; k += kLine) {
#pragma GCC unroll 8
            for (int r = 0; r < R && ahead; ++r)
                _mm_prefetch(reinterpret_cast<const char*>(weights + (2 * R + r) * weight_stride + k), _MM_HINT_T0);
            for (Index i = 0; i < kLine; i += Of::kCount) step(k + i, std::true_type());
        }
        for (; k < depth; k += 16) step(k, std::false_type());
#pragma GCC unroll 6
        for (int m = 0; m < M; ++m) {
            float* to = out + m * out_stride;
            if constexpr (R % 4 == 0) {
#pragma GCC unroll 2
                for (int r = 0; r < R; r += 4) {
                    const __m128 sum = totals(sums[m][r], sums[m][r + 1], sums[m][r + 2], sums[m][r + 3]);
                    _mm_storeu_ps(to + r, Add ? _mm_add_ps(_mm_loadu_ps(to + r), sum) : sum);
                }
            } else {
                for (int r = 0; r < R; ++r) {
                    const float sum = _mm_cvtss_f32(totals(sums[m][r], sums[m][r], sums[m][r], sums[m][r]));
                    to[r] = Add ? to[r] + sum : sum;
                }
            }
        }
    }
};

template <>
struct Tiles<Wide512> : WideTiles<Wide512> {};
template <>
struct Tiles<Widened512> : WideTiles<Widened512> {};
template <>
struct Tiles<Paired> : WideTiles<Paired> {};

// Weighted sums of values for Q queries and V times 16 values of the head; the first sum of out[q] is number 2.
template <int Q, int V, class W>
inline void weigh_wide(const float* weights, Index weight_stride, const W* values, Index positions, Index head, Index d,
                       float* const* out) {
    __m512 sums[Q][V];
#pragma GCC unroll 12
    for (int q = 0; q < Q; ++q)
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) sums[q][v] = _mm512_setzero_ps();
    for (Index c = 0; c < positions; ++c) {
        __m512 wide[V];
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) wide[v] = load16(values + c * head + d + 16 * v);
#pragma GCC unroll 12
        for (int q = 0; q < Q; ++q) {
            const __m512 weight = _mm512_set1_ps(weights[q * weight_stride + c]);
#pragma GCC unroll 2
            for (int v = 0; v < V; ++v) sums[q][v] = _mm512_fmadd_ps(weight, wide[v], sums[q][v]);
        }
    }
#pragma GCC unroll 12
    for (int q = 0; q < Q; ++q)
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) _mm512_storeu_ps(out[q] + 2 + d + 16 * v, sums[q][v]);
}

template <int Q, class W>
inline void weigh_heads(const float* weights, Index weight_stride, const W* values, Index positions, Index head,
                        float* const* out) {
    Index d = 0;
    for (; d + 32 <= head; d += 32) weigh_wide<Q, 2>(weights, weight_stride, values, positions, head, d, out);
    if (d < head) weigh_wide<Q, 1>(weights, weight_stride, values, positions, head, d, out);
}

// Weighted sums of values [positions, head] for each of `queries`.
template <class W>
void weigh_all_wide(const float* weights, Index weight_stride, const W* values, Index positions, Index head,
                    float* const* out, Index queries) {
    Index q = 0;
    const auto next = [&](auto count) __attribute__((always_inline)) {
        constexpr int kCount = decltype(count)::value;
        for (; q + kCount <= queries; q += kCount)
            weigh_heads<kCount>(weights + q * weight_stride, weight_stride, values, positions, head, out + q);
    };
    next(std::integral_constant<int, 12>());
    next(std::integral_constant<int, 6>());
    next(std::integral_constant<int, 3>());
    next(std::integral_constant<int, 1>());
}

}  // namespace chatlocal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
