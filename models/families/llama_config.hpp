#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace distilld::models {

/// A config.json larger than this is refused.
inline constexpr std::uint64_t kConfigSizeLimit = std::uint64_t{16} << 20;

/// Llama 3.1's frequency scaling (transformers: rope_type "llama3").
struct Llama3RopeScaling {
    double factor = 8.0;
    double low_freq_factor = 1.0;
    double high_freq_factor = 4.0;
    std::int64_t original_max_position_embeddings = 8192;
};

/// Shape of a Llama network; names, meaning and defaults of transformers' LlamaConfig.
struct LlamaConfig {
    std::int64_t vocab_size = 32000;
    std::int64_t hidden_size = 4096;
    std::int64_t intermediate_size = 11008;
    std::int64_t num_hidden_layers = 32;
    std::int64_t num_attention_heads = 32;
    std::int64_t num_key_value_heads = 32;  ///< absent in JSON: num_attention_heads
    std::int64_t head_dim = 128;            ///< absent in JSON: hidden_size / num_attention_heads
    std::int64_t max_position_embeddings = 2048;
    double rms_norm_eps = 1e-6;
    double rope_theta = 10000.0;
    std::optional<Llama3RopeScaling> rope_scaling;  ///< absent: rope_type "default"
    bool tie_word_embeddings = false;
    bool attention_bias = false;
    bool mlp_bias = false;
    double initializer_range = 0.02;
    std::optional<std::int64_t> bos_token_id = 1;
    std::vector<std::int64_t> eos_token_ids = {2};  ///< JSON: one id, a list, or null
    std::optional<std::int64_t> pad_token_id;
};

/// Reads a config.json object as transformers 4.x (rope_theta, rope_scaling) or 5.x (rope_parameters) writes it, or an
/// object with only some of the fields; absent ones take the defaults above. Fields that do not change the
/// computation are ignored. Refused by name: a model_type other than "llama" (absent is "llama"), hidden_act other than
/// "silu", other rope types, quantized weights, sizes that are not positive, do not divide or are absurdly large.
/// `where` (a file or a spec field) starts every message.
Result<LlamaConfig> parse_llama_config(std::string_view json, std::string_view where);

/// parse_llama_config of `folder`/config.json.
Result<LlamaConfig> read_llama_config(const std::filesystem::path& folder);

/// The fields of `override_json` put over those of `base_json` (either may be empty), as JSON text. A size that
/// depends on another (head_dim, num_key_value_heads) is dropped from the base when the override changes what it
/// depends on (hidden_size, num_attention_heads) without naming it; rope forms of the base give way to any of the
/// override's. `where` starts every message.
Result<std::string> merge_config_json(std::string_view base_json, std::string_view override_json,
                                      std::string_view where = "config");

/// parse_llama_config of merge_config_json.
Result<LlamaConfig> merge_llama_config(std::string_view base_json, std::string_view override_json,
                                       std::string_view where = "config");

/// A config.json that transformers 4.x and 5.x load: both rope forms, both names of the dtype. Unknown fields of
/// `original_json` (may be empty) are kept. `torch_dtype` is "float32", "bfloat16" or "float16".
std::string to_config_json(const LlamaConfig& config, const std::string& original_json, std::string_view torch_dtype);

/// generation_config.json with the ids of `config`.
std::string to_generation_config_json(const LlamaConfig& config);

/// Trainable parameters of a network of this shape (a tied head counts once).
std::uint64_t parameter_count(const LlamaConfig& config);

}  // namespace distilld::models
