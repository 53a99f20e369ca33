#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "server/cli/rest_client.hpp"

namespace distilld::cli {

/// What follow_log() needs of its surroundings.
struct FollowTools {
    std::function<void(const std::string&)> print;      ///< whole lines
    std::function<void(const std::string&)> complain;   ///< a line for stderr
    std::function<void(std::chrono::seconds)> sleep{};  ///< empty: sleeps
};

/// What stands in `now` behind the lines of `before`, which are two looks at the end of one log; all of it where what
/// was seen last is gone.
[[nodiscard]] std::string lines_behind(const std::string& before, const std::string& now);

/// Prints the last `tail` lines of a job's log, and then each line that is added, until the job has ended. A service
/// that is away meanwhile is asked again for two minutes. An error says what the service refused. Blocks.
Result<void> follow_log(RestClient& client, const std::string& job_id, std::uint32_t tail, const FollowTools& tools);

}  // namespace distilld::cli
