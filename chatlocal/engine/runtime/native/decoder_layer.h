// A whole decoder layer: attention and gated feed-forward network, each behind a norm and added to what came in.
#pragma once

#include "attention.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

namespace chatlocal {

constexpr Index kRows = 64;  // activation rows between two looks at the same block, where results are kept aside
constexpr Index kShare = 4;  // pieces of work for each thread, so that none waits long for the last

// Root mean square normalisation of one row; `to` may be `from`.
void normalise(const float* from, const float* weight, Index size, float epsilon, float* to) {
    __m256 squares = _mm256_setzero_ps();
    for (Index i = 0; i < size; i += kLanes) squares = _mm256_fmadd_ps(load(from + i), load(from + i), squares);
    const __m256 factor = _mm256_set1_ps(1.0f / std::sqrt(total(squares) / static_cast<float>(size) + epsilon));
    for (Index i = 0; i < size; i += kLanes)
        store(to + i, _mm256_mul_ps(_mm256_mul_ps(load(from + i), factor), load(weight + i)));
}

// Rotary positions on the first `rotary` values of a head: pairs are half of that apart.
void rotate(float* head, const float* cosines, const float* sines, Index rotary) {
    const Index half = rotary / 2;
    for (Index i = 0; i < half; ++i) {
        const float low = head[i], high = head[i + half];
        head[i] = low * cosines[i] - high * sines[i];
        head[i + half] = high * cosines[i + half] + low * sines[i + half];
    }
}

// One layer at work on the tokens of one forward. `hidden` [tokens, layer.hidden] is changed in place.
template <class F>
class LayerPass {
  public:
    LayerPass(const Layer& layer, const Place& place, float* hidden, float* scratch, int threads)
        : layer_(layer),
          place_(place),
          tokens_(place.tokens),
          query_size_(layer.heads * layer.head),
          key_size_(layer.key_heads * layer.head),
          hidden_(hidden),
          normed_(scratch),
          queries_(normed_ + tokens_ * layer.hidden),
          keys_(queries_ + tokens_ * query_size_),
          values_(keys_ + tokens_ * key_size_),
          attended_(values_ + tokens_ * key_size_),
          inner_(attended_ + tokens_ * query_size_),
          parts_(inner_ + tokens_ * layer.inner),
          threads_(threads),
          tiles_(tiles_of(place, layer.heads / layer.key_heads)) {}

    // Floats of `scratch`; `longest` is the largest column of the forward.
    static Index scratch_size(const Layer& layer, Index tokens, Index longest, int threads) {
        const Index projected = (2 * layer.heads + 2 * layer.key_heads) * layer.head;
        const Index parted = std::min<Index>(tokens * layer.heads, kShare * threads * kQueries) * chunks(longest);
        return tokens * (layer.hidden + projected + layer.inner) + parted * partial_size(layer);
    }

    void run() {
        share(tokens_, [&](Index token) { norm(token, layer_.input_norm); });
        share(blocks(query_size_) + 2 * blocks(key_size_), [&](Index block) { project(block); });
        share(tokens_, [&](Index token) { place_token(token); });
        attend_all();
        share(blocks(layer_.hidden), [&](Index block) {
            linear_block<F, true>(layer_.output, block, layer_.hidden, query_size_, active<F>(attended_), tokens_,
                                  hidden_ + block * kBlock, layer_.hidden);
        });
        share(tokens_, [&](Index token) { norm(token, layer_.inner_norm); });
        share(blocks(layer_.inner), [&](Index block) { gate(block); });
        share(blocks(layer_.hidden), [&](Index block) {
            linear_block<F, true>(layer_.down, block, layer_.hidden, layer_.inner, active<F>(inner_), tokens_,
                                  hidden_ + block * kBlock, layer_.hidden);
        });
    }

  private:
    template <class Work>
    void share(Index count, const Work& work) {
        Crew::here().share(count, threads_, work);
    }

    void norm(Index token, const float* weight) {
        float* to = normed_ + token * layer_.hidden;
        normalise(hidden_ + token * layer_.hidden, weight, layer_.hidden, layer_.epsilon, to);
        F::arrange(to, layer_.hidden, active<F>(to));
    }

    // A block of queries, else of keys, else of values.
    void project(Index block) {
        const Index query_blocks = blocks(query_size_), key_blocks = blocks(key_size_);
        if (block < query_blocks) {
            linear_block<F, false>(layer_.query, block, query_size_, layer_.hidden, active<F>(normed_), tokens_,
                                   queries_ + block * kBlock, query_size_);
            return;
        }
        const bool is_key = block < query_blocks + key_blocks;
        const Index own = block - query_blocks - (is_key ? 0 : key_blocks);
        linear_block<F, false>(is_key ? layer_.key : layer_.value, own, key_size_, layer_.hidden, active<F>(normed_), tokens_,
                               (is_key ? keys_ : values_) + own * kBlock, key_size_);
    }

    // Gives queries and keys their position, and puts keys and values into the cache.
    void place_token(Index token) {
        const Index head = layer_.head;
        const float* cosines = place_.cosines + token * place_.rotary;
        const float* sines = place_.sines + token * place_.rotary;
        const __m256 scale = _mm256_set1_ps(layer_.scale);
        for (Index h = 0; h < layer_.heads; ++h) {
            float* query = queries_ + token * query_size_ + h * head;
            if (layer_.query_norm) normalise(query, layer_.query_norm, head, layer_.epsilon, query);
            rotate(query, cosines, sines, place_.rotary);
            for (Index i = 0; i < head; i += kLanes) store(query + i, _mm256_mul_ps(load(query + i), scale));
            F::arrange(query, head, active<F>(query));
        }
        for (Index h = 0; h < layer_.key_heads; ++h) {
            float* key = keys_ + token * key_size_ + h * head;
            const float* value = values_ + token * key_size_ + h * head;
            if (layer_.key_norm) normalise(key, layer_.key_norm, head, layer_.epsilon, key);
            rotate(key, cosines, sines, place_.rotary);
            const Index to = place_.rows[token] * place_.row_stride + h * place_.head_stride + place_.columns[token] * head;
            for (Index i = 0; i < head; i += kLanes) {
                store(static_cast<typename F::Weight*>(place_.keys) + to + i, load(key + i));
                store(static_cast<typename F::Weight*>(place_.values) + to + i, load(value + i));
            }
        }
    }

