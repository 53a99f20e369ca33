#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/serving/generator.hpp"
#include "models/serving/served_head.hpp"

/// A teacher's scoring in plain types: the HTTP side includes this without libtorch.
namespace distilld::models {

/// log(tail) of a position with all of the mass in its k entries. Its exp() is 0 in fp32, and 0 · (it − x) is 0; with
/// −∞ it would be NaN.
inline constexpr float kTailFloor = -1e4F;

/// One request: token ids and the wanted result for each position.
struct ScoreRequest {
    enum class Mode { topk, logits, hidden };
    enum class LogitsType { f16, f32 };
    enum class HiddenType { f16, bf16, f32 };

    std::uint32_t rows = 0;               ///< B
    std::uint32_t columns = 0;            ///< T
    std::vector<std::int32_t> input_ids;  ///< [B, T], row-major
    std::vector<std::int32_t> lengths;    ///< [B] input positions that are not padding; empty = T each
    Mode mode = Mode::topk;
    std::uint32_t top_k = 0;                   ///< k; for mode topk
    LogitsType logits_type = LogitsType::f16;  ///< for mode logits
    HiddenType hidden_type = HiddenType::f32;  ///< for mode hidden
    bool token_logprobs = true;                ///< whether to return them
};

/// The answer. Row (b, t) is the distribution over the token after input_ids[b][..t], at temperature 1. Positions after
/// a row's end are computed with token 0: finite, but not to be used.
struct ScoreResult {
    std::vector<std::uint32_t> topk_ids;       ///< [B, T, k] by descending log-probability, ties by ascending id
    std::vector<std::uint16_t> topk_logprobs;  ///< [B, T, k] IEEE half bits; log-softmax in fp32, then rounded
    std::vector<float> tail_logprob;           ///< [B, T] log of the mass outside the k before that rounding, so that
                                      ///< Σexp(topk_logprobs) + exp(tail) is 1 to about 1e-3; kTailFloor if k = V
                                      ///< or less than 1e-7 is left (fp32 cannot distinguish it from 0)
    std::vector<float> token_logprobs;       ///< [B, T] of input_ids[b][t+1]; 0 at a row's last position and after
    std::vector<std::uint16_t> logits_f16;   ///< [B, T, V] IEEE half bits, clamped to ±65504
    std::vector<float> logits_f32;           ///< [B, T, V]
    std::vector<std::uint16_t> hidden_half;  ///< [B, T, H] bits of IEEE half or bfloat16, as hidden_type says: the
                                             ///< head's input, after the last norm
    std::vector<float> hidden_f32;           ///< [B, T, H]
};

/// The model behind a scorer.
struct ServedModel {
    std::uint32_t vocabulary_size = 0;
    std::uint32_t max_positions = 0;  ///< largest T
    std::uint64_t parameters = 0;
    std::string dtype;   ///< of the arithmetic: fp32, bf16
    std::string device;  ///< cpu, cuda
    std::uint32_t threads = 0;
    std::uint32_t hidden_size = 0;  ///< H
    /// The dtype of hidden states if the request names none: bf16 for bf16 arithmetic; fp16 for fp32 arithmetic,
    /// rounded like its logits.
    ScoreRequest::HiddenType hidden_type = ScoreRequest::HiddenType::f16;
    std::string tokenizer_hash{};         ///< tokenizer_hash_of() its folder; empty: unknown
    std::vector<std::int32_t> end_ids{};  ///< end an answer: eos_token_id of config.json and generation_config.json
    ServedHead head{};                    ///< turns hidden states into logits
    std::vector<std::string> warnings{};  ///< ignored fields of its config.json; one line each
};

/// Scores one request at a time, on one thread.
class TeacherScorer {
  public:
    virtual ~TeacherScorer() = default;
    [[nodiscard]] virtual const ServedModel& model() const = 0;

    /// The answer depends only on the request and the model, to the last bit: other requests have no effect. Fails with
    /// invalid_input (see check_score_request), or internal if the model's values are not finite.
    virtual Result<ScoreResult> score(const ScoreRequest& request) = 0;

    /// Generates with the same model, on the thread that calls score(). Null: it only scores.
    [[nodiscard]] virtual Generator* generator() { return nullptr; }
};

/// Checks shape, lengths, ids below the vocabulary, and that T and k are within the model's limits. The message names
/// the tensor or parameter as the KServe protocol does.
inline Result<void> check_score_request(const ScoreRequest& request, const ServedModel& model) {
    const std::uint64_t positions = std::uint64_t{request.rows} * request.columns;
    if (positions == 0) {
        return invalid_input("input_ids is empty: its shape is [" + std::to_string(request.rows) + ", " +
                             std::to_string(request.columns) + "]");
    }
    if (request.input_ids.size() != positions) {
        return invalid_input("input_ids holds " + std::to_string(request.input_ids.size()) + " ids, its shape [" +
                             std::to_string(request.rows) + ", " + std::to_string(request.columns) + "] needs " +
                             std::to_string(positions));
    }
    if (request.columns > model.max_positions) {
        return invalid_input("input_ids has " + std::to_string(request.columns) + " positions a row, the model takes " +
                             std::to_string(model.max_positions) + " at most (max_position_embeddings)");
    }
    if (!request.lengths.empty() && request.lengths.size() != request.rows) {
        return invalid_input("seq_lens holds " + std::to_string(request.lengths.size()) + " values for " +
                             std::to_string(request.rows) + " rows");
    }
    for (std::uint32_t row = 0; row < request.rows; ++row) {
        std::uint32_t length = request.columns;
        if (!request.lengths.empty()) {
            const std::int32_t given = request.lengths[row];
            if (given < 1 || static_cast<std::uint32_t>(given) > request.columns) {
                return invalid_input("seq_lens[" + std::to_string(row) + "] is " + std::to_string(given) + ": 1 to " +
                                     std::to_string(request.columns) + " is expected");
            }
            length = static_cast<std::uint32_t>(given);
        }
        for (std::uint32_t column = 0; column < length; ++column) {
            const std::int32_t id = request.input_ids[std::size_t{row} * request.columns + column];
            if (id < 0 || static_cast<std::uint32_t>(id) >= model.vocabulary_size) {
                return invalid_input("input_ids[" + std::to_string(row) + "][" + std::to_string(column) + "] is " +
                                     std::to_string(id) + ": the vocabulary has " +
                                     std::to_string(model.vocabulary_size) + " tokens");
            }
        }
    }
    if (request.mode == ScoreRequest::Mode::topk && (request.top_k < 1 || request.top_k > model.vocabulary_size)) {
        return invalid_input("top_k is " + std::to_string(request.top_k) + ": 1 to " +
                             std::to_string(model.vocabulary_size) + " (the vocabulary) is expected");
    }
    return {};
}

}  // namespace distilld::models
