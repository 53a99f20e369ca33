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
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// A micro-batch as tensors on the student's device. Opaque outside models/.
class StagedBatch {
  public:
    virtual ~StagedBatch() = default;
};

/// What is known of a micro-batch without waiting for the device. Its losses come with those of the step.
struct MicroBatchStats {
    std::uint64_t target_tokens = 0;
    /// Part of the call's time: the optimizer's pending updates. If the device runs asynchronously, only time of the
    /// calling thread.
    double update_seconds = 0;
};

/// Sums of one optimizer step.
struct StepSums {
    std::uint64_t target_tokens = 0;
    std::uint64_t positions = 0;  ///< input positions
    std::uint64_t padding = 0;    ///< positions besides them

    void add(const MicroBatchStats& more, std::uint64_t more_positions, std::uint64_t more_padding) {
        target_tokens += more.target_tokens;
        positions += more_positions;
        padding += more_padding;
    }
    /// `sum` per target token of the step; 0 without any.
    [[nodiscard]] double mean(double sum) const {
        return sum / static_cast<double>(target_tokens > 0 ? target_tokens : 1);
    }
};

/// A step of all ranks.
struct StepOfAll {
    StepSums sums;
    std::vector<RankCounters> ranks;  ///< empty: there is one
};

struct StepStats {
    double grad_norm = 0;  ///< global L2 norm before clipping
    bool finite = true;    ///< false: loss or gradient norm was not; the step was skipped, weights are unchanged
    // Sums over the target tokens of the step's micro-batches, in nats.
    double loss_sum = 0;  ///< of the mixed loss
    double kd_sum = 0;    ///< of T²·KL; 0 without a teacher
    double ce_sum = 0;    ///< of cross entropy with the data; 0 when kd_ratio is 1 and it was not computed
};

struct EvalStats {
    std::uint64_t target_tokens = 0;
    double ce_sum = 0;
    std::uint64_t teacher_tokens = 0;  ///< targets that the teacher's answer covers
    double kl_sum = 0;                 ///< KL(teacher ‖ student) at temperature 1, over those
    std::uint64_t agreeing = 0;        ///< those with the same likeliest token as the teacher
    double accepted = 0;               ///< sum over them of Σ min(p, q), what a teacher accepts of a drafted token
};

/// What an exported model records about the tokenizer of its data.
struct ExportTokenizer {
    std::filesystem::path files;           ///< folder to copy its files from; empty = none
    std::optional<SpecialTokens> special;  ///< empty: those of the student's config apply
    bool of_the_model = false;             ///< those of the config apply too if they agree about the end of a text
};

/// How a student continues a prompt.
struct SampleOptions {
    std::uint32_t max_tokens = 0;
    double temperature = 0;             ///< 0: the likeliest token each time
    std::uint64_t seed = 0;             ///< of what is drawn
    std::optional<std::int32_t> end{};  ///< the id that ends a text, besides those of the student's config
};

/// Thrown by train() if the micro-batch does not fit into the device's memory. Weights stay; the gradients of the
/// current step are invalid, and discard_gradients() drops them.
class OutOfDeviceMemory : public ErrorException {
  public:
    using ErrorException::ErrorException;
};

/// The student and its optimizer. All calls except stage() come from the compute thread, which owns the device; stage()
/// comes from the staging thread. Unexpected errors throw.
class Student {
  public:
    virtual ~Student() = default;

    /// Tensors of the micro-batch on the device. Staging thread, while another micro-batch trains.
    virtual std::unique_ptr<StagedBatch> stage(MicroBatch batch) = 0;

    /// Forward, loss, backward. Adds to the gradients of the current step, in the order of stage(). On a CPU several
    /// threads may be in here with micro-batches of one step, with the same bits. Updates left pending
    /// by finish_step() are applied first, each layer's just before that layer's forward.
    virtual MicroBatchStats train(StagedBatch& batch) = 0;

