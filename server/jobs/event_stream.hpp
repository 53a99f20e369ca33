#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/http_message.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// A job's events after `after` as server-sent events: `id` is the sequence, `event` the type, `data` the event as
/// JSON; a comment when nothing happened for a heartbeat; `gap` {from, to} where old metrics were dropped; `done` with
/// the job at the end. Without `done` the service has stopped: come back with Last-Event-ID.
std::unique_ptr<api::BodyStream> make_job_event_stream(JobManager& manager, std::string job_id, std::uint64_t after);

}  // namespace distilld
