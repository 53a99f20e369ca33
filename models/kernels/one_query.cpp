#include "models/kernels/one_query.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "models/kernels/element_types.hpp"
#include "models/kernels/instructions.hpp"
#include "models/kernels/numbers.hpp"
#include "models/kernels/parallel.hpp"

namespace distilld::kernels {
namespace {

using torch::Tensor;

template <typename T>
struct HeadsOfSequence {
    const T* keys;
    const T* values;
    std::int64_t key_stride;  ///< between heads
    std::int64_t value_stride;
    std::int64_t positions;
};

template <typename T>
struct OneQuery {
    const T* query;
    const HeadsOfSequence<T>* sequences;
    T* out;
    std::int64_t heads;
    std::int64_t queries_per_key;
    std::int64_t size;
    Wide<T> scale;

    /// Items are heads of sequences. `sums` has room for D numbers, `weights` for the positions.
    DISTILLD_INLINE static void run(const OneQuery* all, std::int64_t begin, std::int64_t end, Wide<T>* sums,
                                    Wide<T>* weights) {
        const OneQuery work = *all;
        const std::int64_t size = work.size;
        for (std::int64_t item = begin; item < end; ++item) {
            const HeadsOfSequence<T> sequence = work.sequences[item / work.heads];
            const std::int64_t head = item % work.heads / work.queries_per_key;
            const T* query = work.query + item * size;
            const T* keys = sequence.keys + head * sequence.key_stride;
            const T* values = sequence.values + head * sequence.value_stride;
            for (std::int64_t position = 0; position < sequence.positions; ++position) {
                const T* key = keys + position * size;
                const auto product = [&](std::int64_t i) { return widened(query[i]) * widened(key[i]); };
                weights[position] = lane_sum<Wide<T>>(size, product) * work.scale;
            }
            const Wide<T> most = array_maximum(weights, sequence.positions);
            for (std::int64_t position = 0; position < sequence.positions; ++position) {
                weights[position] = exponential(weights[position] - most);
            }
            const Wide<T> whole = array_sum(weights, sequence.positions);
            std::fill_n(sums, size, Wide<T>(0));
            for (std::int64_t position = 0; position < sequence.positions; ++position) {
                const T* value = values + position * size;
                for (std::int64_t i = 0; i < size; ++i) {
                    sums[i] += weights[position] * widened(value[i]);
                }
            }
            T* out = work.out + item * size;
            for (std::int64_t i = 0; i < size; ++i) {
                out[i] = narrowed<T>(sums[i] / whole);
            }
        }
    }
};

/// What `heads` [heads, n, D] points to.
template <typename T>
const T* head_elements(const Tensor& heads, std::int64_t size) {
    TORCH_CHECK(heads.is_cpu() && heads.scalar_type() == c10::CppTypeToScalarType<T>::value && heads.size(2) == size &&
                    heads.stride(2) == 1 && heads.stride(1) == size,
                "attention needs positions in rows on the CPU, in the query's element type");
    return static_cast<const T*>(heads.const_data_ptr());
}

}  // namespace

Tensor one_query_attention(const Tensor& query, const std::vector<SeenPositions>& sequences, double scale) {
    const std::int64_t heads = query.size(1);
    const std::int64_t size = query.size(2);
    TORCH_CHECK(query.size(0) == static_cast<std::int64_t>(sequences.size()), "one query per sequence is needed");
    const Tensor queries = query.contiguous();
    Tensor out = torch::empty({query.size(0), heads * size}, query.options());
    with_element_type(query.scalar_type(), [&]<typename T>() {
        std::vector<HeadsOfSequence<T>> all;
        std::int64_t longest = 0;
        for (const auto& [keys, values] : sequences) {
            all.push_back({head_elements<T>(keys, size), head_elements<T>(values, size), keys.stride(0),
                           values.stride(0), keys.size(1)});
            longest = std::max(longest, keys.size(1));
        }
        const OneQuery<T> work{elements<T>(queries),
                               all.data(),
                               mutable_elements<T>(out),
                               heads,
                               heads / sequences.front().keys.size(0),
                               size,
                               static_cast<Wide<T>>(scale)};
        in_parallel(query.size(0) * heads, grain_of(longest * size), [&](std::int64_t begin, std::int64_t end) {
            std::vector<Wide<T>> sums(static_cast<std::size_t>(size));
            std::vector<Wide<T>> weights(static_cast<std::size_t>(longest));
            run_widest<OneQuery<T>>(&work, begin, end, sums.data(), weights.data());
        });
    });
    return out;
}

}  // namespace distilld::kernels
