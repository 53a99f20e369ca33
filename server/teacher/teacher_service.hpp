#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/serving/local_teacher.hpp"
#include "models/serving/teacher_scorer.hpp"
#include "server/http/http_message.hpp"
#include "server/http/http_server.hpp"
#include "server/teacher/answer_memory.hpp"
#include "server/teacher/completion_service.hpp"
#include "server/teacher/generation_queue.hpp"
#include "server/teacher/score_queue.hpp"
#include "server/teacher/teacher_codec.hpp"
#include "server/teacher/teacher_metrics.hpp"

namespace distilld::teacher {

struct TeacherServiceOptions {
    std::string model_name = "teacher";
    ScoreLimits limits;
    std::uint32_t max_adapters = 16;            ///< loaded at once
    std::chrono::nanoseconds delay{0};          ///< between computation and answer
    std::uint64_t max_held_bytes = 2ULL << 30;  ///< of answers, from the queue until they are sent; beyond it 503
};

/// The HTTP side of a teacher: routes and answers; CompletionService has those that generate. Runs on the server's
/// executor. Scoring requests get 503 until set_model() or set_module() has been called. Answers are encoded on
/// `encode`, so that large JSON does not delay others.
class TeacherService {
  public:
    /// `generation`: null for a service that only scores.
    TeacherService(boost::asio::any_io_executor encode, ScoreQueue& queue, GenerationQueue* generation,
                   TeacherMetrics& metrics, TeacherServiceOptions options);
    TeacherService(const TeacherService&) = delete;
    TeacherService& operator=(const TeacherService&) = delete;

    /// `scorer` and `text` must outlive the service and the queues' run(). With `text`, the model also generates.
    void set_model(models::TeacherScorer& scorer, const ServedText* text = nullptr);
    /// The same for a module, which answers samples with named tensors.
    void set_module(models::TeacherModule& module, kserve::SampleNames names);

    /// The routes refer to this object.
    [[nodiscard]] std::vector<http::Route> routes();
    [[nodiscard]] http::Observer observer();

  private:
    boost::asio::awaitable<http::Response> infer(http::Request request);
    boost::asio::awaitable<http::Response> head(http::Request request);
    boost::asio::awaitable<http::Response> infer_tokens(kserve::InferRequest request);
    boost::asio::awaitable<http::Response> infer_samples(kserve::InferRequest request);
    boost::asio::awaitable<http::Response> complete(http::Request request);
    boost::asio::awaitable<http::Response> score_rows(SeedPlan asked);
    /// Work done after waiting in the queue, or an error answer.
    struct Computed {
        std::optional<http::Response> failure;
        std::chrono::steady_clock::time_point finished;
        std::shared_ptr<const void> held;  ///< counts the answer's memory; moves to the response
    };
    boost::asio::awaitable<Computed> compute(std::uint64_t positions, std::uint64_t answer_bytes,
                                             ScoreQueue::Work work);
    /// The answer to an inference request, built on `encode`.
    boost::asio::awaitable<http::Response> encoded(std::function<Result<kserve::EncodedMessage>()> build,
                                                   Computed computed);
    boost::asio::awaitable<void> wait_delay(std::chrono::steady_clock::time_point finished);
    void note_model();
    [[nodiscard]] const models::ServedModel* model() const;  ///< null: is being loaded

    [[nodiscard]] http::Response live() const;
    [[nodiscard]] http::Response ready() const;
    [[nodiscard]] http::Response server_metadata() const;
    [[nodiscard]] http::Response model_metadata(const http::Request& request) const;
    [[nodiscard]] http::Response model_ready(const http::Request& request) const;
    [[nodiscard]] http::Response metrics_text() const;

    boost::asio::any_io_executor encode_;
    ScoreQueue& queue_;
    TeacherMetrics& metrics_;
    TeacherServiceOptions options_;
    models::TeacherScorer* scorer_ = nullptr;
    models::TeacherModule* module_ = nullptr;
    kserve::SampleNames names_;  ///< of the module's tensors
    AnswerMemory memory_;
    GenerationQueue* generation_;
    std::optional<CompletionService> completions_;
};

}  // namespace distilld::teacher
