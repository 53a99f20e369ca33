#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "api/job_types.hpp"
#include "server/cli/rest_client.hpp"
#include "server/cli/terminal.hpp"

namespace distilld::cli {

/// What watch_job() needs of its surroundings.
struct WatchTools {
    std::function<void(const std::string&)> print;     ///< bytes for stdout
    std::function<void(const std::string&)> complain;  ///< a line for stderr
    TerminalWidth width{};                             ///< of stdout, where it is a terminal
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
    std::function<void(std::chrono::seconds)> sleep{};  ///< empty: sleeps
};

/// Shows a job's events, over as many connections as it takes, until it has ended: the job, then. A service that is
/// away or answers 5xx (it may be starting again) is asked again, ever more seldom, for two minutes. Nothing when that
/// was in vain, when nobody answers the first time, or when the service refuses: the reason has been told. With `json`,
/// each event is a line of JSON. Blocks.
std::optional<api::Job> watch_job(RestClient& client, const std::string& job_id, bool json, const WatchTools& tools);

}  // namespace distilld::cli
