#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// Newline-delimited JSON between distilld and distilld-worker; one object a line, `type` names it.
/// Down: {"type":"start","version":1,"spec":{…},"resume":false,"trace_file":""}, {"type":"cancel"},
/// {"type":"checkpoint"}, {"type":"set_limit","max_concurrent":8}.
/// Up: {"type":"hello","version":1,"pid":…}, then the events of pipeline/core/worker_events.hpp as
/// started, progress, evaluation, checkpoint, log, finished, cancelled, failed with their fields by name.
/// Numbers that are not finite travel as null.
inline constexpr std::uint32_t kWorkerProtocolVersion = 1;
inline constexpr int kWorkerProtocolFd = 3;
inline constexpr std::size_t kWorkerMessageLimit = 16U << 20;

struct HelloMessage {
    std::uint32_t version = kWorkerProtocolVersion;
    std::int64_t pid = 0;
};

using DownMessage = std::variant<WorkerStart, CancelCommand, CheckpointCommand, SetLimitCommand>;
using UpMessage = std::variant<HelloMessage, StartedEvent, ProgressEvent, EvaluationEvent, CheckpointEvent, LogEvent,
                               FinishedEvent, CancelledEvent, FailedEvent>;

/// One line each, with the newline.
std::string encode(const DownMessage& message);
std::string encode(const UpMessage& message);

/// One line each, without the newline. Unknown types and versions are errors; unknown fields are ignored.
Result<DownMessage> decode_down(std::string_view line);
Result<UpMessage> decode_up(std::string_view line);

}  // namespace distilld
