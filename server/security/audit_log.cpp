#include "server/security/audit_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/object.hpp>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "api/job_types.hpp"
#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "base/json_text.hpp"
#include "base/utf8.hpp"
#include "server/security/refusal_limit.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr const char* kComponent = "audit";
constexpr std::size_t kMaxWaiting = 4096;    // lines
constexpr std::size_t kMaxPathBytes = 1024;  // per line
constexpr std::size_t kMaxTextBytes = 128;   // per other text
constexpr std::chrono::seconds kComplaintPause{60};
constexpr std::chrono::seconds kForgetPause{60};

/// Whether nothing was changed. A client that left before the answer (499) may have changed something, and so may a
/// caller with a key after an internal failure.
bool is_refused(const AuditEntry& entry) {
    return entry.status >= 400 && entry.status != 499 && (entry.status < 500 || entry.key.empty());
}

void put(json::object& line, const char* name, const std::string& text, std::size_t max_bytes = kMaxTextBytes) {
    line[name] = nullptr;
    if (!text.empty()) {
        line[name] = to_valid_utf8(cut_utf8(text, max_bytes));
    }
}

std::string now_text() {
    return api::rfc3339(std::chrono::system_clock::now());
}

/// `more`: omitted requests of the same address.
std::string line_of(const AuditEntry& entry, std::uint64_t more) {
    json::object line;
    line["time"] = now_text();
    put(line, "key", entry.key);
    put(line, "remote", entry.remote);
    put(line, "method", entry.method);
    put(line, "path", entry.path, kMaxPathBytes);
    line["status"] = entry.status;
    put(line, "job", entry.job);
    put(line, "request_id", entry.request_id);
    if (more > 0) {
        line["more"] = more;
    }
    return to_shown_utf8(to_text(line));
}

/// A file of lines, with its rotated predecessors. One thread.
class RotatedFile {
  public:
    RotatedFile(fs::path file, AuditLogOptions options) : path_(std::move(file)), options_(options) {}

    Result<void> open() {
        file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!file_) {
            return failure("open", errno);
        }
        struct stat there{};
        size_ = ::fstat(file_.get(), &there) == 0 ? static_cast<std::uint64_t>(there.st_size) : 0;
        return {};
    }

    void append(std::string text) {
        text += '\n';
        if (!file_ || size_ + text.size() > options_.file_bytes) {
            rotate();
        }
        if (const Result<void> written = write_all(file_.get(), std::as_bytes(std::span(text)), path_); !written) {
            complain(written.error());
        }
        size_ += text.size();
    }

  private:
    [[nodiscard]] Error failure(const char* what, int number) const {
        return write_error(path_.string() + ": cannot " + what + ": " + std::generic_category().message(number),
                           number);
    }

    [[nodiscard]] std::string numbered(std::uint32_t number) const {
        return path_.string() + "." + std::to_string(number);
    }

    /// Renames audit.jsonl to .1, .1 to .2 and so on; removes the oldest.
    void rotate() {
        file_ = Descriptor();
        if (size_ > 0) {
            // More files exist if old_files has been reduced.
            auto last = options_.old_files;
            while (::access(numbered(last + 1).c_str(), F_OK) == 0) {
                ++last;
            }
            for (; last > options_.old_files; --last) {
                ::unlink(numbered(last).c_str());
            }
            for (auto number = options_.old_files; number > 1; --number) {
                ::rename(numbered(number - 1).c_str(), numbered(number).c_str());
            }
            const int failed =
                options_.old_files == 0 ? ::unlink(path_.c_str()) : ::rename(path_.c_str(), numbered(1).c_str());
            if (failed != 0 && errno != ENOENT) {
                complain(failure("put aside", errno));
            }
        }
        if (const auto opened = open(); !opened) {
            complain(opened.error());
        }
    }

    void complain(const Error& error) {
        if (Clock::now() >= quiet_until_) {
            log::error(kComponent, error.message + "; its lines are only in the log");
            quiet_until_ = Clock::now() + kComplaintPause;
        }
    }

    const fs::path path_;
    const AuditLogOptions options_;
    Descriptor file_;
    std::uint64_t size_ = 0;  ///< of the current file
    Clock::time_point quiet_until_{};
};

class FileAuditLog final : public AuditLog {
  public:
    FileAuditLog(const fs::path& folder, AuditLogOptions options)
        : changes_(folder / "audit.jsonl", options), refused_(folder / "audit-refused.jsonl", options) {}
    ~FileAuditLog() override {
        if (thread_.joinable()) {
            thread_.request_stop();
            thread_.join();
        }
    }
    FileAuditLog(const FileAuditLog&) = delete;
    FileAuditLog& operator=(const FileAuditLog&) = delete;

    Result<void> open() { return changes_.open(); }

    void start() {
        thread_ = std::jthread([this](const std::stop_token& stop) { work(stop); });
    }

    void write(AuditEntry entry) override {
        const bool refused = is_refused(entry);
        std::optional<std::uint64_t> more = 0;
        if (refused) {
            const std::lock_guard guard(mutex_);
            more = limit_.admit(entry.remote, Clock::now());
        }
        if (!more) {
            return;
        }
        std::string line = line_of(entry, *more);
        log::info(kComponent, line);
        const std::lock_guard guard(mutex_);
        if (waiting_.size() >= kMaxWaiting) {
            ++lost_;
            return;
        }
        waiting_.push_back({std::move(line), refused});
        changed_.notify_one();
    }

  private:
    struct Line {
        std::string text;
        bool refused = false;
    };

    void work(const std::stop_token& stop) {
        while (true) {
            std::deque<Line> lines;
            std::uint64_t lost = 0;
            {
                std::unique_lock lock(mutex_);
                changed_.wait_for(lock, stop, kForgetPause, [this] { return !waiting_.empty(); });
                lines = std::exchange(waiting_, {});
                lost = std::exchange(lost_, 0);
                const auto until = stop.stop_requested() ? Clock::time_point::max() : Clock::now();
                for (auto& [address, more] : limit_.forget_quiet(until)) {
                    json::object line{{"time", now_text()}, {"remote", std::move(address)}, {"more", more}};
                    lines.push_back({to_text(line), true});
                }
            }
            if (lines.empty() && stop.stop_requested()) {
                return;
            }
            for (Line& line : lines) {
                (line.refused ? refused_ : changes_).append(std::move(line.text));
            }
            if (lost > 0) {
                changes_.append(to_text(json::object{{"time", now_text()}, {"lost_lines", lost}}));
            }
        }
    }

    RotatedFile changes_;  ///< only for the thread, like the next member
    RotatedFile refused_;  ///< created with its first line
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<Line> waiting_;
    std::uint64_t lost_ = 0;
    RefusalLimit limit_;
    std::jthread thread_;
};

}  // namespace

Result<std::shared_ptr<AuditLog>> open_audit_log(const fs::path& folder, AuditLogOptions options) {
    auto made = std::make_shared<FileAuditLog>(folder, options);
    if (const auto opened = made->open(); !opened) {
        return opened.error();
    }
    made->start();
    return std::shared_ptr<AuditLog>(std::move(made));
}

}  // namespace distilld
