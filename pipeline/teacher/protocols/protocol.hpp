#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/targets_choice.hpp"
#include "pipeline/teacher/request_parts.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "pipeline/teacher/transport/body_buffer.hpp"
#include "pipeline/teacher/transport/endpoint_url.hpp"
#include "pipeline/teacher/transport/http_message.hpp"

/// What a protocol is made of. A protocol is one folder (or file) beside this header and one row of registry.cpp.
namespace distilld {

/// What the student wants of every answer.
struct TargetsWanted {
    std::uint32_t top_k = 0;       ///< 0 = full logits
    std::uint32_t vocabulary = 0;  ///< the teacher's where it is known, else the student's; 0 = not known yet
    TargetsChoice targets = TargetsChoice::automatic;
    std::uint32_t student = 0;  ///< ids of the student, to which logits are cut before they are reduced; 0 = not known
};

/// How one endpoint is asked for a micro-batch and how its answers are read. Immutable, any thread, no I/O.
class TeacherCodec {
  public:
    virtual ~TeacherCodec() = default;

    /// The requests that a micro-batch takes; parts that do not overlap. The position of every label that counts lies
    /// in one of them. Unless a protocol says otherwise, one request asks for the whole batch.
    [[nodiscard]] virtual Result<std::vector<RequestPart>> plan_requests(const TokenBatch& tokens) const {
        return std::vector<RequestPart>{whole_batch(tokens)};
    }

    /// Parts that may be under way at a time. One where a micro-batch is split because the server cannot do with more;
    /// more where its requests take no more than a sequence, and it batches them itself.
    [[nodiscard]] virtual std::uint32_t max_parts_at_once() const noexcept { return 1; }

    /// The request for one part of plan_requests. The response limit is the caller's to set.
    [[nodiscard]] virtual Result<HttpRequest> make_request(const TokenBatch& tokens, const RequestPart& part) const = 0;

    /// Targets of part.rows × part.columns positions. Shapes are checked, values are not (find_defect does). Views
    /// point into the body where the format allows.
    [[nodiscard]] virtual Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch& tokens,
                                                        const RequestPart& part) const = 0;

    /// Of the answer for `rows` sequences with `columns` positions, when one request asks for them.
    [[nodiscard]] virtual AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const = 0;

    /// How this endpoint is asked, for the log.
    [[nodiscard]] virtual std::string description() const = 0;
};

/// A decoded, checked answer to one micro-batch.
struct EndpointAnswer {
    TeacherTargets targets;
    std::vector<HttpResponse> responses;  ///< one a request, for what their headers tell; without their bodies
};

/// What a protocol says to an endpoint while it learns how to speak to it. While the endpoint is not up, it is asked
/// again until the probe gives up. On the endpoint's executor. Throws operation_aborted when cancelled.
class ProbeDialogue {
  public:
    virtual ~ProbeDialogue() = default;

    /// What messages call the page that answers requests with this target.
    [[nodiscard]] virtual std::string page(std::string_view target) const = 0;

    /// A question about the endpoint itself and its answer, whatever the status; answers above 1 MiB fail. A status
    /// that says that the server is starting (429, 502 to 504, `loading_status`, when there is one, and a 400 that says
    /// so in words) is asked again, and fails at the end with a kind for which is_outage() holds. Messages name the
    /// page.
    virtual boost::asio::awaitable<FetchResult<HttpResponse>> send(HttpRequest request,
                                                                   std::optional<unsigned> loading_status) = 0;

    /// The probe's few tokens asked with `codec`; the answer is decoded and checked.
    virtual boost::asio::awaitable<FetchResult<EndpointAnswer>> ask(std::shared_ptr<const TeacherCodec> codec) = 0;
};

/// Where an endpoint gives away the head that its hidden states are for.
struct HeadOffer {
    std::string target;  ///< path and query of a GET; the answer is a safetensors file with one tensor [V, H]
    std::string sha256;  ///< of that file, 64 lower-case hex digits
};

/// What a protocol learnt of one endpoint.
struct Negotiated {
    std::shared_ptr<const TeacherCodec> codec;  ///< asks for micro-batches from now on
    TeacherTargets answer;                      ///< to the probe's tokens
    std::optional<HeadOffer> head{};            ///< with hidden states
    std::optional<TeacherTargets> told{};       ///< with hidden states: the teacher's own rows of the probe's tokens
    TokenizerSigns tokenizer{};                 ///< what the server tells of it
    std::string note{};                         ///< how it could be asked better, one line; empty: nothing to say
};

/// One protocol spoken with one endpoint. Immutable.
class TeacherProtocolAdapter {
  public:
    virtual ~TeacherProtocolAdapter() = default;

    /// How the endpoint is asked when nothing has been learnt of it. Errors name the endpoint.
    [[nodiscard]] virtual Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted wanted) const = 0;

    /// Learns how to speak to the endpoint: what it is asked about itself, in which forms it is asked for rows, and
    /// what its first answer shows. On the endpoint's executor. A failure for which is_outage() holds means that it did
    /// not come up; any other, that it is no teacher for us. Throws operation_aborted when cancelled.
    virtual boost::asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue,
                                                                      TargetsWanted wanted) const = 0;
};

/// What an adapter is made from.
struct ProtocolSettings {
    EndpointUrl url;
    std::string model;  ///< /teacher/model
    std::shared_ptr<BufferPool> buffers;
};

/// Fails on a URL that the protocol cannot use; the error names it. Nothing is sent.
using MakeProtocolAdapter = Result<std::unique_ptr<TeacherProtocolAdapter>> (*)(const ProtocolSettings&);

/// Text of `numbers` in JSON at most, from what one took in the probe's answer on the average (0 = not known), with
/// room for longer ones, and no more than `bound`.
[[nodiscard]] inline std::uint64_t json_wire_bytes(std::uint64_t numbers, double bytes_each, std::uint64_t bound) {
    constexpr double kRoom = 1.2;
    constexpr double kEnvelope = 4096;
    const double expected = static_cast<double>(numbers) * bytes_each * kRoom + kEnvelope;
    return bytes_each > 0 && expected < static_cast<double>(bound) ? static_cast<std::uint64_t>(expected) : bound;
}

/// Memory that decoding a JSON answer takes beside its text, or beside what is made of it where that is more: the other
/// of the two, and simdjson's index of four bytes for each value and each mark of punctuation, `marks` in all.
[[nodiscard]] constexpr std::uint64_t json_decode_bytes(std::uint64_t held_bytes, std::uint64_t marks) noexcept {
    return held_bytes + 4 * marks;
}

/// A failure to answer the probe's tokens.
[[nodiscard]] inline FetchError failed_probe(FetchError failure) {
    failure.message = "the teacher fails the probe: " + failure.message;
    return failure;
}

}  // namespace distilld
