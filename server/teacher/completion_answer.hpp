#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/teacher/answer_text.hpp"
#include "server/teacher/completion_request.hpp"
#include "server/teacher/generation_queue.hpp"

namespace distilld::teacher {

/// A request, ready to be generated.
struct CompletionPlan {
    CompletionRequest asked;  ///< of the prompts' texts, none is left without ids
    std::string id;           ///< of the answer
    std::int64_t created = 0;
    std::string model;  ///< as the answer names it
    std::vector<std::int32_t> end_ids;
    std::uint32_t max_tokens = 0;
    std::shared_ptr<models::LoadedAdapter> adapter;  ///< null: the model itself
    std::string weight_version{};                    ///< of weights in place of the model's; empty: its own

    /// The sequences, asked.n for each prompt.
    [[nodiscard]] std::vector<models::GenerationRequest> sequences(std::uint64_t seed) const;
};

/// The answer to a request in OpenAI's shapes, made as its sequences go on. Any thread, one at a time.
class CompletionAnswer {
  public:
    /// `tokenizer`: null if the model has none; then texts are empty and tokens are named "token_id:N". Must outlive
    /// this.
    CompletionAnswer(CompletionPlan plan, const Tokenizer* tokenizer);

    /// Takes the news. Returns the sequences that have come to a stop text, to be ended.
    std::vector<std::size_t> take(const std::vector<GenerationNews>& news);
    /// Set if the model failed in one of the sequences.
    [[nodiscard]] bool failed() const { return failed_; }

    /// The answer, when all sequences have ended.
    [[nodiscard]] boost::json::object whole();
    /// Server-sent events with what is new since the last call.
    [[nodiscard]] std::string events();
    /// The events behind the last token.
    [[nodiscard]] std::string last_events() const;

    [[nodiscard]] bool streams() const { return plan_.asked.stream; }

  private:
    struct Choice {
        std::optional<AnswerText> text{};
        std::string unsent{};
        std::vector<models::SaidToken> said{};  ///< of the prompt too with echo, whose first one has a NaN
        std::size_t sent = 0;                   ///< of `said`
        std::size_t offset = 0;                 ///< of the next token in the text, in code points
        std::size_t prompt_size = 0;            ///< tokens of the prompt among `said`
        bool begun = false;                     ///< a client has seen some of it
        std::optional<std::string> finish_reason{};
        boost::json::value stop_reason{};
    };

    void begin(std::size_t prompt, Choice& choice);
    [[nodiscard]] bool is_end(std::int32_t id) const;
    [[nodiscard]] boost::json::object envelope(bool whole) const;
    [[nodiscard]] boost::json::object usage() const;
    /// The news of a choice, which is then sent.
    [[nodiscard]] boost::json::object choice_object(std::size_t index, bool whole);
    [[nodiscard]] boost::json::value logprobs_of(Choice& choice) const;
    [[nodiscard]] boost::json::object completion_logprobs(Choice& choice) const;
    [[nodiscard]] boost::json::object chat_logprobs(const Choice& choice) const;
    [[nodiscard]] std::string name_of_token(std::int32_t id) const;

    CompletionPlan plan_;
    const Tokenizer* tokenizer_;
    std::vector<Choice> choices_;
    std::uint64_t generated_ = 0;
    bool failed_ = false;
};

/// `{"error": {message, type, param, code}}`. `parameter` may be empty.
[[nodiscard]] boost::json::object openai_error(unsigned status, const std::string& message,
                                               const std::string& parameter = {}, const std::string& code = {});

/// One server-sent event.
[[nodiscard]] std::string event_of(const boost::json::object& object);

}  // namespace distilld::teacher
