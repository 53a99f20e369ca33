#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "pipeline/teacher/protocols/kserve/output_choice.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld::kserve {

/// Result of the negotiation with a KServe endpoint.
struct Dialect {
    ModelMetadata metadata;
    ModelConfig config;                  ///< what the server reports outside of the metadata
    bool binary_tensor_requests = true;  ///< inputs are sent as binary tensors, else as JSON
    bool binary_tensor_answers = true;   ///< likewise outputs; else larger bodies are expected
    double json_number_bytes = 0;        ///< average bytes of a number in a JSON answer; 0 = unknown
    std::uint32_t honoured_k = 0;        ///< width of top-k rows; 0 = unknown yet
    std::uint64_t sample_bytes = 0;      ///< of the outputs for a sample; 0 = unknown yet
};

/// Sequences or samples that a request may have; 0 = any number.
[[nodiscard]] std::uint64_t max_rows_of(const Dialect& dialect);

/// How requests and answers are sent, for the log. `rows`: "sequences" or "samples".
[[nodiscard]] std::string transport_text(const Dialect& dialect, const char* rows);

/// The tensors of our own teacher: assumed until the metadata is known.
[[nodiscard]] ModelMetadata own_teacher_metadata(const std::string& model);

/// Requests the outputs that choose_output() finds. A micro-batch takes several requests if the metadata's parameters
/// or the configuration limit a request to fewer sequences (`max_batch_size`) or positions (`max_tokens`). `buffers`
/// (may be null) are for tensors that come as JSON. The error names the unsupported inputs or outputs.
[[nodiscard]] Result<std::shared_ptr<const TeacherCodec>> make_infer_codec(const EndpointUrl& url, TargetsWanted wanted,
                                                                           Dialect dialect,
                                                                           std::shared_ptr<BufferPool> buffers = {});

}  // namespace distilld::kserve
