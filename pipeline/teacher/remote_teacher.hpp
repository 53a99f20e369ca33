#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "net/host_resolver.hpp"
#include "net/traffic_counters.hpp"
#include "pipeline/core/spec_sections.hpp"
#include "pipeline/teacher/protocols/registry.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

struct RemoteTeacherOptions {
    /// How long the probe waits for the first endpoint to be up.
    std::chrono::nanoseconds start_deadline = std::chrono::seconds(60);
    /// Limit of Retry-After of an endpoint that is not up.
    std::chrono::nanoseconds max_retry_after = std::chrono::seconds(60);
    /// Sequences of a micro-batch, and positions of each: the probe checks that an endpoint accepts them.
    std::uint32_t batch_rows = 1;
    std::uint32_t batch_columns = 1;
    /// Of a teacher of samples: what the probe asks about. Null: the teacher answers tokens.
    std::shared_ptr<const TokenBatch> samples;
    /// Called on `io` with warnings (a larger vocabulary, an endpoint that fails the probe, or joins late and answers
    /// differently, replicas that differ during the run). May be empty.
    std::function<void(const std::string&)> on_warning;
    /// Called on `io` with the endpoints that the probe waits for and their last errors whenever that changes, and with
    /// an empty text at the end. May be empty.
    std::function<void(const std::string&)> on_waiting;
    /// Upper bound of one answer's size; within it, the limit follows from the expected size.
    std::uint64_t max_response_bytes = std::uint64_t{4} << 30U;
    /// Memory kept in unused response buffers; at most a tenth of the spec's window_bytes.
    std::size_t max_idle_buffer_bytes = std::size_t{256} << 20U;
    std::chrono::milliseconds idle_limit{2500};  ///< how long an idle connection is kept
    /// Finds the addresses of hosts.
    HostLookup lookup = look_up_host;
    HostRule hosts{};      ///< hosts that may be connected to
    std::string bearer{};  ///< the key, instead of one that the spec names
    /// Counts the bytes on the wire, for callers that want to read them. May be null.
    std::shared_ptr<TrafficCounters> traffic;
    /// The protocols that the spec may name. The rows must outlive the teacher.
    std::span<const TeacherProtocolRow> protocols = teacher_protocols();
};

/// The teacher behind the endpoints of `spec`, over the protocol it names. `io` runs one thread or is a strand:
/// coroutines of the source run there. `decode` (a thread pool) parses and checks the answers to the probe. Fails on a
/// bad URL, a missing API key variable or an unreadable ca_file. Nothing is sent before probe() or fetch().
[[nodiscard]] Result<std::unique_ptr<TeacherSource>> make_remote_teacher(boost::asio::any_io_executor io,
                                                                         boost::asio::any_io_executor decode,
                                                                         const TeacherSpec& spec,
                                                                         RemoteTeacherOptions options = {});

}  // namespace distilld
