#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "pipeline/async/condition.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/core/spec_sections.hpp"
#include "pipeline/teacher/rollout/rollout_codec.hpp"
#include "pipeline/teacher/rollout/rollout_servers.hpp"
#include "pipeline/teacher/teacher_endpoint.hpp"

namespace distilld {

/// One of the servers that write the student's answers: gives it the weights, and asks it. On one executor, a strand or
/// with a single thread; any number of calls at once. Errors name the endpoint.
class RolloutServer {
  public:
    /// `spec` and `options` must outlive this.
    RolloutServer(boost::asio::any_io_executor io, std::unique_ptr<TeacherEndpoint> endpoint, const RolloutSpec& spec,
                  const RolloutServersOptions& options);

    [[nodiscard]] TeacherEndpoint& endpoint() noexcept { return *at_; }
    [[nodiscard]] const std::string& name() const noexcept { return at_->name(); }
    /// Target of another page of the server.
    [[nodiscard]] Result<std::string> page(std::string_view target) const;

    /// Finds out what the server is, and takes away adapters of earlier attempts; before anything else.
    boost::asio::awaitable<FetchResult<void>> greet();
    /// Weights of a folder below RolloutServersOptions::folder, under NAME-`folder`.
    boost::asio::awaitable<FetchResult<void>> give(std::string folder);
    /// Takes an adapter away; whole weights stay.
    boost::asio::awaitable<void> take_away(std::string folder);
    /// A short answer to the probe's prompt. `folder`: of the weights that were given; empty: the server's own.
    boost::asio::awaitable<FetchResult<Rollout>> write(std::string folder, std::uint64_t seed, double temperature);

    /// The answers to a micro-batch by its version of the weights, which the server gets first if it has not got it or
    /// has lost it. Adapters that no step needs any more are taken away. Whole weights are replaced while no answer is
    /// under way.
    boost::asio::awaitable<FetchResult<EncodedAnswer>> answer(std::shared_ptr<const TokenBatch> tokens,
                                                              std::chrono::nanoseconds deadline);
    /// Takes all adapters away.
    boost::asio::awaitable<void> settle();

  private:
    [[nodiscard]] FetchError unusable(const std::string& why) const;
    boost::asio::awaitable<FetchResult<HttpResponse>> ask(HttpRequest request, std::chrono::seconds limit);
    boost::asio::awaitable<FetchResult<HttpResponse>> post(const char* target, boost::json::object body,
                                                           std::chrono::seconds limit);
    boost::asio::awaitable<FetchResult<void>> load(std::uint64_t version);
    boost::asio::awaitable<FetchResult<void>> replace(std::uint64_t version);
    [[nodiscard]] std::string named(const std::string& folder) const { return options_.name + "-" + folder; }

    const RolloutSpec& spec_;
    const RolloutServersOptions& options_;
    std::unique_ptr<TeacherEndpoint> at_;
    const RolloutDialect* dialect_ = kRolloutDialects.data();
    std::shared_ptr<const RolloutCodec> codec_;
    std::shared_ptr<std::atomic<bool>> other_weights_;  ///< null: the student is an adapter
    std::string base_;                                  ///< name of the server's model
    Condition changed_;                                 ///< of what follows
    std::set<std::uint64_t> loaded_;                    ///< versions; of whole weights, one
    std::set<std::uint64_t> loading_;
    std::set<std::uint64_t> asked_for_;  ///< adapters that it may have, also if the answer was not waited for
    std::uint32_t writing_ = 0;          ///< answers under way
    TaskGroup tidying_;                  ///< takes adapters away while answers are written; joined by settle()
};

}  // namespace distilld
