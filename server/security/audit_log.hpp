#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// A request that would change something, and what became of it.
struct AuditEntry {
    std::string key;     ///< name of the key; empty: none was asked for, or it was wrong
    std::string remote;  ///< address
    std::string method;
    std::string path;
    unsigned status = 0;
    std::string job;  ///< id; empty = none
    std::string request_id;
};

struct AuditLogOptions {
    std::uint64_t file_bytes = std::uint64_t{16} << 20U;  ///< at which a new file is begun
    std::uint32_t old_files = 4;  ///< full ones of each that are kept: audit.jsonl.1 is the newest
};

/// Writes down who changed what: a line of JSON each, to `audit.jsonl` (0600) and to the log. What was refused and
/// changed nothing goes to `audit-refused.jsonl`, so that it cannot push out what was not, and as RefusalLimit says: of
/// what it leaves out stands in neither file nor log how many there were, under the next line's `more`. A thread of its
/// own writes; a disk that does not keep up loses lines of the files, not of the log, and `audit.jsonl` says how many.
class AuditLog {
  public:
    virtual ~AuditLog() = default;

    /// At once. Any thread.
    virtual void write(AuditEntry entry) = 0;
};

/// The error names the file: `audit.jsonl` of the folder, which is opened at once.
[[nodiscard]] Result<std::shared_ptr<AuditLog>> open_audit_log(const std::filesystem::path& folder,
                                                               AuditLogOptions options = {});

}  // namespace distilld
