#include "pipeline/data/data_files.hpp"

#include <system_error>
#include <unordered_set>
#include <utility>

#include "base/files/file_patterns.hpp"

namespace distilld {

namespace {

namespace fs = std::filesystem;

Result<std::vector<fs::path>> files_of(const std::string& entry) {
    std::error_code unknown;
    if (!looks_like_pattern(entry) || fs::exists(entry, unknown)) {
        return std::vector<fs::path>{entry};
    }
    const Result<std::vector<std::string>> names = files_matching(entry);
    if (!names) {
        return names.error();
    }
    if (names->empty()) {
        return invalid_input(entry + ": no file matches this pattern");
    }
    return std::vector<fs::path>(names->begin(), names->end());
}

/// A key that is the same for all names of a file.
std::string identity_of(const fs::path& file) {
    std::error_code unknown;
    const fs::path canonical = fs::weakly_canonical(file, unknown);
    return unknown ? file.lexically_normal().string() : canonical.string();
}

}  // namespace

Result<std::vector<fs::path>> find_data_files(std::span<const std::string> entries, const std::string& pointer) {
    std::vector<fs::path> files;
    std::unordered_set<std::string> known;
    for (std::size_t number = 0; number < entries.size(); ++number) {
        const std::string where = entries.size() == 1 ? pointer : pointer + "/" + std::to_string(number);
        const Result<std::vector<fs::path>> found = files_of(entries[number]);
        if (!found) {
            return Error{found.error().kind, where + ": " + found.error().message};
        }
        for (const fs::path& file : *found) {
            if (known.insert(identity_of(file)).second) {
                files.push_back(file);
            }
        }
        if (files.size() > kMaxDataFiles) {
            return invalid_input(where + ": there are more than " + std::to_string(kMaxDataFiles) + " files");
        }
    }
    return files;
}

}  // namespace distilld
