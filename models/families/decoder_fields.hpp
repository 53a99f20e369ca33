#pragma once

#include <boost/json/fwd.hpp>
#include <cstdint>
#include <optional>

#include "base/json_members.hpp"
#include "models/families/decoder_config.hpp"

/// Fields that the families' config.json files share. Readers keep the first error in `config`.
namespace distilld::models {

inline constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;  ///< for one dimension
inline constexpr std::int64_t kMaxLayers = 4096;
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 30;

/// Default sizes of a family; nullopt: they follow from other sizes.
struct AbsentSizes {
    std::optional<std::int64_t> num_key_value_heads;
    std::optional<std::int64_t> head_dim;
};

/// Sizes, initializer_range, tie_word_embeddings and token ids. Refuses quantized weights, and sizes that are not
/// positive, do not divide or are far too large.
void read_decoder_fields(JsonMembers& config, DecoderConfig& decoder, const AbsentSizes& absent = {});
void write_decoder_fields(const DecoderConfig& decoder, boost::json::object& config);

/// The fields with the same name in every family: vocab_size, initializer_range, tie_word_embeddings, token ids.
/// Refuses quantized weights.
void read_common_fields(JsonMembers& config, DecoderConfig& decoder);
void write_common_fields(const DecoderConfig& decoder, boost::json::object& config);

/// Refuses inconsistent sizes.
void check_shape(JsonMembers& config, const DecoderConfig& decoder);

/// JSON: null, one id or a list.
[[nodiscard]] boost::json::value eos_value(const DecoderConfig& decoder);

}  // namespace distilld::models
