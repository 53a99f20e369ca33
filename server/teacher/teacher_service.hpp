#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/http_message.hpp"
#include "models/serving/teacher_scorer.hpp"
#include "server/http/http_server.hpp"
#include "server/teacher/score_queue.hpp"
#include "server/teacher/teacher_codec.hpp"
#include "server/teacher/teacher_metrics.hpp"

namespace distilld::teacher {

struct TeacherServiceOptions {
    std::string model_name = "teacher";
    ScoreLimits limits;
    std::chrono::nanoseconds delay{0};          ///< between computing and answering
    std::uint64_t max_held_bytes = 2ULL << 30;  ///< answers, from the queue until they are sent; beyond it 503
};

/// The HTTP side of a teacher: routes and answers. One executor, the server's. Until set_model() the model is not ready
/// and scoring answers 503. Answers are encoded on `encode`, so that large JSON does not stop the others.
class TeacherService {
  public:
    TeacherService(boost::asio::any_io_executor encode, ScoreQueue& queue, TeacherMetrics& metrics,
                   TeacherServiceOptions options);
    TeacherService(const TeacherService&) = delete;
    TeacherService& operator=(const TeacherService&) = delete;

    /// `scorer` must outlive the service and the queue's run().
    void set_model(models::TeacherScorer& scorer);

    /// They refer to this object.
    [[nodiscard]] std::vector<http::Route> routes();
    [[nodiscard]] http::Observer observer();

  private:
    boost::asio::awaitable<api::Response> infer(api::Request request);
    boost::asio::awaitable<api::Response> head(api::Request request);
    boost::asio::awaitable<api::Response> complete(api::Request request);
    /// Waits for the queue; the result, or the answer that says why there is none.
    struct Scored {
        std::optional<models::ScoreResult> result;
        std::chrono::steady_clock::time_point finished;
        std::shared_ptr<const void> held;  ///< counts the answer's memory; goes on to the response
        api::Response failure;
    };
    boost::asio::awaitable<Scored> score(models::ScoreRequest request, std::uint64_t answer_bytes);
    boost::asio::awaitable<void> wait_delay(std::chrono::steady_clock::time_point finished);

    [[nodiscard]] api::Response live() const;
    [[nodiscard]] api::Response ready() const;
    [[nodiscard]] api::Response server_metadata() const;
    [[nodiscard]] api::Response model_metadata(const api::Request& request) const;
    [[nodiscard]] api::Response model_ready(const api::Request& request) const;
    [[nodiscard]] api::Response model_list() const;
    [[nodiscard]] api::Response metrics_text() const;

    boost::asio::any_io_executor encode_;
    ScoreQueue& queue_;
    TeacherMetrics& metrics_;
    TeacherServiceOptions options_;
    models::TeacherScorer* scorer_ = nullptr;
    /// Of answers under way; shared with those, which may be on their way to a client when this is gone.
    std::shared_ptr<std::uint64_t> held_bytes_ = std::make_shared<std::uint64_t>(0);
};

}  // namespace distilld::teacher
