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

/// A family's names for the parts of a decoder in Hugging Face files, without ".weight" and ".bias".
struct DecoderNames {
    const char* embedding;
    const char* layers;  ///< followed by ".<index>." and one of the next nine
    const char* input_norm;
    const char* query;  ///< if the family fuses the three: the fused projection
    const char* key;    ///< nullptr: fused
    const char* value;
    const char* output;
    const char* post_attention_norm;
    const char* gate;  ///< nullptr: the family has none
    const char* up;
    const char* down;
    const char* final_norm;
    const char* head;
    /// Redundant tensors in old files. Empty: none.
    std::array<std::string_view, 2> ignored_suffixes;
    const char* query_norm = nullptr;  ///< in a layer, if the family has these norms
    const char* key_norm = nullptr;
    const char* positions = nullptr;   ///< the table of learned positions, if the family has one
    const char* optional_prefix = "";  ///< prefix of all names except the head's; files may leave it out
};

/// One row of the table of families: a description, never a network implementation.
struct ModelFamily {
    std::string_view model_type;  ///< its name in config.json
    /// Reads a config.json of this model_type over the defaults; keeps errors in `config`.
    void (*parse)(JsonMembers& config, DecoderConfig& decoder);
    /// Writes the description to config.json, including architectures; the caller adds model_type and dtype.
    void (*write)(const DecoderConfig& decoder, boost::json::object& config);
    DecoderNames names;
    /// Fields that `parse` reads beyond decoder_fields.hpp. field_review.hpp checks the others.
    std::span<const std::string_view> fields{};
};

/// All families. The first is the default for a config.json without a model_type.
[[nodiscard]] std::span<const ModelFamily> model_families() noexcept;

/// The content of a config.json.
struct ModelConfig {
    const ModelFamily* family = nullptr;  ///< a row of the table; outlives this
    DecoderConfig decoder;
    std::string source_json;             ///< the original text: unknown fields survive in an export
    std::string source_generation_json;  ///< the folder's generation_config.json; empty: none
    std::vector<std::string> warnings;   ///< ignored fields; one line each
};

/// A config.json larger than this is refused.
inline constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;

/// Reads a config.json object. Refuses by name: a model_type that is not in `families`, and everything that the family
/// does not support, including fields of other families that change the computation (field_review.hpp). `place` (a
/// file, or a spec field's pointer) starts every message.
Result<ModelConfig> parse_model_config(std::string_view json, const JsonPlace& place,
                                       std::span<const ModelFamily> families = model_families());

/// Calls parse_model_config() on `folder`/config.json and adds the folder's generation_config.json.
Result<ModelConfig> read_model_config(const std::filesystem::path& folder,
                                      std::span<const ModelFamily> families = model_families());

/// `folder`/generation_config.json unchanged; empty if there is none.
Result<std::string> read_generation_config(const std::filesystem::path& folder);

}  // namespace distilld::models
