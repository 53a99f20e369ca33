#pragma once

#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "pipeline/core/special_tokens.hpp"

namespace distilld {

/// The ids of bos_token, eos_token and pad_token of tokenizer_config.json, from that file or tokenizer.json. Empty
/// without a tokenizer_config.json. Errors name the file.
Result<std::optional<SpecialTokens>> read_special_tokens(const std::filesystem::path& folder);

}  // namespace distilld
