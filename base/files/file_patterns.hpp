#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/files/open_file.hpp"

namespace distilld {

/// Whether a name is a pattern as in shells (glob(7)): it contains `*`, `?` or `[`.
[[nodiscard]] bool looks_like_pattern(std::string_view name);

/// The folder in which the search for a pattern begins: the path up to the first part that is a pattern.
[[nodiscard]] std::filesystem::path fixed_part(const std::string& pattern);

/// Limits of searches. Each search uses up its share, so that several searches can have one limit together.
struct PatternBudget {
    std::uint64_t folders = 1'000'000;    ///< folders read
    std::uint64_t entries = 100'000'000;  ///< entries of folders
    std::uint64_t matches = 1'000'000;    ///< held at one time, including folders on the way
    std::optional<std::chrono::steady_clock::time_point> deadline{};

    /// For requests: lower limits than above, and a few seconds from now.
    [[nodiscard]] static PatternBudget of_a_request();
};

/// The files that match the pattern, sorted by the bytes of their names; may be empty. Folders are left out. `*` and
/// `?` match neither a slash nor a dot at the beginning of a name, and a backslash has no special meaning. Errors name
/// the pattern: an unreadable folder on the way, a search beyond `budget` (invalid_input), a folder that `rule` does
/// not allow (path_not_allowed). Reads the disk; any thread.
[[nodiscard]] Result<std::vector<std::string>> files_matching(const std::string& pattern, PatternBudget& budget,
                                                              const FileRule* rule = file_rule());
/// The same with a budget for an operator's own data.
[[nodiscard]] Result<std::vector<std::string>> files_matching(const std::string& pattern);

}  // namespace distilld
