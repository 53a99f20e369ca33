#include "base/files/file_rule.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/join.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // the kernel's limit

/// Whether `place`, resolved, is the service's folder or one of its own files there.
bool is_own(const fs::path& place, const FileRule& rule) {
    const fs::path folder = rule.own_folder;
    if (folder.empty() || !is_below(place, folder)) {
        return false;
    }
    auto rest = place.begin();
    std::advance(rest, std::distance(folder.begin(), folder.end()));
    if (rest == place.end()) {
        return true;
    }
    const std::string name = rest->string();
    return std::ranges::any_of(rule.own_names, [&name](const std::string& own) {
        return name == own || (name.starts_with(own) && own.find('.') != std::string::npos);
    });
}

}  // namespace

bool is_below(const fs::path& path, const fs::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

std::string complaint_about(const fs::path& path, const std::optional<fs::path>& place, const FileRule& rule) {
    const auto holds = [&place](const std::string& folder) { return is_below(*place, folder); };
    if (place && std::ranges::any_of(rule.given, holds)) {
        return {};
    }
    if (!place || std::ranges::none_of(rule.roots, holds)) {
        return "'" + path.string() + "' is not below a folder that specs may name (distilld serve --root): " +
               (rule.roots.empty() ? "none" : joined(rule.roots));
    }
    return is_own(*place, rule) ? "'" + path.string() + "' is a file of the service itself" : std::string();
}

std::optional<fs::path> resolved_path(const fs::path& path) {
    std::deque<fs::path> left(path.begin(), path.end());
    fs::path at = "/";
    int links = 0;
    while (!left.empty()) {
        const fs::path part = std::move(left.front());
        left.pop_front();
        if (part.empty() || part == "." || part == "/") {
            continue;
        }
        if (part == "..") {
            at = at.parent_path();
            continue;
        }
        const fs::path next = at / part;
        std::error_code failed;
        const auto type = fs::symlink_status(next, failed).type();
        if (type == fs::file_type::none) {
            return std::nullopt;
        }
        if (type != fs::file_type::symlink) {
            at = next;
            continue;
        }
        const fs::path target = fs::read_symlink(next, failed);
        if (failed || ++links > kMaxLinks) {
            return std::nullopt;
        }
        if (target.is_absolute()) {
            at = "/";
        }
        left.insert(left.begin(), target.begin(), target.end());
    }
    return at;
}

}  // namespace distilld
