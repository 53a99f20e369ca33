#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>

#include "models/network/causal_lm.hpp"
#include "models/weights/export.hpp"

/// A network small enough to check number by number.
namespace distilld::test {

inline models::ModelConfig small_config(bool tied = false, std::int64_t key_heads = 2) {
    models::ModelConfig config;
    config.family = &models::model_families().front();
    models::DecoderConfig& decoder = config.decoder;
    decoder.vocab_size = 61;
    decoder.hidden_size = 32;
    decoder.intermediate_size = 48;
    decoder.num_hidden_layers = 3;
    decoder.num_attention_heads = 4;
    decoder.num_key_value_heads = key_heads;
    decoder.head_dim = 8;
    decoder.max_position_embeddings = 64;
    decoder.tie_word_embeddings = tied;
    decoder.initializer_range = 0.2;
    return config;
}

inline std::unique_ptr<models::CausalLm> make_network(const models::ModelConfig& config,
                                                      models::ComputeDtype dtype = models::ComputeDtype::fp32,
                                                      std::uint64_t seed = 7) {
    return models::make_causal_lm(config, dtype, torch::kCPU, seed);
}

inline Result<void> save(const models::CausalLm& network, const std::filesystem::path& folder) {
    const auto written = models::write_model_folder(folder, network.model_export());
    return written ? Result<void>() : Result<void>(written.error());
}

/// Token ids [rows, columns] that do not repeat in a short period.
inline torch::Tensor ids(std::int64_t rows, std::int64_t columns, std::int64_t vocabulary = 61) {
    return (torch::arange(rows * columns) * 17 + 3).remainder(vocabulary).reshape({rows, columns});
}

inline bool same_bits(const torch::Tensor& left, const torch::Tensor& right) {
    return left.scalar_type() == right.scalar_type() && torch::equal(left, right);
}

}  // namespace distilld::test
