#include "models/serving/make_served_head.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/safetensors_header.hpp"
#include "base/sha256.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

/// Elements that are processed together: 16 MiB in fp32.
constexpr std::int64_t kChunkElements = std::int64_t{4} << 20;

template <class Chunk>
bool for_each_chunk(const Tensor& weight, Chunk chunk) {
    const std::int64_t step = std::max<std::int64_t>(1, kChunkElements / std::max<std::int64_t>(weight.size(1), 1));
    for (std::int64_t row = 0; row < weight.size(0); row += step) {
        if (!chunk(row, std::min(step, weight.size(0) - row))) {
            return false;
        }
    }
    return true;
}

bool fits(const Tensor& weight, torch::ScalarType type) {
    return for_each_chunk(weight, [&](std::int64_t row, std::int64_t count) {
        const Tensor rows = weight.narrow(0, row, count);
        return torch::equal(rows.to(type).to(rows.scalar_type()), rows);
    });
}

torch::ScalarType smallest_type(const Tensor& weight) {
    if (weight.scalar_type() != torch::kFloat) {
        return weight.scalar_type();
    }
    for (const auto type : {torch::kBFloat16, torch::kHalf}) {
        if (fits(weight, type)) {
            return type;
        }
    }
    return torch::kFloat;
}

/// A contiguous CPU tensor of `type`; converts in pieces, so that no third copy of the whole exists.
Tensor host_tensor(const Tensor& weight, torch::ScalarType type) {
    if (weight.is_cpu() && weight.scalar_type() == type) {
        return weight.contiguous();
    }
    Tensor copy = torch::empty(weight.sizes(), torch::TensorOptions().dtype(type));
    for_each_chunk(weight, [&](std::int64_t row, std::int64_t count) {
        copy.narrow(0, row, count).copy_(weight.narrow(0, row, count));
        return true;
    });
    return copy;
}

std::string name_of(torch::ScalarType type) {
    if (type == torch::kFloat) {
        return "F32";
    }
    return type == torch::kBFloat16 ? "BF16" : "F16";
}

}  // namespace

ServedHead make_served_head(const Tensor& weight) {
    const torch::NoGradGuard no_grad;
    const Tensor detached = weight.detach();
    const torch::ScalarType type = smallest_type(detached);
    auto held = std::make_shared<const Tensor>(host_tensor(detached, type));
    ServedHead head;
    head.dtype = name_of(type);
    head.values = {static_cast<const std::byte*>(held->const_data_ptr()), held->nbytes()};
    head.owner = std::move(held);
    SafetensorsHeader header;
    header.metadata["format"] = "pt";
    header.tensors.push_back(
        {"lm_head.weight", find_safetensors_dtype(head.dtype), {weight.size(0), weight.size(1)}, 0, 0});
    head.prefix = write_safetensors_header(header, "the head").value();
    Sha256 hash;
    hash.add(std::as_bytes(std::span(head.prefix)));
    hash.add(head.values);
    head.sha256 = hash.hex();
    return head;
}

}  // namespace distilld::models
