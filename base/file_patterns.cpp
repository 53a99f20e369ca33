#include "base/file_patterns.hpp"

#include <glob.h>

#include <algorithm>
#include <utility>

namespace distilld {

namespace {

/// What glob(3) finds, freed with it.
struct Found {
    Found() = default;
    ~Found() { ::globfree(&names); }
    Found(const Found&) = delete;
    Found& operator=(const Found&) = delete;

    ::glob_t names{};
};

}  // namespace

bool looks_like_pattern(std::string_view name) {
    return name.find_first_of("*?[") != std::string_view::npos;
}

Result<std::vector<std::string>> files_matching(const std::string& pattern) {
    Found found;
    const int code = ::glob(pattern.c_str(), GLOB_ERR | GLOB_MARK | GLOB_NOSORT, nullptr, &found.names);
    if (code != 0 && code != GLOB_NOMATCH) {
        return io_error(pattern + ": " +
                        (code == GLOB_NOSPACE ? "memory ran out" : "a folder on its way cannot be read"));
    }
    std::vector<std::string> files;
    for (std::size_t i = 0; code == 0 && i < found.names.gl_pathc; ++i) {
        std::string name = found.names.gl_pathv[i];
        if (!name.ends_with('/')) {  // GLOB_MARK: a folder
            files.push_back(std::move(name));
        }
    }
    std::ranges::sort(files);
    return files;
}

}  // namespace distilld
