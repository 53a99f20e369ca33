#include "server/openai/fine_tuning_stream.hpp"

#include <utility>

#include "base/json_text.hpp"
#include "server/openai/openai_objects.hpp"

namespace distilld::openai {
namespace {

constexpr std::uint32_t kEventsOfOnePiece = 100;

class FineTuningStream final : public api::BodyStream {
  public:
    FineTuningStream(JobManager& manager, std::string job_id, std::uint64_t after)
        : manager_(manager), job_id_(std::move(job_id)), last_(after) {}

    boost::asio::awaitable<std::optional<std::string>> next() override {
        if (ended_) {
            co_return std::nullopt;
        }
        const auto batch = co_await manager_.wait_events(job_id_, last_, kEventsOfOnePiece);
        std::string piece;
        for (const auto& event : batch.events) {
            last_ = event.sequence;
            piece += "id: " + std::to_string(event.sequence) + "\ndata: " + to_text(fine_tuning_event(job_id_, event)) +
                     "\n\n";
        }
        ended_ = batch.ended;
        if (batch.ended && batch.job) {
            piece += "data: [DONE]\n\n";
        }
        if (piece.empty() && !ended_) {
            piece = ": keep-alive\n\n";
        }
        if (piece.empty()) {
            co_return std::nullopt;
        }
        co_return piece;
    }

  private:
    JobManager& manager_;
    const std::string job_id_;
    std::uint64_t last_;
    bool ended_ = false;
};

}  // namespace

std::unique_ptr<api::BodyStream> make_fine_tuning_stream(JobManager& manager, std::string job_id, std::uint64_t after) {
    return std::make_unique<FineTuningStream>(manager, std::move(job_id), after);
}

}  // namespace distilld::openai
