#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "server/cli/jobs/rest_client.hpp"

namespace distilld::cli {

/// Dependencies of follow_log().
struct FollowTools {
    std::function<void(const std::string&)> print;      ///< whole lines
    std::function<void(const std::string&)> complain;   ///< a line for stderr
    std::function<void(std::chrono::seconds)> sleep{};  ///< empty: sleeps
};

/// The text of `now` after the lines of `before`, where both are tails of one log; all of it if the last line seen is
/// gone.
[[nodiscard]] std::string lines_behind(const std::string& before, const std::string& now);

/// Prints the last `tail` lines of a job's log, and then each new line until the job has ended. Keeps asking an absent
/// service for two minutes. An error repeats the service's refusal. Blocks.
Result<void> follow_log(RestClient& client, const std::string& job_id, std::uint32_t tail, const FollowTools& tools);

}  // namespace distilld::cli
