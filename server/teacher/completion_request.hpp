#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/system/result.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/kinds/violation.hpp"

/// Requests in OpenAI's shapes, with additions by vLLM's names. Any thread.
namespace distilld::teacher {

/// A prompt as text or as token ids.
struct Prompt {
    std::optional<std::string> text{};
    std::vector<std::int32_t> ids{};
};

struct CompletionRequest {
    bool chat = false;
    std::string model;            ///< empty: the server's own
    std::vector<Prompt> prompts;  ///< of a completion
    boost::json::array messages;  ///< of a chat: role, content as text, and what else a template may use
    bool add_generation_prompt = true;
    boost::json::object template_arguments;

    std::optional<std::uint32_t> max_tokens;  ///< absent: 16 for a completion; all that is left for a chat
    std::uint32_t n = 1;                      ///< answers to each prompt
    double temperature = 1;
    double top_p = 1;
    std::uint32_t top_k = 0;  ///< 0: all
    std::optional<std::uint64_t> seed;
    std::vector<std::string> stop;
    std::vector<std::int32_t> stop_token_ids;
    bool ignore_eos = false;
    bool echo = false;
    std::optional<std::uint32_t> logprobs;  ///< how many of the likeliest tokens are named at each position
    bool stream = false;
    bool include_usage = false;  ///< the last event of a stream has it
    bool return_token_ids = false;
    bool skip_special_tokens = true;
    bool add_special_tokens = true;  ///< in front of and behind a text
};

/// Answers to one request, over all of its prompts.
inline constexpr std::size_t kMaxAnswers = 256;
inline constexpr std::uint32_t kMaxLogprobs = 20;

template <class T>
using Read = boost::system::result<T, api::Violation>;

/// The body of POST /v1/completions, if it is not in the seed's form, and of POST /v1/chat/completions. A field that
/// would change the answer and is not supported is an error, unless it has the value that changes nothing.
Read<CompletionRequest> read_completion(boost::json::object body);
Read<CompletionRequest> read_chat(boost::json::object body);

struct AdapterRequest {
    std::string name;
    std::string folder;
};
/// The body of POST /v1/load_lora_adapter, {lora_name, lora_path}, or of POST /v1/unload_lora_adapter, {lora_name}.
Read<AdapterRequest> read_adapter(const boost::json::object& body, bool with_folder);

struct WeightsRequest {
    std::string folder;
    std::string version = "default";
};
/// The body of POST /update_weights_from_disk, {model_path, weight_version}, as SGLang has it.
Read<WeightsRequest> read_weights(const boost::json::object& body);

/// The body of POST /tokenize: a completion of one prompt, or a chat.
Read<CompletionRequest> read_tokenize(boost::json::object body);
/// The body of POST /detokenize.
Read<std::vector<std::int32_t>> read_detokenize(boost::json::object body);

}  // namespace distilld::teacher
