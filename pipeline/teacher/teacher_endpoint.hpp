#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "pipeline/core/job_spec.hpp"
#include "pipeline/teacher/teacher_adapter.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "pipeline/teacher/transport/body_buffer.hpp"
#include "pipeline/teacher/transport/http_pool.hpp"

namespace distilld {

/// What the endpoints of one teacher have in common.
struct TeacherSettings {
    TeacherSpec spec;
    std::uint64_t max_response_bytes = 0;
    std::shared_ptr<BufferPool> buffers;
    boost::asio::any_io_executor decode;
    std::uint32_t vocabulary = 0;  ///< the student's; 0 before the probe
};

/// One decoded, checked answer and the form it came in.
struct EndpointAnswer {
    TeacherTargets targets;
    bool binary = false;
};

/// One endpoint of a teacher and how it is spoken to. On one executor, a strand or with a single thread; any number of
/// requests at once.
class TeacherEndpoint {
  public:
    TeacherEndpoint(boost::asio::any_io_executor io, EndpointUrl url, std::shared_ptr<boost::asio::ssl::context> tls,
                    std::shared_ptr<TrafficCounters> traffic, HttpPoolOptions options,
                    std::shared_ptr<const TeacherSettings> settings);

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] const EndpointUrl& url() const noexcept { return pool_.url(); }

    /// The adapter of the settings' protocol. `probing`: nothing is expected of the answer's size yet.
    [[nodiscard]] Result<std::shared_ptr<const TeacherAdapter>> make_adapter(KserveDialect dialect, bool probing) const;
    /// How micro-batches are asked about from now on; a probe asks with adapters of its own.
    void set_adapter(std::shared_ptr<const TeacherAdapter> adapter) { adapter_ = std::move(adapter); }
    [[nodiscard]] const std::shared_ptr<const TeacherAdapter>& adapter() const noexcept { return adapter_; }

    /// One request within the deadline, whatever the status of the answer. Throws operation_aborted when cancelled.
    boost::asio::awaitable<FetchResult<HttpResponse>> send(HttpRequest request, std::chrono::nanoseconds deadline);
    /// One request and its decoded, checked answer. Throws operation_aborted when cancelled.
    boost::asio::awaitable<FetchResult<EndpointAnswer>> ask(std::shared_ptr<const TeacherAdapter> adapter,
                                                            std::shared_ptr<const TokenBatch> tokens,
                                                            std::chrono::nanoseconds deadline);
    /// Closes idle connections.
    void close() { pool_.close(); }

  private:
    std::string name_;
    HttpPool pool_;
    std::shared_ptr<const TeacherSettings> settings_;
    std::shared_ptr<const TeacherAdapter> adapter_;
};

}  // namespace distilld
