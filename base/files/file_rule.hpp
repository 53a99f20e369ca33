#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/describes.hpp"

namespace distilld {

/// Which files may be opened: those below some folders, after links are followed. All paths are absolute.
struct FileRule {
    std::vector<std::string> roots{};      ///< as returned by resolved_path()
    std::string own_folder{};              ///< the service's data folder, resolved; empty: none
    std::vector<std::string> own_names{};  ///< never opened there; `keys.` stands for all names that begin with it
    /// Paths that the service itself put into a spec, as returned by resolved_path(). These paths and everything below
    /// them are always allowed.
    std::vector<std::string> given{};
};

BOOST_DESCRIBE_STRUCT(FileRule, (), (roots, own_folder, own_names, given))

/// Whether a path is `folder` or below it; compares only the text.
[[nodiscard]] bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder);

/// Why `path`, which resolves to `place` (nullopt: nowhere), must not be opened; empty if it may. The text names the
/// path, not the place, so that it reveals nothing.
[[nodiscard]] std::string complaint_about(const std::filesystem::path& path,
                                          const std::optional<std::filesystem::path>& place, const FileRule& rule);

/// Resolves a path that may not exist. Follows all links, even those without a target, because writing to such a link
/// creates the target. nullopt: a circle of links, or an unreadable folder. Reads the disk.
[[nodiscard]] std::optional<std::filesystem::path> resolved_path(const std::filesystem::path& path);

}  // namespace distilld
