#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "pipeline/teacher/protocols/kserve/model_config.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld::kserve {

/// How a KServe endpoint is spoken to; learnt by the negotiation.
struct Dialect {
    ModelMetadata metadata;
    ModelConfig config;                  ///< what the server says of the model beside its metadata
    bool binary_tensor_requests = true;  ///< inputs go as binary tensor data, else as JSON
    bool binary_tensor_answers = true;   ///< so do outputs; else larger bodies are expected
    double json_number_bytes = 0;        ///< of a number in a JSON answer, on the average; 0 = not known yet
    std::uint32_t honoured_k = 0;        ///< width of top-k rows; 0 = not known yet
};

/// The tensors of our own teacher: used until the metadata is known.
[[nodiscard]] ModelMetadata own_teacher_metadata(const std::string& model);

/// Asks for the outputs that choose_output() finds. A
/// micro-batch takes several requests when the metadata's parameters or the configuration state less: `max_batch_size`
/// sequences, or `max_tokens` positions. `buffers` (may be null) are for tensors that come as JSON. The error names the
/// inputs or outputs that cannot be served.
[[nodiscard]] Result<std::shared_ptr<const TeacherCodec>> make_infer_codec(const EndpointUrl& url, TargetsWanted wanted,
                                                                           Dialect dialect,
                                                                           std::shared_ptr<BufferPool> buffers = {});

}  // namespace distilld::kserve
