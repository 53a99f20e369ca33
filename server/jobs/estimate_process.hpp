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
/// single-threaded context; cancelled, it ends at once. The error says why there is no estimate.
using EstimateRunner = std::function<boost::asio::awaitable<Result<boost::json::object>>(EstimateRequest)>;

struct EstimateProcessOptions {
    std::filesystem::path program;  ///< called with `arguments`; it runs answer_estimate()
    std::vector<std::string> arguments{};
    std::chrono::milliseconds deadline{30'000};       ///< of one estimate
    std::chrono::milliseconds turn_deadline{60'000};  ///< how long one waits for others
    std::uint32_t at_once = 2;
};

/// Each estimate in a process of its own, which is killed at the deadline, or when whoever asked for it has left: a
/// tokenizer that reads for ever, takes all memory or crashes takes nothing of the service with it.
[[nodiscard]] EstimateRunner make_estimate_processes(EstimateProcessOptions options);

/// What that process does: reads one request from `channel`, is confined to the request's files and to 2 GiB of memory,
/// and writes the answer there. Its exit code.
[[nodiscard]] int answer_estimate(int channel);

}  // namespace distilld
