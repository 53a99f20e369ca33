#include "pipeline/data/data_files.hpp"

#include <glob.h>

#include <algorithm>
#include <system_error>
#include <unordered_set>
#include <utility>

namespace distilld {

namespace {

namespace fs = std::filesystem;

bool is_pattern(const std::string& entry) {
    std::error_code unknown;
    return entry.find_first_of("*?[") != std::string::npos && !fs::exists(entry, unknown);
}

class Matches {
  public:
    explicit Matches(const std::string& pattern)
        : code_(::glob(pattern.c_str(), GLOB_ERR | GLOB_MARK | GLOB_NOSORT, nullptr, &found_)) {}
    ~Matches() { ::globfree(&found_); }
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;

    Result<std::vector<fs::path>> files(const std::string& pattern) const {
        if (code_ != 0 && code_ != GLOB_NOMATCH) {
            return io_error(pattern + ": " +
                            (code_ == GLOB_NOSPACE ? "memory ran out" : "a folder on its way cannot be read"));
        }
        std::vector<std::string> names;
        for (std::size_t i = 0; code_ == 0 && i < found_.gl_pathc; ++i) {
            std::string name = found_.gl_pathv[i];
            if (!name.ends_with('/')) {  // GLOB_MARK: a folder
                names.push_back(std::move(name));
            }
        }
        if (names.empty()) {
            return invalid_input(pattern + ": no file matches this pattern");
        }
        std::ranges::sort(names);
        return std::vector<fs::path>(names.begin(), names.end());
    }

  private:
    ::glob_t found_{};
    int code_;
};

Result<std::vector<fs::path>> files_of(const std::string& entry) {
    if (is_pattern(entry)) {
        return Matches(entry).files(entry);
    }
    return std::vector<fs::path>{entry};
}

/// By which two names of one file are known.
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
