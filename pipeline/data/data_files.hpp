#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// The files that a list names, in its order. An entry is a file, or a pattern as shells have it (glob(7): `*`, `?`,
/// `[a-z]`) that stands for the files of which it tells, folders left out, sorted by the bytes of their names. A file
/// that is there under an entry's very name is that file, whatever characters the name has. A file that several entries
/// name stands where the first of them has it, once.
/// A pattern that no file matches is an error; a file that is not there is one for who opens it. Errors begin with
/// `pointer` (/dataset/train), behind it the number of the entry where there are several (/dataset/train/1).
Result<std::vector<std::filesystem::path>> find_data_files(std::span<const std::string> entries,
                                                           const std::string& pointer);

/// Files of one dataset, at most.
inline constexpr std::size_t kMaxDataFiles = 100'000;

}  // namespace distilld
