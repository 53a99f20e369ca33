#pragma once

#include <array>
#include <boost/json/fwd.hpp>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json_members.hpp"
#include "models/families/decoder_config.hpp"

namespace distilld::models {

/// What Hugging Face files of a family call the parts of a decoder. ".weight" and ".bias" come after.
struct DecoderNames {
    const char* embedding;
    const char* layers;  ///< followed by ".<index>." and one of the next nine
    const char* input_norm;
    const char* query;  ///< of a family that fuses the three: their one projection
    const char* key;    ///< nullptr: fused
    const char* value;
    const char* output;
    const char* post_attention_norm;
    const char* gate;  ///< nullptr: the family has none
    const char* up;
    const char* down;
    const char* final_norm;
    const char* head;
    /// Of tensors that old versions saved although they follow from the configuration. Empty: none.
    std::array<std::string_view, 2> ignored_suffixes;
    const char* query_norm = nullptr;  ///< in a layer, where the family has them
    const char* key_norm = nullptr;
    const char* positions = nullptr;   ///< a table of learned ones
    const char* optional_prefix = "";  ///< of all names but the head's; files may be without it
};

/// One row of the table of families: a description, never a network of its own.
struct ModelFamily {
    std::string_view model_type;  ///< as config.json names it
    /// Reads config.json, whose model_type is this one's, over the defaults; errors are kept in `config`.
    void (*parse)(JsonMembers& config, DecoderConfig& decoder);
    /// Puts the description into config.json, architectures included; model_type and dtype are the caller's.
    void (*write)(const DecoderConfig& decoder, boost::json::object& config);
    DecoderNames names;
    /// What `parse` reads beside the fields of decoder_fields.hpp. Other fields are judged by field_review.hpp.
    std::span<const std::string_view> fields{};
};

/// The families that there are. The first is taken for a config.json without a model_type.
[[nodiscard]] std::span<const ModelFamily> model_families() noexcept;

/// A config.json, read.
struct ModelConfig {
    const ModelFamily* family = nullptr;  ///< a row of the table; outlives this
    DecoderConfig decoder;
    std::string source_json;             ///< the text it was read from: fields we do not know survive in an export
    std::string source_generation_json;  ///< generation_config.json beside it; empty: there is none
    std::vector<std::string> warnings;   ///< what in it was passed over; one line each
};

/// A config.json larger than this is refused.
inline constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;

/// Reads a config.json object. A model_type that is not in `families` is refused by name, and so is what the family
/// does not support, fields of other families included that change what is computed (field_review.hpp). `place` (a
/// file, or a spec field's pointer) starts every message.
Result<ModelConfig> parse_model_config(std::string_view json, const JsonPlace& place,
                                       std::span<const ModelFamily> families = model_families());

/// parse_model_config of `folder`/config.json, with the generation_config.json beside it.
Result<ModelConfig> read_model_config(const std::filesystem::path& folder,
                                      std::span<const ModelFamily> families = model_families());

/// `folder`/generation_config.json as it is; empty when there is none.
Result<std::string> read_generation_config(const std::filesystem::path& folder);

}  // namespace distilld::models
