#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// A request that would change something, and its result.
struct AuditEntry {
    std::string key;     ///< name of the key; empty: not required, or invalid
    std::string remote;  ///< address
    std::string method;
    std::string path;
    unsigned status = 0;
    std::string job;  ///< id; empty = none
    std::string request_id;
};

struct AuditLogOptions {
    std::uint64_t file_bytes = std::uint64_t{16} << 20U;  ///< size at which a file is rotated
    std::uint32_t old_files = 4;  ///< rotated files to keep of each: audit.jsonl.1 is the newest
};

/// Records who changed what: one line of JSON per request, to `audit.jsonl` (0600) and to the log. Refused requests
/// that changed nothing go to `audit-refused.jsonl`, so that they cannot push out the others. RefusalLimit limits them:
/// the next line's `more` counts the omitted ones. A separate thread writes. If the disk is too slow, the files lose
/// lines, but not the log, and `audit.jsonl` says how many.
class AuditLog {
  public:
    virtual ~AuditLog() = default;

    /// Returns at once. Any thread.
    virtual void write(AuditEntry entry) = 0;
};

/// The error names the file: `audit.jsonl` of the folder, which is opened at once.
[[nodiscard]] Result<std::shared_ptr<AuditLog>> open_audit_log(const std::filesystem::path& folder,
                                                               AuditLogOptions options = {});

}  // namespace distilld