    void attend_all() {
        const Index tiles = static_cast<Index>(tiles_.size());
        const Index longest = chunks(*std::max_element(place_.columns, place_.columns + tokens_));
        if (longest == 1 || tiles * layer_.key_heads >= kShare * threads_) {
            share(tiles * layer_.key_heads, [&](Index item) {
                attend_tile(tiles_[item / layer_.key_heads], item % layer_.key_heads);
            });
            return;
        }
        // Few tiles and a long context: its chunks are shared out, and joined afterwards.
        share(tiles * layer_.key_heads * longest, [&](Index item) {
            const Tile& tile = tiles_[item / longest / layer_.key_heads];
            attend_part(tile, item / longest % layer_.key_heads, item % longest, longest);
        });
        share(tokens_ * layer_.heads, [&](Index row) {
            float* sum = parts_ + row * longest * partial_size(layer_);
            for (Index chunk = 1; chunk < chunks(place_.columns[row / layer_.heads]); ++chunk)
                merge(sum, sum + chunk * partial_size(layer_), layer_.head);
            finish(sum, row);
        });
    }

    void attend_tile(const Tile& tile, Index key_head) {
        float weights[kQueries * kChunk], own[2][kQueries * (kMaxHead + 2)];
        float* partials[2][kQueries];
        const Index queries = tile.count * (layer_.heads / layer_.key_heads);
        for (Index q = 0; q < queries; ++q)
            for (Index side = 0; side < 2; ++side) partials[side][q] = own[side] + q * partial_size(layer_);
        attend<F>(layer_, place_, tile, key_head, 0, queries_, partials[0], weights);
        for (Index chunk = 1; chunk < chunks(last_column(tile)); ++chunk) {
            attend<F>(layer_, place_, tile, key_head, chunk, queries_, partials[1], weights);
            for (Index q = 0; q < queries; ++q) {
                const Index row = query_row(layer_, tile, key_head, q);
                if (chunk < chunks(place_.columns[row / layer_.heads])) merge(partials[0][q], partials[1][q], layer_.head);
            }
        }
        for (Index q = 0; q < queries; ++q) finish(partials[0][q], query_row(layer_, tile, key_head, q));
    }

    void attend_part(const Tile& tile, Index key_head, Index chunk, Index longest) {
        if (chunk >= chunks(last_column(tile))) return;
        float weights[kQueries * kChunk];
        float* partials[kQueries];
        for (Index q = 0; q < tile.count * (layer_.heads / layer_.key_heads); ++q)
            partials[q] = parts_ + (query_row(layer_, tile, key_head, q) * longest + chunk) * partial_size(layer_);
        attend<F>(layer_, place_, tile, key_head, chunk, queries_, partials, weights);
    }

    Index last_column(const Tile& tile) const { return place_.columns[tile.first + tile.count - 1]; }

    // The result of a query, from its partial result over all it sees.
    void finish(const float* partial, Index row) {
        float result[kMaxHead];
        const __m256 share = _mm256_set1_ps(1.0f / partial[1]);
        for (Index i = 0; i < layer_.head; i += kLanes) store(result + i, _mm256_mul_ps(load(partial + 2 + i), share));
        const Index token = row / layer_.heads, head = row % layer_.heads;
        F::arrange(result, layer_.head, active<F>(attended_ + token * query_size_) + head * layer_.head);
    }

    // A block of the feed-forward network's inner values: silu(gate) * up.
    void gate(Index block) {
        float gated[kRows * kBlock], raised[kRows * kBlock];
        const Index count = block_rows(block, layer_.inner);
        const __m256 one = _mm256_set1_ps(1.0f);
        for (Index m = 0; m < tokens_; m += kRows) {
            const Index rows = std::min(kRows, tokens_ - m);
            const auto* normed = active<F>(normed_ + m * layer_.hidden);
            linear_block<F, false>(layer_.gate, block, layer_.inner, layer_.hidden, normed, rows, gated, kBlock);
            linear_block<F, false>(layer_.up, block, layer_.inner, layer_.hidden, normed, rows, raised, kBlock);
            for (Index row = 0; row < rows; ++row) {
                float* to = gated + row * kBlock;
                for (Index i = 0; i < count; i += kLanes) {
                    const __m256 gate = load(to + i);
                    const __m256 weight = exponential(_mm256_sub_ps(_mm256_setzero_ps(), gate));
                    const __m256 soft = _mm256_div_ps(gate, _mm256_add_ps(one, weight));
                    store(to + i, _mm256_mul_ps(soft, load(raised + row * kBlock + i)));
                }
                F::arrange(to, count, active<F>(inner_ + (m + row) * layer_.inner) + block * kBlock);
            }
        }
    }

    const Layer& layer_;
    const Place& place_;
    const Index tokens_, query_size_, key_size_;
    float *const hidden_, *const normed_, *const queries_, *const keys_, *const values_, *const attended_,
        *const inner_, *const parts_;
    const int threads_;
    const std::vector<Tile> tiles_;
};

}  // namespace chatlocal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
