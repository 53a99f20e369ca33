#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/traffic_counters.hpp"
#include "pipeline/async/condition.hpp"
#include "pipeline/teacher/probe/endpoint_probe.hpp"
#include "pipeline/teacher/probe/teacher_fingerprint.hpp"
#include "pipeline/teacher/remote_teacher.hpp"
#include "pipeline/teacher/teacher_endpoint.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// An endpoint of a teacher, and whether it takes part.
struct Replica {
    std::unique_ptr<TeacherEndpoint> at;
    std::shared_ptr<const TrafficCounters> traffic;
    bool absent = false;                   ///< was not up, failed, or is in doubt: it must pass the probe first
    bool joining = false;                  ///< a fetch is probing it
    std::string not_up;                    ///< its last error while the probe waited for it
    std::optional<FetchError> not_joined;  ///< result of the last try to join
};

/// The endpoints of one teacher, and which of them take part. The probe decides that at the start, when an endpoint
/// joins, and when two differ. On one executor, a strand or with a single thread.
class Replicas {
  public:
    /// `options` must outlive this.
    Replicas(boost::asio::any_io_executor io, const RemoteTeacherOptions& options,
             std::shared_ptr<TeacherSettings> settings);

    void add(std::unique_ptr<TeacherEndpoint> endpoint, std::shared_ptr<const TrafficCounters> traffic);
    [[nodiscard]] const std::vector<Replica>& all() const noexcept { return replicas_; }

    /// Probes all endpoints at once. Once one has passed, endpoints that are down are not waited for. The first in the
    /// list that passed defines the run's teacher. Throws operation_aborted when cancelled.
    boost::asio::awaitable<Result<TeacherInfo>> probe();
    /// The probe of the endpoint that defines the run's teacher. Valid after probe().
    [[nodiscard]] const EndpointProbe& reference() const { return *reference_; }
    [[nodiscard]] EndpointProbeOptions probe_options(std::chrono::nanoseconds timeout) const;
    [[nodiscard]] std::vector<TeacherEndpoint*> taking_part() const;

    /// Probes an absent endpoint, and lets it take part if it passes; does nothing for others. One caller probes, the
    /// others wait for the result. Throws operation_aborted when cancelled.
    boost::asio::awaitable<FetchResult<void>> join(std::size_t index, std::chrono::nanoseconds deadline);

    /// The replica that must answer the same micro-batch as `asked`, for comparison; empty if none.
    [[nodiscard]] std::optional<std::size_t> second_for(std::size_t asked, std::uint64_t micro_batch) const;
    /// Two differing replicas must pass the probe again; the one that no longer answers like the run's teacher stays
    /// out.
    void part(const ReplicaDifference& found);

  private:
    using Probed = std::vector<std::optional<FetchResult<EndpointProbe>>>;  // empty: no result in time

    [[nodiscard]] static bool passed(const Probed::value_type& one) { return one && *one; }
    void report_waiting(const Probed& probed);
    void stop_waiting();
    boost::asio::awaitable<void> probe_one(std::size_t index, Probed& probed, Condition& changed);
    [[nodiscard]] bool hears(const Probed& probed) const;
    boost::asio::awaitable<void> probe_all(Probed& probed);
    Result<TeacherInfo> sum_up(Probed& probed);
    void warn(const std::string& text) const;
    void warn_of_half_precision(const Replica& replica, bool half_precision) const;

    boost::asio::any_io_executor io_;
    const RemoteTeacherOptions& options_;
    std::shared_ptr<TeacherSettings> settings_;
    std::vector<Replica> replicas_;
    std::string waiting_for_;                 ///< last text passed to on_waiting
    std::optional<EndpointProbe> reference_;  ///< the probe of the endpoint that defines the run's teacher
    std::string reference_name_;              ///< name of that endpoint
    bool reproducible_ = true;                ///< all answers to the probe were the same
    Condition joined_;                        ///< notified when an attempt to join ends
};

}  // namespace distilld
