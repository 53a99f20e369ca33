#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/teacher/protocols/protocol.hpp"

/// Servers that score a prompt: entry t of their answer is the distribution after the prompt's tokens 0 to t − 1, so it
/// speaks of token t. There is none for entry 0, and none for what follows the last token. TeacherTargets wants the row
/// of position t to be the one after input t: the entry t + 1.
namespace distilld {

/// What such a server is sent for sequence `row`: its input ids without padding and, when the label of its last
/// position counts, that label too: without it that position would have no row. Never empty: a sequence of nothing but
/// padding is sent as one token, of which nothing is asked.
[[nodiscard]] std::vector<std::int32_t> prompt_of(const TokenBatch& tokens, std::uint32_t row);

/// How many tokens that has.
[[nodiscard]] std::size_t prompt_length(const TokenBatch& tokens, std::uint32_t row);

/// Writes the prompts of a part as JSON arrays with commas between them.
void append_prompts(std::string& json, const TokenBatch& tokens, const RequestPart& part);

/// How many entries of a row such a server is asked for: the top k, or for full logits all of the student's vocabulary.
/// Fails when that is wanted and the vocabulary is not known.
[[nodiscard]] Result<std::uint32_t> entries_wanted(const TargetsWanted& wanted);

/// Memory of the rows that PromptRows makes of `positions` positions.
[[nodiscard]] std::uint64_t prompt_row_bytes(std::uint64_t positions, const TargetsWanted& wanted);

/// Gathers the rows of a part in any order. Rows that were not given are marked in TeacherTargets::loss_mask. Top-k
/// rows hold the k most probable of their entries (equally probable: the smaller id first) and no tail, which is 1 −
/// Σp; rows of full logits hold the log-probabilities, which are logits less a number a row. Failures are thrown
/// (ErrorKind::teacher), naming the sequence of the request and the prompt's token.
class PromptRows {
  public:
    /// `entries`: of each row, at least; those of entries_wanted().
    /// Rows are gathered in `buffers`.
    PromptRows(const TokenBatch& tokens, const RequestPart& part, const TargetsWanted& wanted, std::uint32_t entries,
               BufferPool& buffers);

    /// The prompt of sequence `row` of the part.
    [[nodiscard]] const std::vector<std::int32_t>& prompt(std::uint32_t row) const { return prompts_[row]; }

    /// Entry `token` (1 to the prompt's size − 1) of sequence `row` begins.
    void begin(std::uint32_t row, std::size_t token);
    void add(std::uint32_t id, float log_probability) { entries_.emplace_back(log_probability, id); }
    /// An entry of `ids` and `log_probabilities`, of the same size: begin(), add() and end() at once.
    void put(std::uint32_t row, std::size_t token, std::span<const std::int32_t> ids,
             std::span<const float> log_probabilities);
    /// The prompt's token that the entry being gathered speaks of, and whether it names it.
    [[nodiscard]] std::int32_t prompt_token() const { return prompts_[row_][token_]; }
    [[nodiscard]] bool names_own_token() const noexcept;
    void end();

    /// "sequence 2, token 7": the entry that is being gathered.
    [[nodiscard]] std::string where() const;

    /// What has been gathered.
    [[nodiscard]] TeacherTargets finish();

  private:
    struct Storage {
        std::shared_ptr<BodyBuffer> ids;     ///< [rows, columns, width] i32
        std::shared_ptr<BodyBuffer> values;  ///< [rows, columns, width] f32
        std::vector<std::uint8_t> mask;
    };

    /// Elements of the row of one position, in a buffer that malloc has aligned.
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

}  // namespace distilld
