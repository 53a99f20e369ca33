#pragma once

#include <boost/json/value.hpp>
#include <filesystem>

#include "base/error.hpp"

namespace distilld {

/// A file of a tokenizer's folder. Errors name the file.
[[nodiscard]] Result<boost::json::value> read_json_file(const std::filesystem::path& file);

}  // namespace distilld
