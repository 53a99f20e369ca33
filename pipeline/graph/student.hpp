#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/special_tokens.hpp"
#include "pipeline/core/student_snapshot.hpp"
#include "pipeline/core/teacher_head.hpp"

namespace distilld {

/// A micro-batch as tensors on the student's device. Opaque outside models/.
class StagedBatch {
  public:
    virtual ~StagedBatch() = default;
};

/// Sums over the target tokens of one micro-batch, in nats.
struct MicroBatchStats {
    std::uint64_t target_tokens = 0;
    double loss_sum = 0;  ///< of the mixed loss
    double kd_sum = 0;    ///< of T²·KL; 0 without a teacher
    double ce_sum = 0;    ///< of cross entropy with the data; 0 when kd_ratio is 1 and it was not computed
    /// Of the call's time, what pending updates took: the optimizer's. Where the device works behind the calls, as far
    /// as they took the calling thread.
    double update_seconds = 0;
};

struct StepStats {
    double grad_norm = 0;  ///< global L2 norm before clipping
    bool finite = true;    ///< false: loss or gradient norm was not; the step was skipped, weights unchanged
};

struct EvalStats {
    std::uint64_t target_tokens = 0;
    double ce_sum = 0;
    std::uint64_t teacher_tokens = 0;  ///< targets of which the teacher said something
    double kl_sum = 0;                 ///< KL(teacher ‖ student) at temperature 1, of those
    std::uint64_t agreeing = 0;        ///< those whose likeliest token is the teacher's
};

/// What an exported model says of the tokenizer that its data was read with.
struct ExportTokenizer {
    std::filesystem::path files;           ///< folder that its files are copied from; empty = none
    std::optional<SpecialTokens> special;  ///< nothing: those of the student's config stand
    bool of_the_model = false;             ///< those of the config stand too when they agree about the end of a text
};

/// How a student goes on from a prompt.
struct SampleOptions {
    std::uint32_t max_tokens = 0;
    double temperature = 0;             ///< 0: the likeliest token each time
    std::uint64_t seed = 0;             ///< of what is drawn
    std::optional<std::int32_t> end{};  ///< the id that ends a text, beside those of the student's config
};

/// The student and its optimizer. All calls but stage() come from one thread, the compute thread, which owns the
/// device; stage() comes from the staging thread. Unexpected errors throw.
class Student {
  public:
    virtual ~Student() = default;

    /// Tensors of the micro-batch on the device. Staging thread, while another micro-batch trains.
    virtual std::unique_ptr<StagedBatch> stage(MicroBatch batch) = 0;

    /// Forward, loss, backward. Adds to the gradients of the step under way; updates left pending by finish_step()
    /// are applied first, each layer's just before that layer's forward.
    virtual MicroBatchStats train(StagedBatch& batch) = 0;

    /// Forgets the gradients added since the last step, as if train() had not been called (the memory probe's batches).
    virtual void discard_gradients() = 0;

    /// Closes the step: global norm, clipping factor, AdamW with `learning_rate`. With the overlapped optimizer the
    /// update is left pending, else it is applied here. Same bits either way.
    virtual StepStats finish_step(double learning_rate) = 0;

    /// Applies the next pending layer update, for the time in which there is nothing to train on. False: none left.
    virtual bool apply_one_pending_update() = 0;

    /// Held-out cross entropy of one batch (no gradients) and, where it has the teacher's targets, what they say of the
    /// student. Pending updates are applied first.
    virtual EvalStats evaluate(const MicroBatch& batch) = 0;
    /// The same, nobody having been asked.
    EvalStats evaluate(const TokenBatch& tokens) {
        MicroBatch batch;
        batch.tokens = std::shared_ptr<const TokenBatch>(std::shared_ptr<void>(), &tokens);  // not owned
        return evaluate(batch);
    }

    /// The ids with which the student goes on from `prompt`, without the one that ends the text; fewer than asked for
    /// where it ends, or its weights are not finite. Pending updates are applied first. Weights and optimizer stay.
    virtual std::vector<std::int32_t> sample(const std::vector<std::int32_t>& /*prompt*/,
                                             const SampleOptions& /*options*/) {
        return {};
    }

    /// Copies weights, optimizer state and `state`. Pending updates are applied first.
    virtual std::shared_ptr<const StudentSnapshot> snapshot(const RunState& state) = 0;

    /// The head for the hidden states of the teacher: before the first micro-batch that has some, and not while any is
    /// staged. Copied to the device, in bf16 where head and student are, else in fp32. The error says why it does not
    /// fit.
    virtual Result<void> set_teacher_head(const TeacherHead& /*head*/) {
        return Error{ErrorKind::internal, "this student takes no hidden states"};
    }

    /// For the models that snapshots taken from now on write. Without it: the files beside student.model.
    virtual void set_export_tokenizer(ExportTokenizer /*tokenizer*/) {}

    /// Rounds the weights to what an exported model holds, for evaluate() of just that; nothing can be trained
    /// afterwards. False: an export keeps every bit, and nothing was changed.
    virtual bool round_to_export() { return false; }

    /// Loads what write_checkpoint() wrote; refuses a checkpoint of another network or one that is damaged.
    virtual Result<RunState> restore(const std::filesystem::path& checkpoint_folder) = 0;

    [[nodiscard]] virtual std::uint64_t parameter_count() const = 0;
    [[nodiscard]] virtual std::uint32_t vocabulary_size() const = 0;
    [[nodiscard]] virtual std::uint32_t max_positions() const = 0;
};

}  // namespace distilld
