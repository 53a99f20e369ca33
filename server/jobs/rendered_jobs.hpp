#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>

#include "api/http_message.hpp"
#include "server/jobs/job_board.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

struct RenderedLimits {
    std::size_t max_texts = 1024;
    std::size_t max_bytes = 16U << 20;
};

/// The answers to GET /v1/jobs/{id}, each kept until something of its job changes: a job that is asked about a hundred
/// times a second changes a few times in it, and to read and write it costs more than the rest of a request. Who may
/// see what is decided for each request. One executor.
class RenderedJobs {
  public:
    /// The manager must outlive it.
    explicit RenderedJobs(JobManager& manager, RenderedLimits limits = {}) : manager_(manager), limits_(limits) {}

    /// The job whose id stands in the path, as JSON, as the caller may see it. Refuses with 404 where there is none.
    /// `request` must outlive the call.
    [[nodiscard]] boost::asio::awaitable<std::string> text(const api::Request& request);

    /// How often a job had to be read and written.
    [[nodiscard]] std::uint64_t rendered() const noexcept { return rendered_; }
    /// That are kept.
    [[nodiscard]] std::size_t texts() const noexcept { return kept_.size(); }
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  private:
    enum class View { whole, without_queries };
    struct Kept {
        std::string key;       ///< of by_key_
        std::string owner_id;  ///< of the job
        JobVersion version;
        std::string text;
    };
    using Place = std::list<Kept>::iterator;

    [[nodiscard]] static std::string key_of(const std::string& id, View view);
    /// Null: none that the caller may see is as new as `version`.
    [[nodiscard]] const std::string* find(const std::string& id, const JobVersion& version,
                                          const api::Request& request);
    void keep(const api::Job& job, const JobVersion& version, View view, const std::string& text);
    void drop(Place place);

    JobManager& manager_;
    const RenderedLimits limits_;
    std::list<Kept> kept_;  ///< those that were asked for last come first
    std::unordered_map<std::string, Place> by_key_;
    std::size_t bytes_ = 0;
    std::uint64_t rendered_ = 0;
};

}  // namespace distilld
