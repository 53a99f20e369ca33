#include "server/supervisor/token_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"

namespace distilld {
namespace {

Error unusable(const std::filesystem::path& folder, const std::string& why) {
    return invalid_input("launcher.folder: " + folder.string() + " " + why);
}

}  // namespace

Result<TokenFolder> TokenFolder::open(std::filesystem::path folder) {
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
        return unusable(folder, std::string("cannot be created: ") + std::strerror(errno));
    }
    const Descriptor opened(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat found{};
    if (!opened || ::fstat(opened.get(), &found) != 0) {
        return unusable(folder, "is not a folder, or a link to one: give the folder itself");
    }
    if (found.st_uid != ::geteuid()) {
        return unusable(folder, "belongs to another user: give a folder of the user that runs the service");
    }
    if ((found.st_mode & 0077U) != 0) {
        return unusable(folder, "can be used by others, but it is for secrets: chmod 700 it");
    }
    return TokenFolder(std::move(folder));
}

Result<std::filesystem::path> TokenFolder::keep(const std::string& name, std::string_view token) const {
    auto file = token_of(name);
    const auto written = write_file_atomically(file, token, FileAccess::folder_owner);
    return written ? Result<std::filesystem::path>(std::move(file)) : written.error();
}

Result<void> TokenFolder::forget(const std::string& name) const {
    const auto token = remove_entry(token_of(name));
    const auto log = remove_entry(log_of(name));
    return token ? log : token;
}

}  // namespace distilld
