#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// The files that a list names, in its order. An entry is a file or a pattern (glob(7): `*`, `?`, `[a-z]`) for the
/// matching files, without folders, sorted by the bytes of their names. If a file has exactly the entry's name, the
/// entry is that file. A file in several entries counts once, at the first. A pattern without a match is an error; a
/// missing file is an error when it is opened. Errors begin with `pointer` (/dataset/train), followed by the number of
/// the entry if there are several (/dataset/train/1).
Result<std::vector<std::filesystem::path>> find_data_files(std::span<const std::string> entries,
                                                           const std::string& pointer);

/// Maximum number of files of one dataset.
inline constexpr std::size_t kMaxDataFiles = 100'000;

}  // namespace distilld
