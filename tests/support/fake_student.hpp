#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/graph/student.hpp"

namespace distilld::test {

/// Remembers what the graph asked of it, in order, and answers a "weight" that depends on all of it.
class FakeStudent : public Student {
  public:
    struct Staged final : StagedBatch {
        MicroBatch batch;
    };
    struct Snapshot final : StudentSnapshot {
        RunState state;
        std::uint64_t weight = 0;
        Result<void> write_checkpoint(const std::filesystem::path&) const override { return {}; }
        Result<std::vector<std::filesystem::path>> write_model(const std::filesystem::path&) const override {
            return {};
        }
    };

    std::unique_ptr<StagedBatch> stage(MicroBatch batch) override {
        if (on_stage) {
            on_stage(batch);
        }
        auto staged = std::make_unique<Staged>();
        staged->batch = std::move(batch);
        return staged;
    }
    MicroBatchStats train(StagedBatch& batch) override {
        const MicroBatch& micro = dynamic_cast<Staged&>(batch).batch;
        if (on_train) {
            on_train(micro.tokens->number);
        }
        note("train " + std::to_string(micro.tokens->number));
        MicroBatchStats stats;
        for (; pending > 0; --pending) {
            stats.update_seconds += on_update ? on_update() : 0.0;
        }
        stats.target_tokens = micro.tokens->target_tokens;
        loss_sum += static_cast<double>(stats.target_tokens);
        return stats;
    }
    void discard_gradients() override {}
    StepStats finish_step(double learning_rate) override {
        note("step");
        rates.push_back(learning_rate);
        pending = kUpdatesOfAStep;
        const bool finite = !on_step || on_step(rates.size());
        return {finite ? 1.0 : std::nan(""), finite, std::exchange(loss_sum, 0.0)};
    }
    bool apply_one_pending_update() override {
        if (pending > 0) {
            --pending;
            ++idle_updates;
            if (on_update) {
                on_update();
            }
        }
        return pending > 0;
    }
    EvalStats evaluate(const MicroBatch& batch) override {
        note("evaluate");
        if (on_evaluate) {
            on_evaluate();
        }
        const std::uint64_t tokens = batch.tokens->target_tokens;
        EvalStats stats{tokens, 2.0 * static_cast<double>(tokens)};
        if (batch.targets) {
            stats.teacher_tokens = tokens;
            stats.kl_sum = 0.5 * static_cast<double>(tokens);
            stats.agreeing = tokens / 4;
            stats.accepted = 0.75 * static_cast<double>(tokens);
        }
        return stats;
    }
    std::shared_ptr<const StudentSnapshot> snapshot(const RunState& state) override {
        auto taken = std::make_shared<Snapshot>();
        taken->state = state;
        taken->weight = weight();
        note("snapshot " + std::to_string(state.step));
        if (on_snapshot) {
            on_snapshot(state.step);
        }
        if (on_snapshot_state) {
            on_snapshot_state(state);
        }
        return taken;
    }
    Result<RunState> restore(const std::filesystem::path&) override { return RunState{}; }
    std::uint64_t parameter_count() const override { return 1; }
    std::uint32_t vocabulary_size() const override { return 512; }
    std::uint32_t max_positions() const override { return 512; }

    /// A hash of the calls that decide weights.
    std::uint64_t weight() const {
        std::uint64_t value = 1469598103934665603ULL;
        for (const std::string& line : log) {
            if (line.rfind("train", 0) != 0 && line != "step") {
                continue;
            }
            for (const char c : line) {
                value = (value ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
            }
        }
        return value;
    }

    std::function<void(const MicroBatch&)> on_stage;
    std::function<void(std::uint64_t)> on_train;
    std::function<bool(std::uint64_t)> on_step;  ///< whether this step, counted from 1, is finite
    std::function<void(std::uint64_t)> on_snapshot;
    std::function<void(const RunState&)> on_snapshot_state;
    std::function<void()> on_evaluate;
    std::function<double()> on_update;  ///< what the update took, in seconds
    std::vector<std::string> log;
    std::vector<double> rates;
    static constexpr int kUpdatesOfAStep = 3;  ///< that wait for idle time
    int pending = 0;
    double loss_sum = 0;   ///< of the step under way: 1 a target token
    int idle_updates = 0;  ///< applied in idle time

  private:
    void note(std::string line) { log.push_back(std::move(line)); }
};

}  // namespace distilld::test
