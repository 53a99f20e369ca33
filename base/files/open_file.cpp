#include "base/files/open_file.hpp"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/files/without_links.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

/// How often to judge a path again if it led elsewhere when it was opened.
constexpr int kTries = 16;

std::atomic<const FileRule*>& rule_of_process() {
    static std::atomic<const FileRule*> rule{nullptr};
    return rule;
}

Error failure(const char* what, const fs::path& path, int number) {
    return write_error(path.string() + ": cannot " + what + ": " + std::generic_category().message(number), number);
}

Error not_regular(const fs::path& path) {
    return invalid_input(path.string() + ": is not a regular file (a pipe, a socket or a device)");
}

/// The result of an attempt to open something.
struct Attempt {
    Descriptor opened{};
    int number = 0;         ///< errno if nothing was opened
    std::string refusal{};  ///< the rule's reason to refuse; empty: it allows the path

    [[nodiscard]] Error error(const char* what, const fs::path& path) const {
        return refusal.empty() ? failure(what, path, number) : Error{ErrorKind::path_not_allowed, refusal};
    }
};

/// Judges `path` by `locate()`, which returns where it leads now, and opens that place.
template <class Locate, class Open>
Attempt judge_and_open(const fs::path& path, const FileRule& rule, Locate locate, Open open) {
    Attempt attempt;
    for (int tries = 0; tries < kTries; ++tries) {
        const std::optional<fs::path> place = locate();
        attempt.refusal = complaint_about(path, place, rule);
        if (!attempt.refusal.empty()) {
            return attempt;
        }
        attempt.opened = open(*place);
        attempt.number = attempt.opened ? 0 : errno;
        // These errors mean that a link has appeared since the path was judged.
        if (attempt.number != ELOOP && attempt.number != ENOTDIR && attempt.number != EAGAIN) {
            return attempt;
        }
    }
    return attempt;
}

/// Judges and opens the place where the path leads; follows the last name too.
template <class Open>
Attempt open_where_it_leads(const fs::path& path, const FileRule& rule, Open open) {
    const fs::path absolute = fs::absolute(path);
    return judge_and_open(absolute, rule, [&absolute] { return resolved_path(absolute); }, open);
}

/// Opens as open(2) does, without a rule.
Attempt just_open(const fs::path& path, int flags, mode_t mode) {
    Attempt attempt{Descriptor(::open(path.c_str(), flags, mode))};
    attempt.number = attempt.opened ? 0 : errno;
    return attempt;
}

Attempt attempt_to_open(const fs::path& path, int flags, mode_t mode, const FileRule* rule) {
    if (rule == nullptr) {
        return just_open(path, flags, mode);
    }
    return open_where_it_leads(path, *rule,
                               [=](const fs::path& place) { return open_without_links(place, flags, mode); });
}

constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

/// Opens the folder of an entry.
Attempt attempt_to_enter(const fs::path& path, const FileRule* rule) {
    constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    const fs::path name = path.filename();
    if (name.empty() || name == "." || name == "..") {
        return {{}, EINVAL};
    }
    if (rule == nullptr) {
        return just_open(path.has_parent_path() ? path.parent_path() : fs::path("."), kFlags, 0);
    }
    const fs::path absolute = fs::absolute(path);
    const auto locate = [&]() -> std::optional<fs::path> {
        const auto place = resolved_path(absolute.parent_path());
        return place ? std::optional(*place / name) : std::nullopt;
    };
    const auto open = [](const fs::path& place) { return open_without_links(place.parent_path(), kFlags, 0); };
    return judge_and_open(absolute, *rule, locate, open);
}

struct CloseFolder {
    void operator()(DIR* folder) const { ::closedir(folder); }
};

/// The names in the folder, without `.` and `..`.
Result<std::vector<std::string>> names_of(Descriptor folder, const fs::path& path) {
    const std::unique_ptr<DIR, CloseFolder> entries(::fdopendir(folder.get()));
    if (entries == nullptr) {
        return failure("read folder", path, errno);
    }
    static_cast<void>(folder.release());
    std::vector<std::string> names;
    for (errno = 0; const dirent* entry = ::readdir(entries.get()); errno = 0) {
        const std::string name = entry->d_name;
        if (name != "." && name != "..") {
            names.push_back(name);
        }
    }
    return errno == 0 ? Result<std::vector<std::string>>(std::move(names)) : failure("read folder", path, errno);
}

Result<void> remove_below(int folder, const std::string& name, const fs::path& path) {
    if (::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) {
        return {};
    }
    if (errno != EISDIR && errno != EPERM) {
        return failure("remove", path, errno);
    }
    constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    Descriptor inside(::openat(folder, name.c_str(), kFlags));
    if (!inside) {
        return errno == ENOENT ? Result<void>() : failure("remove", path, errno);
    }
    Descriptor listed(::openat(inside.get(), ".", kFlags));
    const auto names = names_of(std::move(listed), path);
    if (!names) {
        return names.error();
    }
    for (const std::string& one : *names) {
        if (auto removed = remove_below(inside.get(), one, path / one); !removed) {
            return removed;
        }
    }
    const bool gone = ::unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
    return gone ? Result<void>() : failure("remove", path, errno);
}

}  // namespace

