#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/serving/teacher_scorer.hpp"
#include "pipeline/async/condition.hpp"
#include "server/http/http_server.hpp"
#include "server/teacher/answer_memory.hpp"
#include "server/teacher/completion_answer.hpp"
#include "server/teacher/generation_queue.hpp"
#include "server/teacher/served_adapters.hpp"
#include "server/teacher/served_text.hpp"

namespace distilld::teacher {

struct CompletionOptions {
    std::string model_name = "teacher";
    std::uint64_t max_answer_bytes = 1ULL << 30;
    std::uint32_t max_adapters = 16;
};

/// A served model as an inference server: text in OpenAI's shapes, with vLLM's additions. Runs on the server's
/// executor; text is encoded and large answers are built on `encode`.
class CompletionService {
  public:
    CompletionService(boost::asio::any_io_executor encode, GenerationQueue& queue, AnswerMemory& memory,
                      CompletionOptions options);
    CompletionService(const CompletionService&) = delete;
    CompletionService& operator=(const CompletionService&) = delete;

    /// The model that the queue's generator runs. Both must outlive this object and its answers.
    void set_model(const models::ServedModel& model, const models::GeneratorLimits& limits, const ServedText& text);

    /// POST /v1/completions in OpenAI's form; that path is the caller's, because the seed's form has it too.
    boost::asio::awaitable<http::Response> complete(boost::json::object body);
    /// The other routes, which refer to this object.
    [[nodiscard]] std::vector<http::Route> routes();

  private:
    boost::asio::awaitable<http::Response> chat(http::Request request);
    boost::asio::awaitable<http::Response> tokenize(http::Request request);
    boost::asio::awaitable<http::Response> detokenize(http::Request request);
    boost::asio::awaitable<http::Response> load_adapter(http::Request request);
    boost::asio::awaitable<http::Response> unload_adapter(http::Request request);
    boost::asio::awaitable<http::Response> update_weights(http::Request request);
    boost::asio::awaitable<http::Response> answer(CompletionRequest request);
    /// Makes a chat's messages its prompt. An answer if that cannot be.
    boost::asio::awaitable<std::optional<http::Response>> render(CompletionRequest& request);
    [[nodiscard]] http::Response tokenizer_info() const;
    [[nodiscard]] http::Response model_list() const;

    /// An answer without the request's being computed: the model is missing, or another one is wanted.
    [[nodiscard]] std::optional<http::Response> refusal(const std::string& model) const;
    /// Gives every prompt its ids. On `encode`.
    [[nodiscard]] Result<void> encode_prompts(CompletionRequest& request) const;
    [[nodiscard]] std::uint32_t tokens_left(const CompletionRequest& request) const;

    boost::asio::any_io_executor encode_;
    GenerationQueue& queue_;
    AnswerMemory& memory_;
    const CompletionOptions options_;
    ServedAdapters adapters_;
    const models::ServedModel* model_ = nullptr;
    models::GeneratorLimits limits_;
    const ServedText* text_ = nullptr;
    std::uint32_t rendering_ = 0;  ///< chats whose templates are being rendered
    Condition rendered_;
};

}  // namespace distilld::teacher
