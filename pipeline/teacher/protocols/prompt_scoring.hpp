#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/teacher/protocols/json_answer.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

/// For servers that score a prompt and answer in JSON. Entry t of their answer is the distribution after tokens 0 to t
/// − 1, for token t. There is none for entry 0, and none after the last token. The row of position t in TeacherTargets
/// is the one after input t: entry t + 1.
namespace distilld {

/// The prompt for sequence `row`: its input ids without padding and, if its last position has a label, that label too,
/// because the position would otherwise have no row. Never empty: a sequence of only padding is sent as one token.
[[nodiscard]] std::vector<std::int32_t> prompt_of(const TokenBatch& tokens, std::uint32_t row);

/// Number of its tokens.
[[nodiscard]] std::size_t prompt_length(const TokenBatch& tokens, std::uint32_t row);

/// Writes the prompts of a part as JSON arrays with commas between them.
void append_prompts(std::string& json, const TokenBatch& tokens, const RequestPart& part);

/// Entries to request per row: the top k, or for full logits the student's vocabulary. Fails if that is unknown.
[[nodiscard]] Result<std::uint32_t> entries_wanted(const TargetsWanted& wanted);

/// Memory of the rows that PromptRows makes of `positions` positions.
[[nodiscard]] std::uint64_t prompt_row_bytes(std::uint64_t positions, const TargetsWanted& wanted);

/// Collects the rows of a part in any order. Missing rows are marked in TeacherTargets::loss_mask. Top-k rows hold the
/// k most probable of their entries (equally probable: the smaller id first) and no tail, which is 1 − Σp; rows of full
/// logits hold the log-probabilities, which are logits minus a constant per row. Failures are thrown
/// (ErrorKind::teacher), naming the sequence of the request and the prompt's token.
class PromptRows {
  public:
    /// `entries`: minimum per row, from entries_wanted(). Rows are gathered in `buffers`.
    PromptRows(const TokenBatch& tokens, const RequestPart& part, const TargetsWanted& wanted, std::uint32_t entries,
               BufferPool& buffers);

    /// The prompt of sequence `row` of the part.
    [[nodiscard]] const std::vector<std::int32_t>& prompt(std::uint32_t row) const { return prompts_[row]; }

    /// Begins entry `token` (1 to the prompt's size − 1) of sequence `row`.
    void begin(std::uint32_t row, std::size_t token);
    void add(std::uint32_t id, float log_probability) { entries_.emplace_back(log_probability, id); }
    /// Adds a whole entry of `ids` and `log_probabilities` of the same size: begin(), add() and end() in one.
    void put(std::uint32_t row, std::size_t token, std::span<const std::int32_t> ids,
             std::span<const float> log_probabilities);
    /// The prompt's token of the current entry, and whether the entry names it.
    [[nodiscard]] std::int32_t prompt_token() const { return prompts_[row_][token_]; }
    [[nodiscard]] bool names_own_token() const noexcept;
    void end();

    /// "sequence 2, token 7": the current entry.
    [[nodiscard]] std::string where() const;

    /// The gathered rows.
    [[nodiscard]] TeacherTargets finish();

  private:
    struct Storage {
        std::shared_ptr<BodyBuffer> ids;     ///< [rows, columns, width] i32
        std::shared_ptr<BodyBuffer> values;  ///< [rows, columns, width] f32
        std::vector<std::uint8_t> mask;
    };

    /// The row of one position, in a buffer aligned by malloc.
    template <class Element>
    [[nodiscard]] Element* row_of(BodyBuffer& buffer, std::size_t position) const {
        return reinterpret_cast<Element*>(buffer.data()) + position * width_;
    }
    void clear_missing();
    void keep_all(float* values);
    void keep_top(std::int32_t* ids, float* values);

    RequestPart part_;
    bool full_;
    std::uint32_t width_;
    std::vector<std::vector<std::int32_t>> prompts_;
    std::shared_ptr<Storage> storage_;
    std::size_t given_ = 0;
    std::uint32_t row_ = 0;
    std::size_t token_ = 0;
    std::vector<std::pair<float, std::uint32_t>> entries_;
};

class PromptScoringCodec : public TeacherCodec {
  public:
    struct Options {
        std::string target;  ///< path and query
        TargetsWanted wanted;
        std::uint64_t max_entry_bytes = 0;  ///< maximum of the body's bytes per entry, averaged over a row
        double entry_bytes = 0;             ///< bytes per entry in the probe's answer; 0 = unknown yet
        std::uint64_t max_tokens = 0;       ///< of a prompt and its generated tokens; 0 = unknown
        std::uint64_t generated = 0;        ///< tokens that the server generates per prompt
        std::shared_ptr<BufferPool> buffers = std::make_shared<BufferPool>();  ///< for the rows
    };

    explicit PromptScoringCodec(Options options) : options_(std::move(options)) {}

    /// Refuses prompts that the server would refuse. Does not split.
    Result<std::vector<RequestPart>> plan_requests(const TokenBatch& tokens) const override;
    Result<HttpRequest> make_request(const TokenBatch& tokens, const RequestPart& part) const final;
    Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch& tokens,
                                  const RequestPart& part) const final;
    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const final;

  protected:
    /// The request's JSON, with `entries` per row.
    [[nodiscard]] virtual std::string request_body(const TokenBatch& tokens, const RequestPart& part,
                                                   std::uint32_t entries) const = 0;
    /// Reads the rows of an answer; fails with fail_answer().
    virtual void read_rows(simdjson::ondemand::document& document, const RequestPart& part, PromptRows& rows) const = 0;

    [[nodiscard]] bool asks_for_all() const noexcept { return options_.wanted.top_k == 0; }

    /// "top 64 log-probabilities of the prompt".
    [[nodiscard]] std::string rows_wanted() const;

  private:
    Options options_;
    std::shared_ptr<JsonParsers> parsers_ = std::make_shared<JsonParsers>();
};

/// Bytes per entry of an answer, for PromptScoringCodec::Options::entry_bytes.
[[nodiscard]] double entry_bytes_of(const TeacherTargets& answer);

/// The path of another page of the server, such as /v1/models. Fails if the endpoint's path does not end in `ending`.
[[nodiscard]] Result<std::string> page_beside(const EndpointUrl& url, std::string_view ending, std::string_view page);

}  // namespace distilld
