#pragma once

#include <torch/types.h>

namespace distilld::kernels {

/// Calls `work.template operator()<T>()` with the element type of `type`: fp32, bf16 or fp64.
template <typename Work>
void with_element_type(torch::ScalarType type, const Work& work) {
    switch (type) {
        case torch::kFloat:
            return work.template operator()<float>();
        case torch::kBFloat16:
            return work.template operator()<c10::BFloat16>();
        case torch::kDouble:
            return work.template operator()<double>();
        default:
            TORCH_CHECK(false, "the kernels take fp32, bf16 and fp64, not ", type);
    }
}

/// The dtype that kernels compute in for elements of `type`.
[[nodiscard]] inline torch::ScalarType wide_type(torch::ScalarType type) {
    return type == torch::kDouble ? torch::kDouble : torch::kFloat;
}

/// The elements of a contiguous tensor of this type on the CPU; nullptr if it is undefined.
template <typename T>
[[nodiscard]] const T* elements(const torch::Tensor& tensor) {
    if (!tensor.defined()) {
        return nullptr;
    }
    TORCH_CHECK(tensor.is_contiguous() && tensor.device().is_cpu() &&
                    tensor.scalar_type() == c10::CppTypeToScalarType<T>::value,
                "a kernel needs a contiguous tensor on the CPU, of its element type");
    return static_cast<const T*>(tensor.const_data_ptr());
}

/// The same to write to; the tensor is defined.
template <typename T>
[[nodiscard]] T* mutable_elements(torch::Tensor& tensor) {
    TORCH_CHECK(tensor.is_contiguous() && tensor.device().is_cpu(), "a kernel needs a contiguous tensor on the CPU");
    return tensor.mutable_data_ptr<T>();
}

}  // namespace distilld::kernels
