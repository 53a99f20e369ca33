#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "base/time.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::bench {

/// A student that takes a given time for each micro-batch, asleep (another device does the work) or busy. Measures what
/// it really took. Bench only.
class TimedStudent final : public Student {
  public:
    TimedStudent(Nanos duration, bool busy) : duration_(duration), busy_(busy) {}

    std::unique_ptr<StagedBatch> stage(MicroBatch batch) override {
        auto staged = std::make_unique<Staged>();
        staged->batch = std::move(batch);
        return staged;
    }
    MicroBatchStats train(StagedBatch& batch) override {
        const auto began = std::chrono::steady_clock::now();
        const auto until = began + duration_;
        if (busy_) {
            while (std::chrono::steady_clock::now() < until) {
            }
        } else {
            std::this_thread::sleep_until(until);
        }
        spent_ += std::chrono::steady_clock::now() - began;
        ++trained_;
        MicroBatchStats stats;
        stats.target_tokens = dynamic_cast<Staged&>(batch).batch.tokens->target_tokens;
        loss_sum_ += static_cast<double>(stats.target_tokens);
        return stats;
    }
    void discard_gradients() override {}
    StepStats finish_step(double) override { return {1.0, true, std::exchange(loss_sum_, 0.0)}; }
    bool apply_one_pending_update() override { return false; }
    EvalStats evaluate(const MicroBatch&) override { return {}; }
    std::shared_ptr<const StudentSnapshot> snapshot(const RunState&) override { return std::make_shared<Empty>(); }
    Result<RunState> restore(const std::filesystem::path&) override { return RunState{}; }
    std::uint64_t parameter_count() const override { return 0; }
    std::uint32_t vocabulary_size() const override { return 32000; }
    std::uint32_t max_positions() const override { return 1U << 20U; }

    /// Mean time of a micro-batch as it was.
    [[nodiscard]] Nanos mean_duration() const { return trained_ > 0 ? spent_ / trained_ : Nanos(0); }

  private:
    struct Staged final : StagedBatch {
        MicroBatch batch;
    };
    struct Empty final : StudentSnapshot {
        Result<void> write_checkpoint(const std::filesystem::path&) const override { return {}; }
        Result<std::vector<std::filesystem::path>> write_model(const std::filesystem::path&) const override {
            return {};
        }
    };

    Nanos duration_;
    bool busy_;
    Nanos spent_{0};
    Nanos::rep trained_ = 0;
    double loss_sum_ = 0;  // of the step under way
};

}  // namespace distilld::bench
