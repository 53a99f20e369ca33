#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pipeline/teacher/protocols/json_answer.hpp"
#include "pipeline/teacher/protocols/prompt_rows.hpp"

/// What the protocols share whose servers score prompts (prompt_rows.hpp) and answer in JSON.
namespace distilld {

class PromptScoringCodec : public TeacherCodec {
  public:
    struct Options {
        std::string target;  ///< path and query
        TargetsWanted wanted;
        std::uint64_t max_entry_bytes = 0;  ///< of the body for one entry of a row, at most on the average
        double entry_bytes = 0;             ///< the same as the probe's answer had it; 0 = not known yet
        std::uint64_t max_tokens = 0;       ///< of a prompt and of what is generated; 0 = not known
        std::uint64_t generated = 0;        ///< tokens that the server generates beside
        std::shared_ptr<BufferPool> buffers = std::make_shared<BufferPool>();  ///< of the rows
    };

    explicit PromptScoringCodec(Options options) : options_(std::move(options)) {}

    /// Refuses prompts that the server would not take. Splits nothing.
    Result<std::vector<RequestPart>> plan_requests(const TokenBatch& tokens) const override;
    Result<HttpRequest> make_request(const TokenBatch& tokens, const RequestPart& part) const final;
    Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch& tokens,
                                  const RequestPart& part) const final;
    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const final;

  protected:
    /// The request's JSON; `entries` of each row are wanted.
    [[nodiscard]] virtual std::string request_body(const TokenBatch& tokens, const RequestPart& part,
                                                   std::uint32_t entries) const = 0;
    /// Takes the rows out of an answer; fails with fail_answer().
    virtual void read_rows(simdjson::ondemand::document& document, const RequestPart& part, PromptRows& rows) const = 0;

    [[nodiscard]] bool asks_for_all() const noexcept { return options_.wanted.top_k == 0; }

    /// "top 64 log-probabilities of the prompt".
    [[nodiscard]] std::string rows_wanted() const;

  private:
    Options options_;
    std::shared_ptr<JsonParsers> parsers_ = std::make_shared<JsonParsers>();
};

/// What an entry took in an answer, for PromptScoringCodec::Options::entry_bytes.
[[nodiscard]] double entry_bytes_of(const TeacherTargets& answer);

/// A page (/v1/models, say) of the server whose endpoint's path ends in `ending`; an error when it does not.
[[nodiscard]] Result<std::string> page_beside(const EndpointUrl& url, std::string_view ending, std::string_view page);

}  // namespace distilld
