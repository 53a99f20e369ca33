#include "models/training/teacher_head_tensor.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace distilld::models {
namespace {

using torch::Tensor;

/// Elements that are converted together: 32 MiB in fp32.
constexpr std::int64_t kChunkElements = std::int64_t{8} << 20;

torch::ScalarType held_type(ElementType type, ComputeDtype student) {
    if (student == ComputeDtype::fp64) {
        return torch::kDouble;
    }
    return student == ComputeDtype::bf16 && type == ElementType::bf16 ? torch::kBFloat16 : torch::kFloat;
}

}  // namespace

Tensor teacher_head_tensor(const TeacherHead& head, ComputeDtype student, const torch::Device& device) {
    const torch::NoGradGuard no_grad;
    const std::int64_t rows = head.rows;
    const std::int64_t columns = head.columns;
    const std::size_t row_bytes = head.columns * element_size(head.values.type);
    Tensor all = torch::empty({rows, columns},
                              torch::TensorOptions().dtype(held_type(head.values.type, student)).device(device));
    const std::int64_t step = std::max<std::int64_t>(1, kChunkElements / columns);
    for (std::int64_t row = 0; row < rows; row += step) {
        const std::int64_t count = std::min(step, rows - row);
        // The bytes may be unaligned.
        Tensor piece = torch::empty({count, columns}, float_type(head.values.type));
        std::memcpy(piece.mutable_data_ptr(), head.values.bytes.data() + static_cast<std::size_t>(row) * row_bytes,
                    static_cast<std::size_t>(count) * row_bytes);
        all.narrow(0, row, count).copy_(piece);
    }
    return all;
}

}  // namespace distilld::models