    /// Once, before the first step: checks that the network can train on such a micro-batch (without targets), whose
    /// gradients do not count. The error names the field of the spec.
    virtual Result<void> try_out(const MicroBatch& /*batch*/) { return {}; }
    /// Why train() must be called for one micro-batch after the other; empty: there is no reason. After try_out().
    [[nodiscard]] virtual std::string needs_order() const { return {}; }

    /// Drops the gradients added since the last step, as if train() had not been called (for the memory probe).
    virtual void discard_gradients() = 0;

    /// Closes the step: global norm, clipping factor, AdamW with `learning_rate`. The overlapped optimizer leaves the
    /// update pending; otherwise it is applied here. Both give the same bits. If the device runs asynchronously, only
    /// this call of a step waits for it.
    virtual StepStats finish_step(double learning_rate) = 0;

    /// After finish_step(): the sums and the figures of all ranks. Fills in `figures` how long this rank has waited for
    /// the others. Blocks until they have called it.
    virtual StepOfAll of_all_ranks(const StepSums& mine, const RankCounters& /*figures*/) { return {mine, {}}; }

    /// Applies the next pending layer update, while there is nothing to train on. False: none left.
    virtual bool apply_one_pending_update() = 0;

    /// Held-out cross entropy of one batch (no gradients), and the figures against the teacher's targets if it has
    /// them. Pending updates are applied first.
    virtual EvalStats evaluate(const MicroBatch& batch) = 0;
    /// The same without a teacher.
    EvalStats evaluate(const TokenBatch& tokens) {
        MicroBatch batch;
        batch.tokens = std::shared_ptr<const TokenBatch>(std::shared_ptr<void>(), &tokens);  // not owned
        return evaluate(batch);
    }

    /// The ids that continue `prompt`, without the one that ends the text. Fewer than asked for if the text ends or the
    /// weights are not finite. Pending updates are applied first. Weights and optimizer stay.
    virtual std::vector<std::int32_t> sample(const std::vector<std::int32_t>& /*prompt*/,
                                             const SampleOptions& /*options*/) {
        return {};
    }

    /// Copies weights, optimizer state and `state`. Pending updates are applied first.
    virtual std::shared_ptr<const StudentSnapshot> snapshot(const RunState& state) = 0;

    /// On a rank that writes no checkpoints, instead of the last snapshot(): until the rank that writes them has what
    /// it needs, or is gone.
    virtual void attend_last_snapshot() {}

    /// Sets the head for the teacher's hidden states: before the first micro-batch that has some, and not while any is
    /// staged. Copied to the device, in bf16 if head and student are bf16, else in fp32. The error says why it does not
    /// fit.
    virtual Result<void> set_teacher_head(const TeacherHead& /*head*/) {
        return Error{ErrorKind::internal, "this student takes no hidden states"};
    }

    /// For the models in later snapshots. Default: the files beside student.model.
    virtual void set_export_tokenizer(ExportTokenizer /*tokenizer*/) {}

    /// Rounds the weights to the precision of an exported model, so that evaluate() judges that; training is impossible
    /// afterwards. False: an export keeps every bit, and nothing was changed.
    virtual bool round_to_export() { return false; }

    /// Loads what write_checkpoint() wrote; refuses a damaged checkpoint or one of another network.
    virtual Result<RunState> restore(const std::filesystem::path& checkpoint_folder) = 0;

    /// Bytes that train() takes for a micro-batch of this many positions beside weights and gradients: an estimate.
    [[nodiscard]] virtual std::uint64_t activation_bytes(std::uint64_t /*positions*/) const { return 0; }
    /// Those that are trained.
    [[nodiscard]] virtual std::uint64_t parameter_count() const = 0;
    /// Including those that are not trained.
    [[nodiscard]] virtual std::uint64_t network_parameter_count() const { return parameter_count(); }
    [[nodiscard]] virtual std::uint32_t vocabulary_size() const = 0;
    [[nodiscard]] virtual std::uint32_t max_positions() const = 0;
};

}  // namespace distilld
