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

#include "net/body_buffer.hpp"
#include "net/http_pool.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/core/spec_sections.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Shared by the endpoints of one teacher.
struct TeacherSettings {
    TeacherSpec spec;
    std::uint64_t max_response_bytes = 0;
    std::shared_ptr<BufferPool> buffers;
    boost::asio::any_io_executor decode;
    std::shared_ptr<const TokenBatch> samples;  ///< what the probe asks a teacher of samples about; null: of tokens
    std::uint32_t vocabulary = 0;               ///< the student's; 0 before the probe
    std::uint32_t logits = 0;                   ///< width of a row of logits; 0 before the probe, or without logits

    [[nodiscard]] TargetsWanted wanted() const noexcept {
        return {spec.top_k, logits != 0 ? logits : vocabulary, spec.targets, vocabulary};
    }
};

/// Limit of an answer's size.
enum class AnswerBound {
    stated,  ///< as the codec states for the request
    probe,   ///< unknown yet: the limit for an answer to a few tokens
};

/// One endpoint of a teacher with its codec. On one executor, a strand or with a single thread; any number of requests
/// at once.
class TeacherEndpoint {
  public:
    /// `resolver` must outlive this.
    TeacherEndpoint(boost::asio::any_io_executor io, HostResolver& resolver, EndpointUrl url,
                    std::unique_ptr<const TeacherProtocolAdapter> protocol,
                    std::shared_ptr<boost::asio::ssl::context> tls, std::shared_ptr<TrafficCounters> traffic,
                    HttpPoolOptions options, std::shared_ptr<const TeacherSettings> settings);

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    /// Name of another page of its server, for messages.
    [[nodiscard]] std::string page(std::string_view target) const { return pool_.url().page(target); }
    [[nodiscard]] const EndpointUrl& url() const noexcept { return pool_.url(); }
    [[nodiscard]] const TeacherProtocolAdapter& protocol() const noexcept { return *protocol_; }
    [[nodiscard]] const TeacherSettings& settings() const noexcept { return *settings_; }

    /// The codec for micro-batches from now on; a probe uses its own codecs.
    void set_codec(std::shared_ptr<const TeacherCodec> codec) { codec_ = std::move(codec); }
    [[nodiscard]] const std::shared_ptr<const TeacherCodec>& codec() const noexcept { return codec_; }

    /// Sends one request and returns its answer with any status. Throws operation_aborted when cancelled.
    boost::asio::awaitable<FetchResult<HttpResponse>> send(HttpRequest request, std::chrono::nanoseconds deadline);
    /// Sends the requests of one micro-batch, as many at a time as the codec allows, all within the deadline. Answers
    /// are not yet decoded. Throws operation_aborted when cancelled.
    boost::asio::awaitable<FetchResult<EncodedAnswer>> request(std::shared_ptr<const TokenBatch> tokens,
                                                               std::chrono::nanoseconds deadline);
    /// The same with `codec`; the answers are joined, decoded and checked.
    boost::asio::awaitable<FetchResult<EndpointAnswer>> ask(std::shared_ptr<const TeacherCodec> codec,
                                                            std::shared_ptr<const TokenBatch> tokens,
                                                            std::chrono::nanoseconds deadline,
                                                            AnswerBound bound = AnswerBound::stated);
    /// Closes idle connections.
    void close() { pool_.close(); }

  private:
    struct Plan {
        std::vector<RequestPart> parts;
        std::vector<HttpRequest> requests;  ///< one per part
    };
    /// Responses to the parts, in the same order.
    struct Answered {
        std::vector<RequestPart> parts;
        std::vector<HttpResponse> responses;
    };
    /// Shared by the coroutines that send the requests.
    struct Sending {
        std::vector<HttpRequest> requests;
        std::vector<std::optional<HttpResponse>> responses;
        std::size_t next = 0;
        std::optional<FetchError> failure;
        TaskGroup* group = nullptr;  ///< group of these coroutines; null if there is only one
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
