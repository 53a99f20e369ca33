#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// Fills `target` with the bytes of an open file from `offset`. Returns how many were read: fewer if the file ends
/// (errno is 0 then) or cannot be read further.
std::size_t read_at(int file, std::span<std::byte> target, std::uint64_t offset);

/// The same, but fewer bytes are an io error: "PATH: cannot read WHAT: " and the reason.
Result<void> read_all_at(int file, std::span<std::byte> target, std::uint64_t offset, const std::filesystem::path& path,
                         const std::string& what = {});

}  // namespace distilld
