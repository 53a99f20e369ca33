#pragma once

#include <filesystem>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// SHA-256 of a file's bytes, 64 lower-case hex digits. Reads in pieces; torch-free; any thread.
Result<std::string> sha256_file(const std::filesystem::path& path);

}  // namespace distilld
