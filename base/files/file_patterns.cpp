#include "base/files/file_patterns.hpp"

#include <dirent.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

#include "base/files/descriptor.hpp"

namespace distilld {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kEntriesBetweenLooks = 256;  // entries between two looks at the clock

struct CloseListing {
    void operator()(DIR* folder) const { ::closedir(folder); }
};

bool take(std::uint64_t& budget) {
    if (budget == 0) {
        return false;
    }
    --budget;
    return true;
}

bool is_late(const PatternBudget& budget) {
    return budget.deadline && std::chrono::steady_clock::now() >= *budget.deadline;
}

bool may_be_folder(const dirent& entry) {
    return entry.d_type == DT_DIR || entry.d_type == DT_LNK || entry.d_type == DT_UNKNOWN;
}

/// One search.
class Search {
  public:
    Search(const std::string& pattern, PatternBudget& budget, const FileRule* rule)
        : pattern_(pattern), budget_(budget), rule_(rule) {}

    Result<std::vector<std::string>> files() {
        const fs::path whole(pattern_);
        std::vector<fs::path> found{fs::path()};
        for (auto part = whole.begin(); part != whole.end(); ++part) {
            if (!looks_like_pattern(part->native())) {
                for (fs::path& path : found) {
                    path /= *part;
                }
                continue;
            }
            std::vector<fs::path> next;
            for (const fs::path& folder : found) {
                if (Result<void> read = add_matches(folder, part->native(), std::next(part) == whole.end(), next);
                    !read) {
                    return read.error();
                }
            }
            found = std::move(next);
        }
        std::vector<std::string> files;
        for (const fs::path& path : found) {
            if (is_late(budget_)) {
                return too_much("takes too long");
            }
            struct stat status{};
            if (::stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) {
                files.push_back(path.string());
            }
        }
        std::ranges::sort(files);
        return files;
    }

  private:
    Result<void> add_matches(const fs::path& folder, const std::string& part, bool last, std::vector<fs::path>& next) {
        if (!take(budget_.folders)) {
            return too_much("looks into too many folders");
        }
        const fs::path place = folder.empty() ? fs::path(".") : folder;
        std::error_code failed;
        if (!fs::is_directory(place, failed)) {
            return {};  // for example a dangling link
        }
        Result<Descriptor> opened = open_folder(place, rule_);
        if (!opened) {
            return opened.error();
        }
        const std::unique_ptr<DIR, CloseListing> open(::fdopendir(opened->get()));
        if (!open) {
            return cannot_read();
        }
        static_cast<void>(opened->release());
        errno = 0;
        for (const dirent* entry = ::readdir(open.get()); entry != nullptr; entry = ::readdir(open.get())) {
            if (!take(budget_.entries)) {
                return too_much("looks at too many files");
            }
            if (budget_.entries % kEntriesBetweenLooks == 0 && is_late(budget_)) {
                return too_much("takes too long");
            }
            const bool matches = (last || may_be_folder(*entry)) &&
                                 ::fnmatch(part.c_str(), entry->d_name, FNM_PERIOD | FNM_NOESCAPE) == 0;
            if (matches && next.size() >= budget_.matches) {
                return too_much("has too many matches");
            }
            if (matches) {
                next.push_back(folder / entry->d_name);
            }
            errno = 0;
        }
        return errno == 0 ? Result<void>() : cannot_read();
    }

    [[nodiscard]] Result<void> cannot_read() const {
        return io_error(pattern_ + ": a folder in its path cannot be read");
    }
    [[nodiscard]] Error too_much(const char* what) const {
        return invalid_input(pattern_ + ": the pattern " + what + ": name a folder that has fewer, or the files");
    }

    const std::string& pattern_;
    PatternBudget& budget_;
    const FileRule* rule_;
};

}  // namespace

bool looks_like_pattern(std::string_view name) {
    return name.find_first_of("*?[") != std::string_view::npos;
}

fs::path fixed_part(const std::string& pattern) {
    fs::path fixed;
    for (const fs::path& part : fs::path(pattern)) {
        if (looks_like_pattern(part.native())) {
            break;
        }
        fixed /= part;
    }
    return fixed;
}

PatternBudget PatternBudget::of_a_request() {
    return {.folders = 10'000,
            .entries = 2'000'000,
            .matches = 100'000,
            .deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5)};
}

Result<std::vector<std::string>> files_matching(const std::string& pattern, PatternBudget& budget,
                                                const FileRule* rule) {
    return Search(pattern, budget, rule).files();
}

Result<std::vector<std::string>> files_matching(const std::string& pattern) {
    PatternBudget budget;
    return files_matching(pattern, budget);
}

}  // namespace distilld
