#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "server/protocol/message_codec.hpp"
#include "server/protocol/worker_messages.hpp"

/// Newline-delimited JSON between distilld and distilld-worker; one object per line, named by `type`. To the worker:
/// {"type":"start","version":2,"spec":{…},"resume":false,"trace_file":"","job_id":"","attempt":0,"files":null},
/// {"type":"cancel"}, {"type":"checkpoint"}, {"type":"set_limit","max_concurrent":8}. From it:
/// {"type":"hello","version":2,"pid":…}, then the events of pipeline/core/worker_events.hpp with the fields of
/// pipeline/core/event_fields.hpp. Non-finite numbers are sent as null.
namespace distilld {

/// The worker's end of the socket pair.
inline constexpr int kWorkerProtocolFd = 3;

/// One line each, with the newline.
[[nodiscard]] std::string encode(const DownMessage& message);
[[nodiscard]] std::string encode(const UpMessage& message);

/// One line each, without the newline. Unknown types and versions are errors; unknown fields are ignored.
[[nodiscard]] Result<DownMessage> decode_down(std::string_view line);
[[nodiscard]] Result<UpMessage> decode_up(std::string_view line);

}  // namespace distilld
