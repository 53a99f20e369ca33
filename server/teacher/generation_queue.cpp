#include "server/teacher/generation_queue.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/time.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/support/log.hpp"

namespace distilld::teacher {

namespace asio = boost::asio;
using StepClock = std::chrono::steady_clock;

namespace {
constexpr const char* kStops = "the server stops";
}

struct GenerationQueue::Answers::State {
    State(const asio::any_io_executor& executor, std::size_t sequences) : changed(executor), ended(sequences, false) {}

    std::vector<GenerationNews> news;
    std::optional<GenerationFailure> failure;
    Condition changed;
    std::vector<bool> ended;  ///< by sequence: it is over, or nobody waits for it

    [[nodiscard]] bool over() const { return failure || std::ranges::find(ended, false) == ended.end(); }
    void fail(const GenerationFailure& why) {
        if (!over()) {
            failure = why;
            changed.notify();
        }
    }
};

GenerationQueue::Answers::Answers(const asio::any_io_executor& executor, std::size_t sequences)
    : state_(std::make_shared<State>(executor, sequences)) {}

GenerationQueue::Answers::~Answers() {
    std::fill(state_->ended.begin(), state_->ended.end(), true);
}

asio::awaitable<std::vector<GenerationNews>> GenerationQueue::Answers::next(Condition::TimePoint deadline) {
    bool in_time = true;
    while (in_time && state_->news.empty() && !state_->over()) {
        in_time = co_await state_->changed.wait(deadline);
    }
    co_return std::exchange(state_->news, {});
}

bool GenerationQueue::Answers::over() const {
    return state_->over() && (state_->failure || state_->news.empty());
}

const std::optional<GenerationFailure>& GenerationQueue::Answers::failure() const {
    return state_->failure;
}

void GenerationQueue::Answers::end(std::size_t sequence) {
    state_->ended[sequence] = true;
    std::erase_if(state_->news, [sequence](const GenerationNews& one) { return one.sequence == sequence; });
}

struct GenerationQueue::Sequence {
    std::shared_ptr<Answers::State> answers;
    std::size_t place = 0;
    models::GenerationRequest request;  ///< empty once it has begun
    StepClock::time_point arrived;
    std::uint64_t number = 0;  ///< of the generator

    [[nodiscard]] bool is_wanted() const { return !answers->failure && !answers->ended[place]; }
};

GenerationQueue::GenerationQueue(asio::any_io_executor executor, asio::any_io_executor compute,
                                 GenerationQueueOptions options, TeacherMetrics& metrics)
    : executor_(std::move(executor)),
      compute_(std::move(compute)),
      options_(options),
      metrics_(metrics),
      wake_(executor_) {}

GenerationQueue::~GenerationQueue() = default;

std::unique_ptr<GenerationQueue::Answers> GenerationQueue::submit(std::vector<models::GenerationRequest> requests) {
    std::erase_if(waiting_, [](const Sequence& sequence) { return !sequence.is_wanted(); });
    if (stopping_ || waiting_.size() + requests.size() > options_.max_waiting) {
        return nullptr;
    }
    auto answers = std::make_unique<Answers>(executor_, requests.size());
    for (std::size_t place = 0; place < requests.size(); ++place) {
        waiting_.push_back({answers->state_, place, std::move(requests[place]), StepClock::now()});
    }
    note();
    wake_.notify();
    return answers;
}

asio::awaitable<Result<std::shared_ptr<models::LoadedAdapter>>> GenerationQueue::load_adapter(
    std::filesystem::path folder) {
    auto load = [generator = generator_, folder = std::move(folder)] { return generator->load_adapter(folder); };
    co_return co_await run_on(compute_, std::move(load));
}

asio::awaitable<Result<std::shared_ptr<models::LoadedAdapter>>> GenerationQueue::load_model(
    std::filesystem::path folder) {
    auto load = [generator = generator_, folder = std::move(folder)] { return generator->load_model(folder); };
    co_return co_await run_on(compute_, std::move(load));
}

void GenerationQueue::admit() {
    while (!waiting_.empty()) {
        Sequence& first = waiting_.front();
        if (first.is_wanted() && StepClock::now() - first.arrived > options_.timeout) {
            first.answers->fail({true, "the request could not be computed in time"});
        }
        if (first.is_wanted() && !generator_->has_room(first.request)) {
            return;
        }
        if (first.is_wanted()) {
            metrics_.update([&first](TeacherCounts& counts) {
                counts.prompt_tokens += first.request.prompt.size();
                counts.queue_waits.observe(to_seconds(StepClock::now() - first.arrived));
            });
            first.number = generator_->add(std::exchange(first.request, {}));
            running_.push_back(std::move(first));
        }
        waiting_.pop_front();
    }
}

std::vector<std::uint64_t> GenerationQueue::take_ended() {
    std::vector<std::uint64_t> numbers;
    std::erase_if(running_, [&numbers](const Sequence& sequence) {
        if (!sequence.is_wanted()) {
            numbers.push_back(sequence.number);
        }
        return !sequence.is_wanted();
    });
    return numbers;
}

void GenerationQueue::deliver(std::vector<models::GenerationStep> steps) {
    std::uint64_t tokens = 0;
    for (models::GenerationStep& step : steps) {
        tokens += step.token ? 1 : 0;
        const auto sequence = std::ranges::find(running_, step.sequence, &Sequence::number);
        if (sequence == running_.end()) {
            continue;
        }
        const bool ended = step.end.has_value();
        if (sequence->is_wanted()) {
            Answers::State& answers = *sequence->answers;
            answers.ended[sequence->place] = ended;
            answers.news.push_back({sequence->place, std::move(step)});
            answers.changed.notify();
        }
        if (ended) {
            running_.erase(sequence);
        }
    }
    metrics_.update([tokens](TeacherCounts& counts) { counts.generated_tokens += tokens; });
}

void GenerationQueue::fail_running(const GenerationFailure& failure) {
    for (const Sequence& sequence : running_) {
        sequence.answers->fail(failure);
    }
}

void GenerationQueue::note() {
    metrics_.update([this](TeacherCounts& counts) {
        counts.sequences_waiting = waiting_.size();
        counts.sequences_running = running_.size();
    });
}

asio::awaitable<void> GenerationQueue::run() {
    while (!stopping_) {
        const std::vector<std::uint64_t> ended = take_ended();
        // The compute thread is idle here.
        admit();
        note();
        if (ended.empty() && running_.empty()) {
            co_await wake_.wait();
            continue;
        }
        auto work = [this, &ended] {
            const auto begun = StepClock::now();
            for (const std::uint64_t number : ended) {
                generator_->remove(number);
            }
            auto steps = generator_->step();
            const double seconds = to_seconds(StepClock::now() - begun);
            metrics_.update([seconds](TeacherCounts& counts) { counts.compute_seconds += seconds; });
            return steps;
        };
        std::string problem;
        try {
            deliver(co_await run_on(compute_, std::move(work)));
        } catch (const std::exception& error) {
            problem = std::string("the model failed: ") + error.what();
        }
        if (!problem.empty()) {
            log::error("teacher", problem);
            fail_running({false, problem});
        }
    }
    fail_running({true, kStops});
    for (const Sequence& sequence : waiting_) {
        sequence.answers->fail({true, kStops});
    }
    waiting_.clear();
    running_.clear();
    note();
}

void GenerationQueue::stop() {
    stopping_ = true;
    wake_.notify();
}

}  // namespace distilld::teacher
