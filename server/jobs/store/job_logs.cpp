#include "server/jobs/store/job_logs.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/utf8.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/jobs/store/job_journal.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

/// A line may exceed the bound.
constexpr std::uint64_t kMaxRead = 2 * JobLogs::kMaxFileBytes;

/// Where the last `lines` lines begin.
std::size_t begin_of_tail(const std::string& text, std::uint32_t lines) {
    std::size_t begin = text.size();
    for (std::uint32_t line = 0; line < lines && begin > 0; ++line) {
        const auto before = begin < 2 ? std::string::npos : text.rfind('\n', begin - 2);
        begin = before == std::string::npos ? 0 : before + 1;
    }
    return begin;
}

std::string whole(const std::filesystem::path& file) {
    auto text = read_text_file(file, kMaxRead);
    if (text) {
        return *std::move(text);
    }
    std::error_code ec;
    if (!std::filesystem::exists(file, ec) && !ec) {
        return {};
    }
    throw ErrorException(text.error());
}

}  // namespace

void JobLogs::append(const std::string& job_id, std::string_view level, std::string_view text) {
    std::string said(cut_utf8(text, kMaxFileBytes / 2));
    for (auto& c : said) {
        c = c == '\n' || c == '\r' ? ' ' : c;
    }
    said = to_shown_utf8(said);
    std::string line = now_text() + " " + std::string(level) + " ";
    line.append(cut_utf8(said, kMaxFileBytes / 2)).append("\n");
    std::error_code ignored;
    std::filesystem::create_directories(folder_, ignored);
    bool full = false;
    {
        const auto log = open_file(file(job_id), O_WRONLY | O_APPEND | O_CREAT, 0644);
        // One write: the line is there completely or not at all, except on a disk that becomes full.
        if (!log || ::write(log->get(), line.data(), line.size()) < 0) {
            return;
        }
        struct stat status{};
        full = ::fstat(log->get(), &status) == 0 && static_cast<std::uint64_t>(status.st_size) >= kMaxFileBytes;
    }
    if (full) {
        std::filesystem::rename(file(job_id), older(job_id), ignored);
    }
}

asio::awaitable<std::string> JobLogs::tail(std::string job_id, std::uint32_t lines) {
    return run_on(thread_.get_executor(),
                  [this, job_id = std::move(job_id), lines] { return tail_now(job_id, lines); });
}

asio::awaitable<void> JobLogs::remove(std::string job_id) {
    return run_on(thread_.get_executor(), [this, job_id = std::move(job_id)] {
        std::error_code ignored;  // ignored: nobody asked for a log, and the job is gone
        std::filesystem::remove(file(job_id), ignored);
        std::filesystem::remove(older(job_id), ignored);
    });
}

std::string JobLogs::tail_now(const std::string& job_id, std::uint32_t lines) const {
    // The newer file first: if it becomes the older one in between, its lines come twice rather than not at all.
    const auto newer = whole(file(job_id));
    auto text = whole(older(job_id));
    if (!text.ends_with(newer)) {
        text += newer;
    }
    return text.substr(begin_of_tail(text, lines));
}

}  // namespace distilld
