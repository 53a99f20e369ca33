#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/describes.hpp"

namespace distilld {

/// Which files may be opened: those below some folders, wherever links lead. All paths are absolute.
struct FileRule {
    std::vector<std::string> roots{};      ///< as resolved_path() gives them
    std::string own_folder{};              ///< the service's data folder, resolved; empty: none
    std::vector<std::string> own_names{};  ///< what is never opened there; `keys.` stands for what begins with it
    /// What the service itself has put into a spec, as resolved_path() gives it: that, and what lies below it, is
    /// allowed whatever the rest says.
    std::vector<std::string> given{};
};

BOOST_DESCRIBE_STRUCT(FileRule, (), (roots, own_folder, own_names, given))

/// Whether a path is `folder` or lies below it, by their spelling.
[[nodiscard]] bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder);

/// Why `path`, which leads to `place` (nothing: nowhere), must not be opened; empty: it may. The text names the path
/// and not the place: whoever may not go there need not know what is there.
[[nodiscard]] std::string complaint_about(const std::filesystem::path& path,
                                          const std::optional<std::filesystem::path>& place, const FileRule& rule);

/// Where a path leads, whether it is there or not: every link of it is followed, also one whose target is missing, for
/// what is written to such a link is made where it points. Nothing: links in a circle, or a folder that cannot be
/// looked into. Looks at the disk.
[[nodiscard]] std::optional<std::filesystem::path> resolved_path(const std::filesystem::path& path);

}  // namespace distilld
