#pragma once

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "models/serving/generator.hpp"

namespace distilld::teacher {

/// Answers each prompt with the ids that follow its last one, modulo ten. Any thread.
class FakeGenerator final : public models::Generator {
  public:
    [[nodiscard]] const models::GeneratorLimits& limits() const override { return limits_; }
    [[nodiscard]] bool has_room(const models::GenerationRequest&) const override {
        const std::lock_guard lock(mutex_);
        return sequences_.size() < limits_.max_sequences;
    }
    std::uint64_t add(models::GenerationRequest request) override {
        const std::lock_guard lock(mutex_);
        sequences_.push_back({next_, std::move(request)});
        return next_++;
    }
    void remove(std::uint64_t sequence) override {
        const std::lock_guard lock(mutex_);
        std::erase_if(sequences_, [sequence](const Sequence& one) { return one.number == sequence; });
    }
    [[nodiscard]] bool idle() const override { return count() == 0; }

    [[nodiscard]] std::vector<models::GenerationStep> step() override {
        const std::lock_guard lock(mutex_);
        std::vector<models::GenerationStep> steps;
        for (Sequence& sequence : sequences_) {
            if (sequence.request.prompt.front() == 7) {
                throw std::runtime_error("seven");
            }
            models::GenerationStep& step = steps.emplace_back();
            step.sequence = sequence.number;
            if (sequence.request.echo && sequence.said == 0) {
                for (std::size_t i = 1; i < sequence.request.prompt.size(); ++i) {
                    step.prompt.push_back({sequence.request.prompt[i], -0.5F, {{-0.25F, 9}}});
                }
            }
            if (sequence.request.max_tokens > 0) {
                ++sequence.said;
                const std::int32_t id = (sequence.request.prompt.back() + sequence.said) % 10;
                step.token = models::SaidToken{id, -0.125F, {}};
                const auto& stops = sequence.request.stop_ids;
                if (std::ranges::find(stops, id) != stops.end()) {
                    step.end = models::GenerationStep::End::stop;
                }
            }
            if (!step.end && sequence.said == static_cast<std::int32_t>(sequence.request.max_tokens)) {
                step.end = models::GenerationStep::End::length;
            }
            if (sequence.request.prompt.front() == 8) {
                step.end = models::GenerationStep::End::not_finite;
            }
        }
        for (const models::GenerationStep& step : steps) {
            if (step.end) {
                std::erase_if(sequences_, [&](const Sequence& one) { return one.number == step.sequence; });
            }
        }
        return steps;
    }

    /// Knows the folder "good".
    Result<std::shared_ptr<models::LoadedAdapter>> load_adapter(const std::filesystem::path& folder) override {
        if (folder.filename() != "good") {
            return invalid_input(folder.string() + "/adapter_config.json: No such file or directory");
        }
        return std::make_shared<models::LoadedAdapter>();
    }

    Result<std::shared_ptr<models::LoadedAdapter>> load_model(const std::filesystem::path& folder) override {
        return load_adapter(folder);
    }

    [[nodiscard]] std::size_t count() const {
        const std::lock_guard lock(mutex_);
        return sequences_.size();
    }

  private:
    struct Sequence {
        std::uint64_t number;
        models::GenerationRequest request;
        std::int32_t said = 0;
    };
    models::GeneratorLimits limits_{.max_sequences = 2, .max_positions = 100};
    mutable std::mutex mutex_;
    std::vector<Sequence> sequences_;
    std::uint64_t next_ = 0;
};

}  // namespace distilld::teacher
