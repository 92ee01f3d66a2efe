// Vectors of eight float32 numbers, and how weights become such vectors.
#pragma once

#include <immintrin.h>

#include <cstdint>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace chatlocal {
using Index = int64_t;

constexpr Index kLanes = 8;

struct bfloat16 {
    uint16_t bits;
};

inline __m256 load(const float* from) { return _mm256_loadu_ps(from); }

inline __m256 load(const bfloat16* from) {
    const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
}

// Sixteen neighbours in two halves, as `halve` orders the activations that they are multiplied with. In bfloat16 these
// are the even and the odd ones: each is the upper half of a float32 already, and only the other half has to go.
constexpr Index kStep = 2 * kLanes;

inline __m256 load_half(const float* from, Index half) { return load(from + half); }

inline __m256 load_half(const bfloat16* from, Index half) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm256_castsi256_ps(half ? _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000)))
                                    : _mm256_slli_epi32(pairs, 16));
}

inline void store(float* to, __m256 values) { _mm256_storeu_ps(to, values); }

// To the nearest, ties to even; a number that is none stays none.
inline void store(bfloat16* to, __m256 values) {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i none = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    const __m256i wide = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), none), 16);
    const __m128i narrow = _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), narrow);
}

// Puts a row of float32 activations into the order in which bfloat16 weights are widened; `to` may be `from`.
inline void halve(const float* from, Index size, float* to) {
    for (Index i = 0; i < size; i += kStep) {
        const __m256 low = load(from + i), high = load(from + i + kLanes);
        const __m256 even = _mm256_shuffle_ps(low, high, 0x88), odd = _mm256_shuffle_ps(low, high, 0xDD);
        store(to + i, _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xD8)));
        store(to + i + kLanes, _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odd), 0xD8)));
    }
}

inline float total(__m256 lanes) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
    const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}

// e^x for x <= 88; below -87 it is 0. x = n ln 2 + r, and a polynomial for e^r (coefficients of the Cephes library's
// expf, relative error below 2e-7).
inline __m256 exponential(__m256 x) {
    const __m256 small = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_LT_OQ);
    const __m256 none = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    const __m256 bounded = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-87.0f)), _mm256_set1_ps(88.0f));
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(bounded, _mm256_set1_ps(1.44269504088896341f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), bounded);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    const __m256 result = _mm256_andnot_ps(small, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
    return _mm256_blendv_ps(result, x, none);
}

// The same arithmetic for one number, so that it does not matter which of the two is used.
inline float exponential(float x) { return _mm256_cvtss_f32(exponential(_mm256_set1_ps(x))); }

// The totals of eight vectors at once, each summed in the order of `total`.
inline __m256 totals(const __m256* lanes) {
    __m256 pairs[4], quads[2];
    for (int i = 0; i < 4; ++i) {
        const __m256 a = lanes[2 * i], b = lanes[2 * i + 1];
        pairs[i] = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    }
    for (int i = 0; i < 2; ++i)
        quads[i] = _mm256_add_ps(_mm256_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], 0x44),
                                 _mm256_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], 0xEE));
    const __m256 sums = _mm256_add_ps(_mm256_shuffle_ps(quads[0], quads[1], 0x88),
                                      _mm256_shuffle_ps(quads[0], quads[1], 0xDD));
    return _mm256_permutevar8x32_ps(sums, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

}  // namespace chatlocal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
