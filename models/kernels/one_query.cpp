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
    T* keys;  ///< of the first position that is seen
    T* values;
    std::int64_t key_stride;  ///< between heads
    std::int64_t value_stride;
    std::int64_t before;  ///< positions that are seen before the query's own
};

/// [N, heads, D], heads in rows of D.
template <typename T>
struct HeadsOfRows {
    const T* first;
    std::int64_t stride;  ///< between rows
};

template <typename T>
struct OneQuery {
    HeadsOfRows<T> query;
    HeadsOfRows<T> key;
    HeadsOfRows<T> value;
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
            const std::int64_t row = item / work.heads;
            const HeadsOfSequence<T> sequence = work.sequences[row];
            const std::int64_t positions = sequence.before + 1;
            const std::int64_t head = item % work.heads / work.queries_per_key;
            const T* query = work.query.first + row * work.query.stride + item % work.heads * size;
            const T* own_key = work.key.first + row * work.key.stride + head * size;
            const T* own_value = work.value.first + row * work.value.stride + head * size;
            T* keys = sequence.keys + head * sequence.key_stride;
            T* values = sequence.values + head * sequence.value_stride;
            // Other items read what is before, at most.
            if (item % work.queries_per_key == 0) {
                std::copy_n(own_key, size, keys + sequence.before * size);
                std::copy_n(own_value, size, values + sequence.before * size);
            }
            for (std::int64_t position = 0; position < positions; ++position) {
                const T* key = position < sequence.before ? keys + position * size : own_key;
                const auto product = [&](std::int64_t i) { return widened(query[i]) * widened(key[i]); };
                weights[position] = lane_sum<Wide<T>>(size, product) * work.scale;
            }
            const Wide<T> most = array_maximum(weights, positions);
            for (std::int64_t position = 0; position < positions; ++position) {
                weights[position] = exponential(weights[position] - most);
            }
            const Wide<T> whole = array_sum(weights, positions);
            std::fill_n(sums, size, Wide<T>(0));
            for (std::int64_t position = 0; position < positions; ++position) {
                const T* value = position < sequence.before ? values + position * size : own_value;
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

template <typename T>
void check_heads(const Tensor& heads, std::int64_t size) {
    TORCH_CHECK(heads.is_cpu() && heads.scalar_type() == c10::CppTypeToScalarType<T>::value && heads.size(2) == size &&
                    heads.stride(2) == 1 && heads.stride(1) == size,
                "attention needs heads or positions in rows on the CPU, in the query's element type");
}

template <typename T>
HeadsOfRows<T> of_rows(const Tensor& heads, std::int64_t size) {
    check_heads<T>(heads, size);
    return {static_cast<const T*>(heads.const_data_ptr()), heads.stride(0)};
}

template <typename T>
HeadsOfSequence<T> of_sequence(const SeenPositions& seen, std::int64_t size) {
    for (const Tensor* held : {&seen.keys, &seen.values}) {
        check_heads<T>(*held, size);
        TORCH_CHECK(seen.begin >= 0 && seen.begin <= seen.length && seen.length < held->size(1),
                    "attention needs room for the query's position");
    }
    return {static_cast<T*>(seen.keys.mutable_data_ptr()) + seen.begin * size,
            static_cast<T*>(seen.values.mutable_data_ptr()) + seen.begin * size, seen.keys.stride(0),
            seen.values.stride(0), seen.length - seen.begin};
}

}  // namespace

Tensor one_query_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                           const std::vector<SeenPositions>& sequences, double scale) {
    const std::int64_t heads = query.size(1);
    const std::int64_t size = query.size(2);
    const auto rows = static_cast<std::int64_t>(sequences.size());
    TORCH_CHECK(query.size(0) == rows && key.size(0) == rows && value.size(0) == rows,
                "one query, key and value per sequence are needed");
    Tensor out = torch::empty({rows, heads * size}, query.options());
    with_element_type(query.scalar_type(), [&]<typename T>() {
        std::vector<HeadsOfSequence<T>> all;
        std::int64_t longest = 0;
        for (const SeenPositions& seen : sequences) {
            all.push_back(of_sequence<T>(seen, size));
            longest = std::max(longest, all.back().before + 1);
        }
        const OneQuery<T> work{of_rows<T>(query, size),    of_rows<T>(key, size),
                               of_rows<T>(value, size),    all.data(),
                               mutable_elements<T>(out),   heads,
                               heads / key.size(1),        size,
                               static_cast<Wide<T>>(scale)};
        in_parallel(rows * heads, grain_of(longest * size), [&](std::int64_t begin, std::int64_t end) {
            std::vector<Wide<T>> sums(static_cast<std::size_t>(size));
            std::vector<Wide<T>> weights(static_cast<std::size_t>(longest));
            run_widest<OneQuery<T>>(&work, begin, end, sums.data(), weights.data());
        });
    });
    return out;
}

}  // namespace distilld::kernels
