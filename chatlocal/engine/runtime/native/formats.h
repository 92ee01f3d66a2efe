// How weights and activations are multiplied: the types that they have in memory, and the vectors that meet.
//
// A row of activations is float32 first and then, for the products, put into the form of a format, in the memory that it
// has: rows stay as far apart as they were.
#pragma once

#include <algorithm>

#include "vectors.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace chatlocal {

// float32 weights.
struct Wide {
    using Weight = float;
    using Active = float;
    static constexpr bool kAvx512 = false;
    static void arrange(const float* from, Index size, float* to) {
        if (from != to) std::copy(from, from + size, to);
    }
};

// bfloat16 weights, which are widened in registers.
struct Widened {
    using Weight = bfloat16;
    using Active = float;
    static constexpr bool kAvx512 = false;
    static void arrange(const float* from, Index size, float* to) { halve(from, size, to); }
};

// The same two in vectors of sixteen numbers. Widening keeps their order there.
struct Wide512 : Wide {
    static constexpr bool kAvx512 = true;
};
struct Widened512 {
    using Weight = bfloat16;
    using Active = float;
    static constexpr bool kAvx512 = true;
    static void arrange(const float* from, Index size, float* to) { Wide::arrange(from, size, to); }
};

// bfloat16 weights and activations, multiplied in pairs: activations are rounded as the model itself rounds them.
struct Paired {
    using Weight = bfloat16;
    using Active = bfloat16;
    static constexpr bool kAvx512 = true;
    static void arrange(const float* from, Index size, bfloat16* to) {
        // A store never reaches what is not loaded yet, so the memory may be the same.
        for (Index i = 0; i < size; i += kLanes) store(to + i, load(from + i));
    }
};

// From one row of activations to the next one, for rows of `size` numbers.
template <class F>
constexpr Index active_stride(Index size) {
    return size * static_cast<Index>(sizeof(float) / sizeof(typename F::Active));
}

template <class F>
typename F::Active* active(float* row) {
    return reinterpret_cast<typename F::Active*>(row);
}

}  // namespace chatlocal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
