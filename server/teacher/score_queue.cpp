#include "server/teacher/score_queue.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>
#include <string>
#include <utility>

#include "base/time.hpp"
#include "pipeline/async/run_on.hpp"

namespace distilld::teacher {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

struct ScoreQueue::Job {
    Job(const asio::any_io_executor& executor, std::uint64_t positions_in, Work work_in)
        : positions(positions_in), work(std::move(work_in)), done(executor) {}

    std::uint64_t positions;
    Work work;
    Clock::time_point arrived = Clock::now();
    std::atomic<bool> dropped{false};  ///< the caller no longer waits; read by the compute thread
    Condition done;
    bool finished = false;
    Outcome outcome;
};

namespace {

Result<void> guarded(const ScoreQueue::Work& work) {
    try {
        return work();
    } catch (const std::exception& error) {
        return Error{ErrorKind::internal, std::string("the model failed: ") + error.what()};
    }
}

}  // namespace

ScoreQueue::ScoreQueue(asio::any_io_executor executor, asio::any_io_executor compute, ScoreQueueOptions options,
                       TeacherMetrics& metrics)
    : executor_(std::move(executor)),
      compute_(std::move(compute)),
      options_(options),
      metrics_(metrics),
      wake_(executor_) {}

asio::awaitable<ScoreQueue::Outcome> ScoreQueue::submit(std::uint64_t positions, Work work) {
    if (stopping_ || waiting_.size() >= options_.max_waiting) {
        Outcome refused;
        refused.refusal = Refusal::full;
        co_return refused;
    }
    auto job = std::make_shared<Job>(executor_, positions, std::move(work));
    waiting_.push_back(job);
    note_waiting();
    wake_.notify();
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(options_.timeout);
    bool in_time = true;
    try {
        while (!job->finished && in_time) {
            in_time = co_await job->done.wait(deadline);
        }
    } catch (...) {
        withdraw(job);  // the caller was cancelled
        throw;
    }
    if (job->finished) {
        co_return std::move(job->outcome);
    }
    withdraw(job);
    Outcome late;
    late.refusal = Refusal::timeout;
    co_return late;
}

void ScoreQueue::withdraw(const std::shared_ptr<Job>& job) {
    job->dropped = true;
    const auto position = std::find(waiting_.begin(), waiting_.end(), job);
    if (position != waiting_.end()) {
        waiting_.erase(position);
        note_waiting();
        metrics_.update([](TeacherCounts& counts) { ++counts.dropped; });
    }
}

void ScoreQueue::note_waiting() {
    metrics_.update([this](TeacherCounts& counts) { counts.waiting = waiting_.size(); });
}

ScoreQueue::Batch ScoreQueue::take_batch() {
    Batch batch;
    std::uint64_t positions = 0;
    while (!waiting_.empty()) {
        positions += waiting_.front()->positions;
        if (!batch.empty() && positions > options_.max_batch_tokens) {
            break;
        }
        batch.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
    }
    note_waiting();
    return batch;
}

asio::awaitable<void> ScoreQueue::run() {
    while (!stopping_) {
        if (waiting_.empty()) {
            co_await wake_.wait();
            continue;
        }
        // A reference here, so that the compute thread never releases the last one to a job.
        const Batch batch = take_batch();
        metrics_.update([&batch](TeacherCounts& counts) { counts.batches.observe(static_cast<double>(batch.size())); });
        auto work = [this, &batch] { compute(batch); };
        co_await run_on(compute_, std::move(work));
    }
    waiting_.clear();
}

void ScoreQueue::compute(const Batch& batch) {
    for (const auto& job : batch) {
        if (job->dropped || stopping_) {
            metrics_.update([](TeacherCounts& counts) { ++counts.dropped; });
            continue;
        }
        const auto begun = Clock::now();
        Outcome outcome;
        outcome.result = guarded(job->work);
        outcome.finished = Clock::now();
        metrics_.update([&](TeacherCounts& counts) {
            counts.tokens += job->positions;
            counts.queue_waits.observe(to_seconds(begun - job->arrived));
            counts.compute_seconds += to_seconds(outcome.finished - begun);
        });
        auto finish = [finished = job, made = std::move(outcome)]() mutable {
            finished->outcome = std::move(made);
            finished->finished = true;
            finished->done.notify();
        };
        asio::post(executor_, std::move(finish));
    }
}

void ScoreQueue::stop() {
    stopping_ = true;
    wake_.notify();
}

}  // namespace distilld::teacher
