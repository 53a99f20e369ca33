#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "api/job_types.hpp"
#include "server/cli/jobs/rest_client.hpp"
#include "server/cli/terminal.hpp"

namespace distilld::cli {

/// Dependencies of watch_job().
struct WatchTools {
    std::function<void(const std::string&)> print;     ///< bytes for stdout
    std::function<void(const std::string&)> complain;  ///< a line for stderr
    TerminalWidth width{};                             ///< of stdout, if it is a terminal
    std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
    std::function<void(std::chrono::seconds)> sleep{};  ///< empty: sleeps
};

/// Shows a job's events until it has ended, over several connections if needed; returns the job. A service that is
/// absent or answers 5xx (it may be restarting) is asked again with backoff for two minutes. nullopt, after reporting
/// the reason: that failed, nobody answered the first time, or the service refused. With `json`, each event is a line
/// of JSON. Blocks.
std::optional<api::Job> watch_job(RestClient& client, const std::string& job_id, bool json, const WatchTools& tools);

}  // namespace distilld::cli
