#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "pipeline/teacher/transport/body_buffer.hpp"
#include "pipeline/teacher/transport/endpoint_url.hpp"
#include "pipeline/teacher/transport/http_pool.hpp"

namespace distilld {

/// One protocol spoken with one endpoint: how to ask for a micro-batch and how to read the answer. Immutable, any
/// thread, no I/O.
class TeacherAdapter {
  public:
    virtual ~TeacherAdapter() = default;

    [[nodiscard]] virtual Result<HttpRequest> make_request(const TokenBatch& tokens) const = 0;

    /// Shapes are checked, values are not (find_defect does). Views point into the body where the format allows.
    [[nodiscard]] virtual Result<TeacherTargets> decode(const HttpResponse& response,
                                                        const TokenBatch& tokens) const = 0;

    /// How this endpoint is asked, for the log.
    [[nodiscard]] virtual std::string description() const = 0;
};

/// What the student wants of every answer.
struct TargetsWanted {
    std::uint32_t top_k = 0;           ///< 0 = full logits
    std::uint32_t vocabulary = 0;      ///< the student's; 0 = not known yet
    std::uint64_t response_limit = 0;  ///< upper bound of any answer, whatever the expected size says
    bool probing = false;              ///< nothing is expected yet: response_limit alone bounds the answer
};

/// The seed's JSON: {"input_ids":[[…]],"return_logits":true} answered by {"logits":[B][T][V]}.
[[nodiscard]] std::unique_ptr<TeacherAdapter> make_seed_adapter(const EndpointUrl& url, const TargetsWanted& wanted,
                                                                std::shared_ptr<BufferPool> buffers);

/// How a KServe endpoint is spoken to; learnt by the probe.
struct KserveDialect {
    kserve::ModelMetadata metadata;
    bool binary_input = true;
    bool binary_output = true;     ///< false = the server answers with JSON: larger bodies are expected
    std::uint32_t honoured_k = 0;  ///< width of top-k rows; 0 = not known yet
};

/// The tensors of our own teacher: used until the metadata is known.
[[nodiscard]] kserve::ModelMetadata own_teacher_metadata(const std::string& model);

/// A KServe v2 teacher: top-k outputs (topk_ids, topk_logprobs, tail_logprob) when it has them and they are wanted,
/// else full logits (`logits` or TensorRT-LLM's `context_logits`), reduced here when top-k is wanted. The error names
/// the inputs or outputs that cannot be served.
[[nodiscard]] Result<std::unique_ptr<TeacherAdapter>> make_kserve_adapter(const EndpointUrl& url,
                                                                          const TargetsWanted& wanted,
                                                                          KserveDialect dialect);

/// Paths of the protocol beside the infer path `…/v2/models/NAME[/versions/V]/infer`.
struct KservePaths {
    std::string model;  ///< metadata
    std::string ready;  ///< server readiness
};
[[nodiscard]] Result<KservePaths> kserve_paths(const EndpointUrl& url);

}  // namespace distilld
