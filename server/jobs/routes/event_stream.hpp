#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "server/http/http_message.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// How a stream writes a job's events as server-sent events, each with the sequence as `id`.
struct EventWriter {
    /// Also gets the sequence of the event before it.
    std::function<std::string(const api::JobEvent&, std::uint64_t last)> event;
    std::function<std::string(const api::Job&)> end;
};

/// A job's events after `after`, and a comment when nothing happened for a heartbeat. Without the writer's end the
/// service has stopped. The manager must outlive the answer.
[[nodiscard]] http::Response event_stream(JobManager& manager, std::string job_id, std::uint64_t after,
                                          EventWriter writer);

/// `event` is the type, `data` the event as JSON; `gap` {from, to} where old metrics were dropped; `done` with the job
/// at the end. A client that sees no `done` reconnects with Last-Event-ID.
[[nodiscard]] EventWriter job_event_writer();

}  // namespace distilld
