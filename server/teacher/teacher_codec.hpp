#pragma once

#include <boost/json/fwd.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "models/serving/teacher_scorer.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "pipeline/teacher/protocols/kserve/sample_codec.hpp"
#include "server/http/http_message.hpp"

/// Requests and answers of a teacher in both protocols: bodies in, bodies out, no I/O. Any thread.
namespace distilld::teacher {

/// Limits of a server, checked before memory is allocated.
struct ScoreLimits {
    std::uint64_t max_tokens = 16384;           ///< B · T of one request
    std::uint64_t max_body_bytes = 1ULL << 20;  ///< of a request
    std::uint64_t max_answer_bytes = 1ULL << 30;
};

/// Default k of a top-k request, if the vocabulary is large enough.
inline constexpr std::uint32_t kDefaultTopK = 64;

/// An inference request, checked against the model and the limits.
struct InferPlan {
    models::ScoreRequest score;
    std::vector<kserve::RequestedOutput> outputs;  ///< in the order of the answer; `binary` is set
    std::string id;
    std::uint64_t answer_bytes = 0;  ///< estimated size of the answer
};

/// The body of `POST /v2/models/{model}/infer`. `header_length` is the value of the HTTP header, if present.
Result<kserve::InferRequest> read_infer(std::shared_ptr<const std::string> body,
                                        std::optional<std::string_view> header_length, const ScoreLimits& limits);

/// The same for a model of tokens. Inputs: `input_ids` [B, T] and optional `seq_lens` [B], each INT32, UINT32 or
/// INT64. Parameters: `mode` "topk" | "logits" | "hidden" (default: the mode of the requested output; without one,
/// logits if top_k is 0, else topk), `top_k`, `logits_dtype` "FP16" | "FP32", `hidden_dtype` "FP16" | "BF16" | "FP32"
/// (default: the model's); others are ignored. Without `outputs`: topk_ids, topk_logprobs, token_logprobs and
/// tail_logprob, or logits, or hidden_states. Errors are invalid_input and name the tensor or parameter.
Result<InferPlan> parse_infer(const kserve::InferRequest& request, const models::ServedModel& model,
                              const ScoreLimits& limits);

/// The answer: binary outputs if requested, else JSON. Parameters: vocab_size, temperature 1, row_offset 0.
Result<kserve::EncodedMessage> build_infer(const InferPlan& plan, models::ScoreResult result,
                                           const models::ServedModel& model, std::string_view model_name);

/// An inference request to a TorchScript module, checked against its names.
struct SamplePlan {
    TokenBatch samples;
    std::vector<kserve::RequestedOutput> outputs;  ///< in the order of the answer; `binary` is set
    std::string id;
};

/// Each input has the samples as its first dimension, and one of kSampleDatatypes. Without `outputs`: all. Errors are
/// invalid_input and name the tensor.
Result<SamplePlan> parse_samples(kserve::InferRequest request, const kserve::SampleNames& names);

/// Estimated size of the answer with the module's outputs.
[[nodiscard]] std::uint64_t sample_answer_bytes(const SamplePlan& plan, const TeacherTargets& targets);

/// The answer: binary outputs if requested, else JSON, in the module's dtype.
Result<kserve::EncodedMessage> build_samples(const SamplePlan& plan, const TeacherTargets& targets,
                                             std::string_view model_name);

/// `GET /v2/models/{model}`. TorchScript does not say which shapes and datatypes a module takes.
std::string build_module_metadata(const models::ServedModel& model, const kserve::SampleNames& names,
                                  std::string_view model_name);

/// `GET /v2/models/{model}/head`, or the piece of it that a Range header requests: 206 with Content-Range, 416 if there
/// is no such piece, 304 for a matching If-None-Match. ETag is the quoted SHA-256 of the whole file. A range in another
/// form than `bytes=FIRST-LAST` or `bytes=FIRST-` is ignored, as in RFC 9110 §14.2.
http::Response head_answer(const models::ServedHead& head, const http::Request& request);
/// Bytes of that answer's body, known before it is made.
[[nodiscard]] std::uint64_t head_answer_bytes(const models::ServedHead& head, const http::Request& request);

/// `GET /v2/models/{model}`, with vocab_size, max_positions and similar parameters.
std::string build_metadata(const models::ServedModel& model, std::string_view model_name, const ScoreLimits& limits);

struct SeedPlan {
    models::ScoreRequest score;
    std::optional<std::string> model;  ///< as named in the request
    std::uint64_t answer_bytes = 0;
};

/// The JSON object of a request's body.
Result<boost::json::object> read_body(std::string_view body);

/// Whether a body of /v1/completions is in the seed's form, and not in OpenAI's.
[[nodiscard]] bool is_seed(const boost::json::object& body);

/// The seed's `{"input_ids": [[…]], "return_logits": true}` on /v1/completions. All rows must have the same length.
Result<SeedPlan> parse_seed(const boost::json::object& body, const models::ServedModel& model,
                            const ScoreLimits& limits);

/// `{"logits": [B][T][V]}`, with enough digits per number to restore the same fp32.
std::string build_seed(const models::ScoreRequest& request, const models::ScoreResult& result,
                       std::uint32_t vocabulary);

/// `{"error": message}`.
std::string error_body(std::string_view message);

}  // namespace distilld::teacher