void confine_files(FileRule rule) {
    // Held until the end of the process, which stays confined.
    const FileRule* none = nullptr;
    auto held = std::make_unique<const FileRule>(std::move(rule));
    if (!rule_of_process().compare_exchange_strong(none, held.get())) {
        throw std::logic_error("confine_files() called twice");
    }
    static_cast<void>(held.release());
}

const FileRule* file_rule() noexcept {
    return rule_of_process().load();
}

Result<Descriptor> open_file(const fs::path& path, int flags, mode_t mode, const FileRule* rule) {
    // Without O_NONBLOCK, opening a pipe without a writer would block for ever.
    Attempt attempt = attempt_to_open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode, rule);
    if (!attempt.opened) {
        return attempt.number == ENXIO ? not_regular(path) : attempt.error("open", path);
    }
    struct stat status{};
    if (::fstat(attempt.opened.get(), &status) != 0) {
        return failure("stat", path, errno);
    }
    if (S_ISDIR(status.st_mode)) {
        return io_error(path.string() + ": is a folder, not a file");
    }
    if (!S_ISREG(status.st_mode)) {
        return not_regular(path);
    }
    return std::move(attempt.opened);
}

Result<Descriptor> open_folder(const fs::path& path, const FileRule* rule) {
    Attempt attempt = attempt_to_open(path, kFolder, 0, rule);
    return attempt.opened ? Result<Descriptor>(std::move(attempt.opened)) : attempt.error("open", path);
}

Result<FolderEntry> open_folder_of(const fs::path& path, const FileRule* rule) {
    Attempt attempt = attempt_to_enter(path, rule);
    if (!attempt.opened) {
        return attempt.error("open its folder", path);
    }
    return FolderEntry{std::move(attempt.opened), path.filename().string()};
}

Result<void> make_folders(const fs::path& folder) {
    const FileRule* rule = file_rule();
    if (rule == nullptr) {
        std::error_code failed;
        fs::create_directories(folder, failed);
        return failed ? failure("create folder", folder, failed.value()) : Result<void>();
    }
    const Attempt made = open_where_it_leads(folder, *rule, make_without_links);
    return made.opened ? Result<void>() : made.error("create folder", folder);
}

Result<void> make_new_folder(const fs::path& folder) {
    const auto entry = open_folder_of(folder);
    if (!entry) {
        return entry.error();
    }
    constexpr mode_t kMode = 0777;
    const bool made = ::mkdirat(entry->folder.get(), entry->name.c_str(), kMode) == 0;
    return made ? Result<void>() : failure("create folder", folder, errno);
}

Result<std::vector<std::string>> names_in(const fs::path& folder, const FileRule* rule) {
    Attempt attempt = attempt_to_open(folder, kFolder, 0, rule);
    if (attempt.opened) {
        return names_of(std::move(attempt.opened), folder);
    }
    const bool missing = attempt.refusal.empty() && attempt.number == ENOENT;
    return missing ? Result<std::vector<std::string>>(std::vector<std::string>()) : attempt.error("open", folder);
}

Result<void> rename_entry(const fs::path& from, const fs::path& to) {
    const auto source = open_folder_of(from);
    const auto target = source ? open_folder_of(to) : source.error();
    if (!target) {
        return target.error();
    }
    const bool renamed =
        ::renameat(source->folder.get(), source->name.c_str(), target->folder.get(), target->name.c_str()) == 0;
    return renamed ? Result<void>() : failure(("rename " + from.string() + " to this").c_str(), to, errno);
}

Result<bool> exchange_entries(const fs::path& one, const fs::path& other) {
    const auto first = open_folder_of(one);
    const auto second = first ? open_folder_of(other) : first.error();
    if (!second) {
        return second.error();
    }
    if (::renameat2(first->folder.get(), first->name.c_str(), second->folder.get(), second->name.c_str(),
                    RENAME_EXCHANGE) == 0) {
        return true;
    }
    const bool cannot = errno == EINVAL || errno == ENOSYS;
    return cannot ? Result<bool>(false) : failure(("exchange " + one.string() + " with this").c_str(), other, errno);
}

Result<void> remove_entry(const fs::path& path) {
    const Attempt above = attempt_to_enter(path, file_rule());
    if (!above.opened) {
        return above.number == ENOENT ? Result<void>() : above.error("remove", path);
    }
    const std::string name = path.filename().string();
    bool gone = ::unlinkat(above.opened.get(), name.c_str(), 0) == 0 || errno == ENOENT;
    if (!gone && errno == EISDIR) {
        gone = ::unlinkat(above.opened.get(), name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT;
    }
    return gone ? Result<void>() : failure("remove", path, errno);
}

Result<void> remove_tree(const fs::path& path) {
    const Attempt above = attempt_to_enter(path, file_rule());
    if (!above.opened) {
        return above.number == ENOENT ? Result<void>() : above.error("remove", path);
    }
    return remove_below(above.opened.get(), path.filename().string(), path);
}

}  // namespace distilld
