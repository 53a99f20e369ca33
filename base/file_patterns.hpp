#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/open_file.hpp"

namespace distilld {

/// Whether a name has what makes it a pattern, as shells have them (glob(7)): `*`, `?`, `[a-z]`.
[[nodiscard]] bool looks_like_pattern(std::string_view name);

/// The folder in which the search for a pattern begins: its parts before the first that is a pattern.
[[nodiscard]] std::filesystem::path fixed_part(const std::string& pattern);

/// How much searching may cost. Each search takes its share, so that several have one bound together.
struct PatternBudget {
    std::uint64_t folders = 1'000'000;    ///< that are read
    std::uint64_t entries = 100'000'000;  ///< of folders
    std::uint64_t matches = 1'000'000;    ///< that are held at a time, folders on the way included
    std::optional<std::chrono::steady_clock::time_point> deadline{};

    /// For what somebody has sent: less than the above, within a few seconds from now.
    [[nodiscard]] static PatternBudget of_a_request();
};

/// Names of what the pattern matches, folders left out, sorted by their bytes; there may be none. `*` and `?` match
/// neither a slash nor a dot at the beginning of a name, and a backslash is a letter like others. A folder on the way
/// that cannot be read is an error, and so is a search that costs more than `budget` (invalid_input); both name the
/// pattern. No folder is read that `rule` does not allow: path_not_allowed. Looks at the disk; any thread.
[[nodiscard]] Result<std::vector<std::string>> files_matching(const std::string& pattern, PatternBudget& budget,
                                                              const FileRule* rule = file_rule());
/// With a budget that is meant for an operator's own data.
[[nodiscard]] Result<std::vector<std::string>> files_matching(const std::string& pattern);

}  // namespace distilld
