#include "models/network/document_groups.hpp"

namespace distilld::models {

torch::Tensor numbers_in(const DocumentGroups& documents, const torch::Device& device) {
    const auto options = torch::TensorOptions().dtype(torch::kInt64).device(device);
    std::vector<torch::Tensor> parts;
    parts.reserve(documents.size());
    for (const DocumentGroup& group : documents) {
        parts.push_back(torch::arange(group.length, options).repeat({group.count}));
    }
    return torch::cat(parts);
}

}  // namespace distilld::models
