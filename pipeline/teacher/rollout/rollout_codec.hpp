#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pipeline/core/rollout_plan.hpp"
#include "pipeline/core/teacher_protocol.hpp"
#include "pipeline/teacher/protocols/json_answer.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld {

/// What the student wrote to one prompt.
struct Rollout {
    std::vector<std::int32_t> ids;         ///< with the one that ends the text, if it has ended; empty: not answered
    std::vector<float> log_probabilities;  ///< of each at temperature 1
};

struct RolloutCodecOptions {
    std::string target;  ///< path and query of the page for answers
    std::string name;    ///< weights are called NAME-vVERSION
    RolloutPlan plan;
    std::uint32_t max_tokens = 1;
    double temperature = 1;
    double top_p = 1;
    const RolloutDialect* dialect = kRolloutDialects.data();
    /// The server has one version of the weights at a time, and names it in its answers. Set if it names another one.
    std::shared_ptr<std::atomic<bool>> other_weights{};  ///< null: versions are adapters
};

/// What a server answers to one prompt.
struct ToldRollout {
    Rollout rollout;
    std::string weights;  ///< name of the version; empty: not said
};

/// Asks a server for the student's answers, token ids in and out, and reads them as targets: of kind topk and width 1,
/// at the positions of a micro-batch with room for answers that the answers' tokens follow (see
/// with_room_for_answers()). All other positions are missing.
class RolloutCodec final : public TeacherCodec {
  public:
    explicit RolloutCodec(RolloutCodecOptions options) : options_(std::move(options)) {}

    /// One sequence per request: each has a seed of its own.
    Result<std::vector<RequestPart>> plan_requests(const TokenBatch& tokens) const override;
    std::uint32_t max_parts_at_once() const noexcept override { return 64; }
    Result<HttpRequest> make_request(const TokenBatch& tokens, const RequestPart& part) const override;
    Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch& tokens,
                                  const RequestPart& part) const override;
    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override;
    std::string description() const override { return "answers of the student"; }

    /// The name of the weights after this many steps.
    [[nodiscard]] std::string model(std::uint64_t version) const {
        return options_.name + "-v" + std::to_string(version);
    }
    [[nodiscard]] const RolloutPlan& plan() const noexcept { return options_.plan; }

    /// A single request and its answer. `model`: of the server, or an adapter; empty: the model itself.
    [[nodiscard]] HttpRequest request(const std::string& model, std::span<const std::int32_t> prompt,
                                      std::uint64_t seed, double temperature, std::uint32_t max_tokens) const;
    [[nodiscard]] Result<ToldRollout> read(const HttpResponse& response, std::uint32_t max_tokens) const;

  private:
    [[nodiscard]] std::string completion_body(const std::string& model, std::span<const std::int32_t> prompt,
                                              std::uint64_t seed, double temperature, std::uint32_t max_tokens) const;
    [[nodiscard]] std::string native_body(const std::string& adapter, std::span<const std::int32_t> prompt,
                                          std::uint64_t seed, double temperature, std::uint32_t max_tokens) const;

    RolloutCodecOptions options_;
    std::shared_ptr<JsonParsers> parsers_ = std::make_shared<JsonParsers>();
};

/// Whether the student answers the prompt in this row: it has a target then.
[[nodiscard]] bool wants_answer(const TokenBatch& prompts, std::uint32_t row);
/// Whether it answers none of them.
[[nodiscard]] bool wants_no_answer(const TokenBatch& prompts);

/// Targets of `columns` positions for each rollout; `prompts` has the tokens of each prompt.
[[nodiscard]] TeacherTargets targets_of(std::span<const Rollout> rollouts, std::span<const std::int32_t> prompts,
                                        std::uint32_t columns);
/// The rollouts in such targets, by row.
[[nodiscard]] std::vector<Rollout> rollouts_of(const TeacherTargets& targets, std::span<const std::int32_t> prompts);

/// The micro-batch to train on: each prompt with its answer, whose tokens are its targets. The rows of `others` take
/// the places of prompts without an answer, in their order.
[[nodiscard]] TokenBatch answered_batch(const TokenBatch& prompts, std::span<const Rollout> rollouts,
                                        const TokenBatch& others);

}  // namespace distilld
