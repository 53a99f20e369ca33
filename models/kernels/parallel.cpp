#include "models/kernels/parallel.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#include <algorithm>

namespace distilld::kernels {

void in_parallel(std::int64_t count, std::int64_t grain,
                 const std::function<void(std::int64_t begin, std::int64_t end)>& work) {
    if (count <= grain || at::get_num_threads() == 1) {
        work(0, count);
        return;
    }
    // The iterator hands out parts of a tensor: one byte per item. Nobody reads or writes the bytes.
    const at::Tensor items = at::empty({count}, at::kByte);
    const char* const first = static_cast<const char*>(items.const_data_ptr());
    auto iterator = at::TensorIterator::borrowing_nullary_op(items);
    iterator.for_each(
        [&](char** data, const std::int64_t*, std::int64_t size) {
            const std::int64_t begin = data[0] - first;
            work(begin, begin + size);
        },
        std::max<std::int64_t>(grain, 1));
}

std::int64_t grain_of(std::int64_t elements) {
    return std::max<std::int64_t>(1, at::internal::GRAIN_SIZE / std::max<std::int64_t>(elements, 1));
}

}  // namespace distilld::kernels
