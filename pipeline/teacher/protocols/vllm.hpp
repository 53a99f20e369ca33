#pragma once

#include <string>

#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld::vllm {

/// vLLM's `/v1/completions`: needs no flag, but `--max-logprobs` bounds top_k (20 by default).
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_completions_adapter(
    const ProtocolSettings& settings);

/// vLLM's `/inference/v1/generate`, available if it is started with `--enable-scale-out`.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_generate_adapter(const ProtocolSettings& settings);

/// Whether a server has the generate route at `target`: it then rejects an empty request.
boost::asio::awaitable<FetchResult<bool>> has_generate_route(ProbeDialogue& dialogue, std::string target);

/// Completes `/v1`, the base URL of OpenAI clients, to `/v1/completions`.
[[nodiscard]] std::string complete_path(std::string path);

}  // namespace distilld::vllm
