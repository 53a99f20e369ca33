#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace distilld {

/// What the workers of each job wrote for people, one file per job with one "TIME LEVEL text" per line. A file that
/// reaches kMaxFileBytes becomes the older one of two, so a job's log takes at most twice that. Any thread; the lines
/// of one job come from one.
class JobLogs {
  public:
    static constexpr std::uint64_t kMaxFileBytes = 4ULL << 20;
    static constexpr std::uint32_t kMaxTail = 100'000;

    /// `folder` is created with the first line.
    explicit JobLogs(std::filesystem::path folder) : folder_(std::move(folder)) {}

    /// Adds a line with the current time. A line that cannot be written is lost here, but is in the service's log too.
    void append(const std::string& job_id, std::string_view level, std::string_view text);

    /// The last lines, at most kMaxTail; empty: there are none. ErrorException (io) that names the file. Files are read
    /// on a thread of their own; the coroutine stays on the caller's executor.
    boost::asio::awaitable<std::string> tail(std::string job_id, std::uint32_t lines);
    /// On the same thread.
    boost::asio::awaitable<void> remove(std::string job_id);

  private:
    [[nodiscard]] std::filesystem::path file(const std::string& job_id) const { return folder_ / (job_id + ".log"); }
    [[nodiscard]] std::filesystem::path older(const std::string& job_id) const { return folder_ / (job_id + ".log.1"); }
    std::string tail_now(const std::string& job_id, std::uint32_t lines) const;

    const std::filesystem::path folder_;
    boost::asio::thread_pool thread_{1};
};

}  // namespace distilld
