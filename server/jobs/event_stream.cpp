#include "server/jobs/event_stream.hpp"

#include "base/json_text.hpp"

namespace distilld {
namespace {

constexpr std::uint32_t kEventsOfOnePiece = 100;

class JobEventStream final : public api::BodyStream {
  public:
    JobEventStream(JobManager& manager, std::string job_id, std::uint64_t after)
        : manager_(manager), job_id_(std::move(job_id)), last_(after) {}

    boost::asio::awaitable<std::optional<std::string>> next() override {
        if (ended_) {
            co_return std::nullopt;
        }
        const auto batch = co_await manager_.wait_events(job_id_, last_, kEventsOfOnePiece);
        std::string piece;
        for (const auto& event : batch.events) {
            add(piece, event);
        }
        if (batch.ended) {
            ended_ = true;
            if (batch.job) {
                piece += "event: done\ndata: " + to_text(api::to_json_object(*batch.job, false)) + "\n\n";
            }
            if (piece.empty()) {
                co_return std::nullopt;
            }
        }
        if (piece.empty()) {
            piece = ": keep-alive\n\n";
        }
        co_return piece;
    }

  private:
    void add(std::string& piece, const api::JobEvent& event) {
        if (event.sequence > last_ + 1) {
            piece += "event: gap\ndata: {\"from\":" + std::to_string(last_ + 1) +
                     ",\"to\":" + std::to_string(event.sequence - 1) + "}\n\n";
        }
        last_ = event.sequence;
        piece += "id: " + std::to_string(event.sequence) + "\nevent: " + api::to_string(event.type) +
                 "\ndata: " + to_text(api::to_json_object(event)) + "\n\n";
    }

    JobManager& manager_;
    const std::string job_id_;
    std::uint64_t last_;
    bool ended_ = false;
};

}  // namespace

std::unique_ptr<api::BodyStream> make_job_event_stream(JobManager& manager, std::string job_id, std::uint64_t after) {
    return std::make_unique<JobEventStream>(manager, std::move(job_id), after);
}

}  // namespace distilld
