#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/async/task_group.hpp"
#include "pipeline/core/job_spec.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"
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
    std::uint32_t logits = 0;      ///< of a row of logits; 0 before the probe, or where there are none

    [[nodiscard]] TargetsWanted wanted() const noexcept {
        return {spec.top_k, logits != 0 ? logits : vocabulary, spec.targets, vocabulary};
    }
};

/// How large an answer may be.
enum class AnswerBound {
    stated,  ///< as the codec states for the tokens of the request
    probe,   ///< nothing is expected of the answer yet: as large as that to a few tokens can be
};

/// One endpoint of a teacher and how it is spoken to. On one executor, a strand or with a single thread; any number of
/// requests at once.
class TeacherEndpoint {
  public:
    /// `resolver` outlives this.
    TeacherEndpoint(boost::asio::any_io_executor io, HostResolver& resolver, EndpointUrl url,
                    std::unique_ptr<const TeacherProtocolAdapter> protocol,
                    std::shared_ptr<boost::asio::ssl::context> tls, std::shared_ptr<TrafficCounters> traffic,
                    HttpPoolOptions options, std::shared_ptr<const TeacherSettings> settings);

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    /// What messages call another page of its server.
    [[nodiscard]] std::string page(std::string_view target) const { return pool_.url().page(target); }
    [[nodiscard]] const EndpointUrl& url() const noexcept { return pool_.url(); }
    [[nodiscard]] const TeacherProtocolAdapter& protocol() const noexcept { return *protocol_; }
    [[nodiscard]] const TeacherSettings& settings() const noexcept { return *settings_; }

    /// How micro-batches are asked for from now on; a probe asks with codecs of its own.
    void set_codec(std::shared_ptr<const TeacherCodec> codec) { codec_ = std::move(codec); }
    [[nodiscard]] const std::shared_ptr<const TeacherCodec>& codec() const noexcept { return codec_; }

    /// One request within the deadline, whatever the status of the answer. Throws operation_aborted when cancelled.
    boost::asio::awaitable<FetchResult<HttpResponse>> send(HttpRequest request, std::chrono::nanoseconds deadline);
    /// The requests of one micro-batch, as many at a time as the codec says, within the deadline; their answers are
    /// still to be decoded. Throws operation_aborted when cancelled.
    boost::asio::awaitable<FetchResult<EncodedAnswer>> request(std::shared_ptr<const TokenBatch> tokens,
                                                               std::chrono::nanoseconds deadline);
    /// The same, asked with `codec`, with the answers joined, decoded and checked.
    boost::asio::awaitable<FetchResult<EndpointAnswer>> ask(std::shared_ptr<const TeacherCodec> codec,
                                                            std::shared_ptr<const TokenBatch> tokens,
                                                            std::chrono::nanoseconds deadline,
                                                            AnswerBound bound = AnswerBound::stated);
    /// Closes idle connections.
    void close() { pool_.close(); }

  private:
    struct Plan {
        std::vector<RequestPart> parts;
        std::vector<HttpRequest> requests;  ///< one a part
    };
    /// Responses to the parts, in the same order.
    struct Answered {
        std::vector<RequestPart> parts;
        std::vector<HttpResponse> responses;
    };
    /// Requests of which several may be under way at once.
    struct Sending {
        std::vector<HttpRequest> requests;
        std::vector<std::optional<HttpResponse>> responses;
        std::size_t next = 0;
        std::optional<FetchError> failure;
        TaskGroup* group = nullptr;  ///< of those that send; null: one alone does
    };
    class AnswerDecoder;
    boost::asio::awaitable<FetchResult<Answered>> carry_out(const TeacherCodec& codec, const TokenBatch& tokens,
                                                            std::chrono::nanoseconds deadline, AnswerBound bound);
    [[nodiscard]] Result<Plan> plan(const TeacherCodec& codec, const TokenBatch& tokens, AnswerBound bound) const;
    boost::asio::awaitable<FetchResult<std::vector<HttpResponse>>> send_all(std::vector<HttpRequest> requests,
                                                                            std::uint32_t at_once);
    boost::asio::awaitable<void> send_one_by_one(Sending& sending);

    std::string name_;
    std::unique_ptr<const TeacherProtocolAdapter> protocol_;
    HttpPool pool_;
    std::shared_ptr<const TeacherSettings> settings_;
    std::shared_ptr<const TeacherCodec> codec_;
};

}  // namespace distilld
