#pragma once

#include <string>

#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld::vllm {

/// vLLM's `/v1/completions`: no flag is needed, but `--max-logprobs` bounds top_k (20 unless set).
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_completions_adapter(
    const ProtocolSettings& settings);

/// vLLM's `/inference/v1/generate`, which it serves when started with `--enable-scale-out`.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_generate_adapter(const ProtocolSettings& settings);

/// Whether a server has `target`, that route: it complains of an empty request there.
boost::asio::awaitable<FetchResult<bool>> has_generate_route(ProbeDialogue& dialogue, std::string target);

/// `/v1` stands for `/v1/completions`: what OpenAI clients call the base URL.
[[nodiscard]] std::string complete_path(std::string path);

}  // namespace distilld::vllm
