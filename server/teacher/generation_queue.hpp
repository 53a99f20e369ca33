#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/serving/generator.hpp"
#include "pipeline/async/condition.hpp"
#include "server/teacher/teacher_metrics.hpp"

namespace distilld::teacher {

struct GenerationQueueOptions {
    std::uint32_t max_waiting = 256;                               ///< sequences
    std::chrono::nanoseconds timeout = std::chrono::seconds(120);  ///< until a sequence begins
};

/// News of a request's sequences, in the order of the tokens of each.
struct GenerationNews {
    std::size_t sequence = 0;  ///< its place in the request
    models::GenerationStep step;
};

/// Why a request gets no answer.
struct GenerationFailure {
    bool busy = false;  ///< it may be sent again: no room, or no time
    std::string message;
};

/// Passes the sequences of many connections to the generator on the compute thread, step by step. A sequence begins,
/// in order of arrival, when the generator has room. All members run on one executor, a strand or a single-threaded
/// context.
class GenerationQueue {
  public:
    /// The sequences of one request. Whoever holds it reads the news; sequences end early when it is destroyed, which
    /// may be after the queue.
    class Answers {
      public:
        explicit Answers(const boost::asio::any_io_executor& executor, std::size_t sequences);
        Answers(const Answers&) = delete;
        Answers& operator=(const Answers&) = delete;
        ~Answers();

        /// Waits for news; none at the deadline, or if it is over().
        boost::asio::awaitable<std::vector<GenerationNews>> next(Condition::TimePoint deadline = Condition::kNever);
        /// All sequences have ended and their news was read, or failure() says why there will be none.
        [[nodiscard]] bool over() const;
        [[nodiscard]] const std::optional<GenerationFailure>& failure() const;
        /// Ends a sequence: no news of it follows.
        void end(std::size_t sequence);

      private:
        friend class GenerationQueue;
        struct State;
        std::shared_ptr<State> state_;
    };

    GenerationQueue(boost::asio::any_io_executor executor, boost::asio::any_io_executor compute,
                    GenerationQueueOptions options, TeacherMetrics& metrics);
    ~GenerationQueue();
    GenerationQueue(const GenerationQueue&) = delete;
    GenerationQueue& operator=(const GenerationQueue&) = delete;

    [[nodiscard]] const boost::asio::any_io_executor& executor() const noexcept { return executor_; }

    /// Before the first submit(). `generator` must outlive run(), and is used on the compute thread.
    void set_generator(models::Generator& generator) { generator_ = &generator; }

    /// Checked requests, see check_generation_request(). Null: too many sequences wait.
    [[nodiscard]] std::unique_ptr<Answers> submit(std::vector<models::GenerationRequest> requests);

    /// Generator::load_adapter() and load_model() on the compute thread.
    boost::asio::awaitable<Result<std::shared_ptr<models::LoadedAdapter>>> load_adapter(std::filesystem::path folder);
    boost::asio::awaitable<Result<std::shared_ptr<models::LoadedAdapter>>> load_model(std::filesystem::path folder);

    /// Feeds the compute thread until stop(); returns when it is idle. Sequences under way fail.
    boost::asio::awaitable<void> run();
    void stop();

  private:
    struct Sequence;

    void admit();
    /// Numbers of the sequences that nobody waits for.
    [[nodiscard]] std::vector<std::uint64_t> take_ended();
    void deliver(std::vector<models::GenerationStep> steps);
    void fail_running(const GenerationFailure& failure);
    void note();

    boost::asio::any_io_executor executor_;
    boost::asio::any_io_executor compute_;
    GenerationQueueOptions options_;
    TeacherMetrics& metrics_;
    models::Generator* generator_ = nullptr;
    std::deque<Sequence> waiting_;
    std::vector<Sequence> running_;
    Condition wake_;
    bool stopping_ = false;
};

}  // namespace distilld::teacher
