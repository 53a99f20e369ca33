#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "pipeline/core/job_spec.hpp"
#include "pipeline/teacher/protocols/registry.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "pipeline/teacher/transport/host_resolver.hpp"
#include "pipeline/teacher/transport/traffic_counters.hpp"

namespace distilld {

struct RemoteTeacherOptions {
    /// How long the probe waits for the first endpoint to be up.
    std::chrono::nanoseconds start_deadline = std::chrono::seconds(60);
    /// The longest that an endpoint which is not up may put the probe off with Retry-After.
    std::chrono::nanoseconds max_retry_after = std::chrono::seconds(60);
    /// Sequences of a micro-batch, and positions of each: the probe finds out whether an endpoint takes so many.
    std::uint32_t batch_rows = 1;
    std::uint32_t batch_columns = 1;
    /// Told what may go wrong later (a larger vocabulary, an endpoint that does not pass the probe, or joins late and
    /// answers differently, replicas that differ in mid-run), on `io`. May be empty.
    std::function<void(const std::string&)> on_warning;
    /// Told whom the probe waits for while none of the endpoints has passed, and what they answered last, whenever that
    /// changes, and nothing when it waits no more; on `io`. May be empty.
    std::function<void(const std::string&)> on_waiting;
    /// Upper bound of one answer; below it the limit follows from the expected size.
    std::uint64_t max_response_bytes = std::uint64_t{4} << 30U;
    /// Memory kept in response buffers that nobody uses; never more than a tenth of the spec's window_bytes.
    std::size_t max_idle_buffer_bytes = std::size_t{256} << 20U;
    std::chrono::milliseconds idle_limit{2500};  ///< of a kept connection
    /// Finds the addresses of hosts.
    HostLookup lookup = look_up_host;
    HostRule hosts{};  ///< that may be connected to
    /// Counts of what went over the wire, when the caller wants to read them.
    std::shared_ptr<TrafficCounters> traffic;
    /// Those that the spec may name. What the rows refer to must outlive the teacher.
    std::span<const TeacherProtocolRow> protocols = teacher_protocols();
};

/// The teacher behind the endpoints of `spec`, over the protocol it names. `io` runs one thread or is a strand:
/// coroutines of the source run there. `decode` (a thread pool) parses and checks the answers to the probe. Fails at
/// once on a bad URL, a missing API key variable or an unreadable ca_file; nothing is sent before probe() or fetch().
[[nodiscard]] Result<std::unique_ptr<TeacherSource>> make_remote_teacher(boost::asio::any_io_executor io,
                                                                         boost::asio::any_io_executor decode,
                                                                         const TeacherSpec& spec,
                                                                         RemoteTeacherOptions options = {});

}  // namespace distilld
