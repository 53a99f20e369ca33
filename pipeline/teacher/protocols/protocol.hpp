#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "net/body_buffer.hpp"
#include "net/endpoint_url.hpp"
#include "net/http_message.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/targets_choice.hpp"
#include "pipeline/teacher/request_parts.hpp"
#include "pipeline/teacher/teacher_source.hpp"

/// The parts of a protocol. A protocol is one folder (or file) next to this header and one row of registry.cpp.
namespace distilld {

/// What the student needs from every answer.
struct TargetsWanted {
    std::uint32_t top_k = 0;       ///< 0 = full logits
    std::uint32_t vocabulary = 0;  ///< the teacher's if known, else the student's; 0 = unknown yet
    TargetsChoice targets = TargetsChoice::automatic;
    std::uint32_t student = 0;  ///< vocabulary of the student: logits are cut to it before reduction; 0 = unknown
};

/// Encodes the requests for micro-batches to one endpoint, and decodes its answers. Immutable, any thread, no I/O.
class TeacherCodec {
  public:
    virtual ~TeacherCodec() = default;

    /// Splits a micro-batch into requests: parts that do not overlap and cover the position of every counted label. By
    /// default, one request for the whole batch.
    [[nodiscard]] virtual Result<std::vector<RequestPart>> plan_requests(const TokenBatch& tokens) const {
        return std::vector<RequestPart>{whole_batch(tokens)};
    }

    /// Parts that may be in flight at a time: one if a micro-batch is split for the server's limits; more if requests
    /// hold one sequence and the server batches them itself.
    [[nodiscard]] virtual std::uint32_t max_parts_at_once() const noexcept { return 1; }

    /// The request for one part of plan_requests(). The caller sets the response limit.
    [[nodiscard]] virtual Result<HttpRequest> make_request(const TokenBatch& tokens, const RequestPart& part) const = 0;

    /// Targets of part.rows × part.columns positions. Shapes are checked, values are not (find_defect() does that).
    /// Views point into the body if the format allows it.
    [[nodiscard]] virtual Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch& tokens,
                                                        const RequestPart& part) const = 0;

    /// Size of the answer for `rows` sequences with `columns` positions in one request.
    [[nodiscard]] virtual AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const = 0;

    /// Describes the requests, for the log.
    [[nodiscard]] virtual std::string description() const = 0;
};

/// A decoded, checked answer to one micro-batch.
struct EndpointAnswer {
    TeacherTargets targets;
    std::vector<HttpResponse> responses;  ///< one per request, for their headers; without bodies
};

/// A protocol's requests to an endpoint during the negotiation. While the endpoint is not up, they are repeated until
/// the probe gives up. On the endpoint's executor. Throws operation_aborted when cancelled.
class ProbeDialogue {
  public:
    virtual ~ProbeDialogue() = default;

    /// Name of the page at this target, for messages.
    [[nodiscard]] virtual std::string page(std::string_view target) const = 0;

    /// Sends a request about the endpoint itself and returns its answer, with any status; answers above 1 MiB fail. A
    /// status of a starting server (429, 502 to 504, `loading_status`, or a 400 with such a text) is retried, and
    /// finally fails with is_outage(). Messages name the page.
    virtual boost::asio::awaitable<FetchResult<HttpResponse>> send(HttpRequest request,
                                                                   std::optional<unsigned> loading_status) = 0;

    /// Sends the probe's tokens with `codec`; the answer is decoded and checked.
    virtual boost::asio::awaitable<FetchResult<EndpointAnswer>> ask(std::shared_ptr<const TeacherCodec> codec) = 0;
};

/// Where an endpoint offers the head for its hidden states.
struct HeadOffer {
    std::string target;  ///< path and query of a GET; the answer is a safetensors file with one tensor [V, H]
    std::string sha256;  ///< of that file, 64 lower-case hex digits
};

/// Result of a protocol's negotiation with one endpoint.
struct Negotiated {
    std::shared_ptr<const TeacherCodec> codec;  ///< for micro-batches from now on
    TeacherTargets answer;                      ///< to the probe's tokens
    std::optional<HeadOffer> head{};            ///< with hidden states
    std::optional<TeacherTargets> told{};       ///< with hidden states: the teacher's own rows of the probe's tokens
    TokenizerSigns tokenizer{};                 ///< what the server reports
    std::string note{};                         ///< a hint for faster requests, one line; empty: none
};

/// One protocol for one endpoint. Immutable.
class TeacherProtocolAdapter {
  public:
    virtual ~TeacherProtocolAdapter() = default;

    /// The codec before the negotiation. Errors name the endpoint.
    [[nodiscard]] virtual Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted wanted) const = 0;

    /// Negotiates with the endpoint: asks about the server, settles the form of row requests, and gets a first answer.
    /// On the endpoint's executor. A failure with is_outage() means that the endpoint did not come up; any other
    /// failure means that it is unusable. Throws operation_aborted when cancelled.
    virtual boost::asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue,
                                                                      TargetsWanted wanted) const = 0;
};

/// The input for making an adapter.
struct ProtocolSettings {
    EndpointUrl url;
    std::string model;  ///< /teacher/model
    std::shared_ptr<BufferPool> buffers;
    std::vector<std::string> inputs{};   ///< /teacher/inputs; empty: the teacher answers tokens
    std::vector<std::string> outputs{};  ///< /teacher/outputs
};

/// Fails on a URL that the protocol cannot use; the error names it. Sends nothing.
using MakeProtocolAdapter = Result<std::unique_ptr<TeacherProtocolAdapter>> (*)(const ProtocolSettings&);

/// Maximum bytes of `numbers` in JSON: from the average per number in the probe's answer (0 = unknown), with a margin,
/// but at most `bound`.
[[nodiscard]] inline std::uint64_t json_wire_bytes(std::uint64_t numbers, double bytes_each, std::uint64_t bound) {
    constexpr double kRoom = 1.2;
    constexpr double kEnvelope = 4096;
    const double expected = static_cast<double>(numbers) * bytes_each * kRoom + kEnvelope;
    return bytes_each > 0 && expected < static_cast<double>(bound) ? static_cast<std::uint64_t>(expected) : bound;
}

/// Memory for decoding a JSON answer, on top of the larger of its text and its targets: a bound for the smaller of the
/// two, and simdjson's index of four bytes per value and punctuation mark (`marks` in all).
[[nodiscard]] constexpr std::uint64_t json_decode_bytes(std::uint64_t held_bytes, std::uint64_t marks) noexcept {
    return held_bytes + 4 * marks;
}

/// Prefixes a failure to answer the probe's tokens.
[[nodiscard]] inline FetchError failed_probe(FetchError failure) {
    failure.message = "the teacher fails the probe: " + failure.message;
    return failure;
}

}  // namespace distilld
