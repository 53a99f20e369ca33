#pragma once

#include <future>
#include <mutex>
#include <span>
#include <stdexcept>
#include <vector>

#include "models/serving/teacher_scorer.hpp"

namespace distilld::teacher {

/// A model of ten tokens whose answers are a simple function of the ids, and which can be held up.
class FakeScorer final : public models::TeacherScorer {
  public:
    FakeScorer() {
        model_.vocabulary_size = 10;
        model_.max_positions = 8;
        model_.parameters = 123;
        model_.dtype = "fp32";
        model_.device = "cpu";
        model_.threads = 1;
    }

    [[nodiscard]] const models::ServedModel& model() const override { return model_; }

    Result<models::ScoreResult> score(const models::ScoreRequest& request) override {
        {
            const std::lock_guard lock(mutex_);
            seen_.push_back(request.input_ids.front());
        }
        if (started) {
            started->set_value();
            started = nullptr;
            gate.wait();
        }
        if (request.input_ids.front() == 7) {
            throw std::runtime_error("seven");
        }
        models::ScoreResult result;
        const std::size_t positions = request.input_ids.size();
        for (std::size_t position = 0; position < positions; ++position) {
            const auto id = static_cast<std::uint32_t>(request.input_ids[position]);
            if (request.mode == models::ScoreRequest::Mode::topk) {
                for (std::uint32_t place = 0; place < request.top_k; ++place) {
                    result.topk_ids.push_back((id + place) % 10);
                    result.topk_logprobs.push_back(static_cast<std::uint16_t>(0xBC00U + place));  // from -1 down
                }
                result.tail_logprob.push_back(-2.5F);
            } else if (request.mode == models::ScoreRequest::Mode::hidden) {
                for (std::uint32_t entry = 0; entry < 3; ++entry) {
                    result.hidden_f32.push_back(static_cast<float>(id) + 0.5F * static_cast<float>(entry));
                    result.hidden_half.push_back(static_cast<std::uint16_t>(0x3C00U + entry));
                }
            } else {
                for (std::uint32_t entry = 0; entry < 10; ++entry) {
                    result.logits_f32.push_back(static_cast<float>(id) + 0.1F * static_cast<float>(entry));
                    result.logits_f16.push_back(static_cast<std::uint16_t>(0x3C00U + entry));
                }
            }
            result.token_logprobs.push_back(-0.125F);
        }
        return result;
    }

    /// From now on it gives its head away: a file of sixteen bytes.
    void offer_head() {
        model_.hidden_size = 3;
        model_.head.dtype = "F32";
        model_.head.prefix = "header--";
        model_.head.values = std::as_bytes(std::span(kHeadValues));
        model_.head.sha256 = "5a5a";
    }

    /// First ids of the requests that were scored, in order.
    [[nodiscard]] std::vector<std::int32_t> seen() const {
        const std::lock_guard lock(mutex_);
        return seen_;
    }

    std::promise<void>* started = nullptr;  ///< set: the next request tells here that it began, and waits for `gate`
    std::shared_future<void> gate;

  private:
    static constexpr char kHeadValues[] = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'};

    models::ServedModel model_;
    mutable std::mutex mutex_;
    std::vector<std::int32_t> seen_;
};

}  // namespace distilld::teacher
