#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/estimate/job_estimate.hpp"

namespace distilld {

/// Makes an estimate (server/estimate/job_estimate.hpp). The coroutine stays on its executor, a strand or a
/// single-threaded context, and ends at once when cancelled. The error says why there is no estimate.
using EstimateRunner = std::function<boost::asio::awaitable<Result<boost::json::object>>(EstimateRequest)>;

struct EstimateProcessOptions {
    std::filesystem::path program;  ///< called with `arguments`; it runs answer_estimate()
    std::vector<std::string> arguments{};
    std::chrono::milliseconds deadline{30'000};       ///< for one estimate
    std::chrono::milliseconds turn_deadline{60'000};  ///< how long an estimate waits for others
    std::uint32_t at_once = 2;
};

/// Runs each estimate in a process of its own. The process is killed at the deadline, or when the caller has left, so a
/// tokenizer that never returns, takes all memory or crashes does not harm the service.
[[nodiscard]] EstimateRunner make_estimate_processes(EstimateProcessOptions options);

/// The work of that process: reads one request from `channel`, confines itself to the request's files and 2 GiB of
/// memory, and writes the answer to `channel`. Returns its exit code.
[[nodiscard]] int answer_estimate(int channel);

}  // namespace distilld
