#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>

#include "base/json_members.hpp"
#include "models/families/decoder_config.hpp"

/// What the config.json files of the families have in common. Readers keep the first error in `config`.
namespace distilld::models {

inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;  ///< of one dimension
inline constexpr std::int64_t kMaxLayers = 4096;
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 30;

/// Sizes that a family has when config.json does not name them; nothing: they follow from others.
struct AbsentSizes {
    std::optional<std::int64_t> num_key_value_heads;
    std::optional<std::int64_t> head_dim;
};

/// Sizes, initializer_range, tie_word_embeddings and token ids. Refused: quantized weights, sizes that are not
/// positive, do not divide or are absurdly large.
void read_decoder_fields(JsonMembers& config, DecoderConfig& decoder, const AbsentSizes& absent = {});
void write_decoder_fields(const DecoderConfig& decoder, boost::json::object& config);

/// The part of the two that does not depend on what a family calls its sizes: vocab_size, initializer_range,
/// tie_word_embeddings, token ids; quantized weights are refused.
void read_common_fields(JsonMembers& config, DecoderConfig& decoder);
void write_common_fields(const DecoderConfig& decoder, boost::json::object& config);

/// Refuses sizes that make no network together.
void check_shape(JsonMembers& config, const DecoderConfig& decoder);

/// JSON: null, one id or a list.
[[nodiscard]] boost::json::value eos_value(const DecoderConfig& decoder);

}  // namespace distilld::models
