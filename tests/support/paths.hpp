#pragma once

#include <filesystem>

namespace distilld::test {

/// The checkout that this program was built from.
std::filesystem::path source_dir();

/// The folder in which the build puts programs.
std::filesystem::path bin_dir();

}  // namespace distilld::test
