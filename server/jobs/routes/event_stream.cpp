#include "server/jobs/routes/event_stream.hpp"

#include <memory>
#include <utility>

#include "base/json_text.hpp"

namespace distilld {
namespace {

constexpr std::uint32_t kEventsOfOnePiece = 100;

class JobEventStream final : public http::BodyStream {
  public:
    JobEventStream(JobManager& manager, std::string job_id, std::uint64_t after, EventWriter writer)
        : manager_(manager), job_id_(std::move(job_id)), writer_(std::move(writer)), last_(after) {}

    boost::asio::awaitable<std::optional<std::string>> next() override {
        if (ended_) {
            co_return std::nullopt;
        }
        const auto batch = co_await manager_.wait_events(job_id_, last_, kEventsOfOnePiece);
        std::string piece;
        for (const auto& event : batch.events) {
            piece += writer_.event(event, std::exchange(last_, event.sequence));
        }
        ended_ = batch.ended;
        if (ended_ && batch.job) {
            piece += writer_.end(*batch.job);
        }
        if (piece.empty()) {
            if (ended_) {
                co_return std::nullopt;
            }
            piece = ": keep-alive\n\n";
        }
        co_return piece;
    }

  private:
    JobManager& manager_;
    const std::string job_id_;
    const EventWriter writer_;
    std::uint64_t last_;
    bool ended_ = false;
};

std::string job_event(const api::JobEvent& event, std::uint64_t last) {
    std::string text;
    if (event.sequence > last + 1) {
        text = "event: gap\ndata: {\"from\":" + std::to_string(last + 1) +
               ",\"to\":" + std::to_string(event.sequence - 1) + "}\n\n";
    }
    return text + "id: " + std::to_string(event.sequence) + "\nevent: " + api::to_string(event.type) +
           "\ndata: " + to_text(api::to_json_object(event)) + "\n\n";
}

std::string job_end(const api::Job& job) {
    return "event: done\ndata: " + to_text(api::to_json_object(job, false)) + "\n\n";
}

}  // namespace

http::Response event_stream(JobManager& manager, std::string job_id, std::uint64_t after, EventWriter writer) {
    http::Response response;
    response.content_type = "text/event-stream";
    response.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
    response.stream = std::make_unique<JobEventStream>(manager, std::move(job_id), after, std::move(writer));
    return response;
}

EventWriter job_event_writer() {
    return {job_event, job_end};
}

}  // namespace distilld
