#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld::vllm {

/// The two routes on which vLLM tells the log-probabilities of a prompt.
enum class Route {
    completions,  ///< POST /v1/completions: many prompts a request
    generate,     ///< POST /inference/v1/generate: tokens in, tokens out; one prompt a request
};

struct CodecOptions {
    Route route = Route::completions;
    std::string target;  ///< path and query
    std::string model;
    TargetsWanted wanted;
    std::uint64_t max_model_len = 0;  ///< tokens of a prompt and of what is generated; 0 = not known
    double entry_bytes = 0;           ///< of the JSON of one entry of a row, on the average; 0 = not known yet
    std::shared_ptr<BufferPool> buffers = std::make_shared<BufferPool>();  ///< of the rows
};

/// Asks for `prompt_logprobs` and reads them. Both routes answer with, for each prompt, an array of one entry a token:
/// null, then objects keyed by the decimal token id, of k or k + 1 members: the prompt's own token is always there.
[[nodiscard]] std::shared_ptr<const TeacherCodec> make_codec(const CodecOptions& options);

}  // namespace distilld::vllm
