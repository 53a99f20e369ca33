#include "server/worker/machine/disk_space.hpp"

#include <sys/statvfs.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/format.hpp"

namespace distilld {

std::optional<std::uint64_t> free_bytes(const std::filesystem::path& folder) {
    std::error_code code;
    const auto space = std::filesystem::space(folder, code);
    if (code || space.available == static_cast<std::uintmax_t>(-1)) {
        return std::nullopt;
    }
    return space.available;
}

namespace {

/// The folder, or its closest parent that exists.
std::filesystem::path existing(std::filesystem::path folder) {
    std::error_code code;
    while (!std::filesystem::exists(folder, code) && folder.has_relative_path()) {
        folder = folder.parent_path();
    }
    return folder;
}

}  // namespace

bool is_read_only(const std::filesystem::path& folder) {
    struct statvfs status{};
    return ::statvfs(existing(folder).c_str(), &status) == 0 && (status.f_flag & ST_RDONLY) != 0;
}

std::optional<DiskUsage> disk_usage(std::string of, std::filesystem::path folder) {
    std::error_code code;
    folder = existing(std::move(folder));
    const auto space = std::filesystem::space(folder, code);
    if (code || space.available == static_cast<std::uintmax_t>(-1)) {
        return std::nullopt;
    }
    return DiskUsage{std::move(of), space.available, space.capacity};
}

std::string size_text(std::uint64_t bytes) {
    constexpr std::array<const char*, 5> kUnits{"bytes", "kB", "MB", "GB", "TB"};
    double value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1000 && unit + 1 < kUnits.size()) {
        value /= 1000;
        ++unit;
    }
    return formatted(unit == 0 ? "%.0f " : "%.1f ", value) + kUnits[unit];
}

Error explain_full_disk(Error error, const std::filesystem::path& folder, const std::string& what,
                        std::uint64_t needed) {
    if (error.kind != ErrorKind::disk_full) {
        return error;
    }
    const auto free = free_bytes(folder);
    const auto says = [&error](int number) {
        return error.message.find(std::generic_category().message(number)) != std::string::npos;
    };
    const char* why = says(ENOSPC) || says(EDQUOT) ? ": no space on the disk: " : ": cannot be written to: ";
    error.message = folder.string() + why + what + " needs " + size_text(needed) +
                    (free ? ", " + size_text(*free) + " are free" : "") + " (" + error.message + ")";
    return error;
}

std::string space_warning(const std::filesystem::path& folder, std::uint64_t needed,
                          std::optional<std::uint64_t> free) {
    if (!free || *free >= needed) {
        return {};
    }
    return folder.string() + ": a checkpoint needs " + size_text(needed) + " and " + size_text(*free) +
           " are free; the run will wait for space when it writes one";
}

}  // namespace distilld
