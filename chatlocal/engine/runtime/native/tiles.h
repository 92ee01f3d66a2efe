// A few weight rows times a few activation rows, in vectors of eight numbers (AVX2).
#pragma once

#include "formats.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace chatlocal {

// kWeights x kRows is the shape of a tile where there are many activation rows: 12 sums, which keep the multipliers busy,
// and what is multiplied fill the registers. Widening takes one register more, and pays more the more rows share it.
// kForOne and kForTwo are the weight rows of a tile for one and for two rows.
template <class F>
struct Tiles {
    static constexpr bool kWidens = sizeof(typename F::Weight) == 2;
    static constexpr int kWeights = kWidens ? 2 : 3, kRows = kWidens ? 6 : 4, kForOne = 8, kForTwo = 6;

    // out[m][r] = sum over the depth of weights[r] * rows[m], for R weight rows and M activation rows. `ahead` fetches
    // the weight rows of the tile after the next one.
    template <int R, int M, bool Add>
    static void product(const typename F::Weight* weights, Index weight_stride, const typename F::Active* rows,
                        Index row_stride, Index depth, float* out, Index out_stride, bool ahead);
};

template <class F>
template <int R, int M, bool Add>
inline void Tiles<F>::product(const typename F::Weight* weights, Index weight_stride, const typename F::Active* rows,
                              Index row_stride, Index depth, float* out, Index out_stride, bool ahead) {
    constexpr Index kLine = 64 / sizeof(typename F::Weight);  // weights in a line of the cache
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

}  // namespace chatlocal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
