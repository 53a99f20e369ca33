#include "pipeline/teacher/protocols/prompt_scoring.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace distilld {
namespace {

/// What surrounds the rows of a sequence.
constexpr std::uint64_t kEnvelopeBytes = 64U << 10U;

/// The first id of the part's prompts that no vocabulary of this size has; 0 = of what size is not known. Some servers
/// end when they meet one.
std::optional<std::int32_t> foreign_id(const TokenBatch& tokens, const RequestPart& part, std::uint32_t vocabulary) {
    for (std::uint32_t row = 0; row < part.rows; ++row) {
        for (const std::int32_t id : prompt_of(tokens, part.first_row + row)) {
            if (id < 0 || (vocabulary != 0 && static_cast<std::uint32_t>(id) >= vocabulary)) {
                return id;
            }
        }
    }
    return std::nullopt;
}

}  // namespace

Result<std::vector<RequestPart>> PromptScoringCodec::plan_requests(const TokenBatch& tokens) const {
    for (std::uint32_t row = 0; row < tokens.rows && options_.max_tokens != 0; ++row) {
        const std::size_t length = prompt_length(tokens, row);
        if (length + options_.generated > options_.max_tokens) {
            return invalid_input("/dataset/sequence_length: a prompt of " + std::to_string(length) + " tokens" +
                                 (options_.generated > 0 ? " and the one that is generated are" : " is") +
                                 " above the " + std::to_string(options_.max_tokens) +
                                 " of the teacher (max_model_len)");
        }
    }
    return std::vector<RequestPart>{whole_batch(tokens)};
}

Result<HttpRequest> PromptScoringCodec::make_request(const TokenBatch& tokens, const RequestPart& part) const {
    const auto entries = entries_wanted(options_.wanted);
    if (!entries) {
        return entries.error();
    }
    if (const auto id = foreign_id(tokens, part, options_.wanted.vocabulary)) {
        return invalid_input("token id " + std::to_string(*id) + " is outside the vocabulary of " +
                             std::to_string(options_.wanted.vocabulary) + ": it is not sent");
    }
    HttpRequest request;
    request.target = options_.target;
    request.content_type = kJsonContentType;
    request.body = std::make_shared<const std::string>(request_body(tokens, part, *entries));
    return request;
}

Result<TeacherTargets> PromptScoringCodec::decode(const HttpResponse& response, const TokenBatch& tokens,
                                                  const RequestPart& part) const {
    const auto entries = entries_wanted(options_.wanted);
    if (!entries) {
        return entries.error();
    }
    return read_json_answer(*response.body, *parsers_, [&](simdjson::ondemand::document& document) {
        PromptRows rows(tokens, part, options_.wanted, *entries, *options_.buffers);
        read_rows(document, part, rows);
        return rows.finish();
    });
}

AnswerSize PromptScoringCodec::answer_size(std::uint32_t rows, std::uint32_t columns) const {
    const std::uint64_t positions = std::uint64_t{rows} * columns;
    AnswerSize size;
    if (const auto entries = entries_wanted(options_.wanted)) {
        // The prompt's own token comes beside the k.
        const std::uint64_t count = positions * (std::uint64_t{*entries} + 1);
        size.max_accepted_bytes = count * options_.max_entry_bytes + rows * kEnvelopeBytes;
        size.max_wire_bytes = json_wire_bytes(count, options_.entry_bytes, size.max_accepted_bytes);
    }
    size.held_bytes = prompt_row_bytes(positions, options_.wanted);
    if (const auto entries = entries_wanted(options_.wanted)) {
        // "335":{"logprob":-1.5,"rank":1,"decoded_token":"x"},
        constexpr std::uint64_t kMarksOfEntry = 16;
        size.decode_bytes =
            json_decode_bytes(size.held_bytes, kMarksOfEntry * positions * (std::uint64_t{*entries} + 1));
    }
    return size;
}

std::string PromptScoringCodec::rows_wanted() const {
    const std::uint32_t k = options_.wanted.top_k;
    return (k == 0 ? "all" : "top " + std::to_string(k)) + " log-probabilities of the prompt";
}

double entry_bytes_of(const TeacherTargets& answer) {
    const double entries = double{1} * answer.rows * answer.columns * (answer.width + 1);
    return entries > 0 ? static_cast<double>(answer.wire_bytes) / entries : 0;
}

Result<std::string> page_beside(const EndpointUrl& url, std::string_view ending, std::string_view page) {
    if (!url.path.ends_with(ending)) {
        return invalid_input("teacher endpoint '" + url.name + "': the path of such an endpoint ends in " +
                             std::string(ending));
    }
    return url.path.substr(0, url.path.size() - ending.size()).append(page) + url.query;
}

}  // namespace distilld
