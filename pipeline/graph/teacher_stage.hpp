#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/time.hpp"
#include "pipeline/core/prefetch_scheduler.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/decode_stage.hpp"
#include "pipeline/graph/plan_stage.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/teacher_watch.hpp"
#include "pipeline/graph/trace_writer.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

struct TeacherStageOptions {
    SchedulerOptions scheduler;
    Nanos deadline = std::chrono::seconds(60);  ///< of one request
    std::vector<std::size_t> absent_endpoints;  ///< were not up when the teacher was probed
    /// Told of warnings and of outages (see TeacherWatch). May be empty; the graph gives its own.
    std::function<void(const WorkerEvent&)> on_event;
    TeacherWatchOptions watch;  ///< max_hold is the scheduler's, deadline and asked are ours
    /// A teacher that does not answer for long is told of; not one that says itself what it waits for.
    bool names_silence = true;
    /// Of several teachers: which one, from 0. What it answers is kept under it.
    std::uint32_t part = 0;
    /// Told of each state that times() is about. May be empty.
    std::function<void(StageClock::State)> on_state{};
    /// Called whenever short_of_batches() and something has changed. May be empty.
    std::function<void()> on_short;
};

/// The stage teacher: carries out what the prefetch scheduler decides and hands micro-batches on in order, with the
/// teacher's targets. All calls on the executor it was made with (single-threaded).
class TeacherStage {
  public:
    virtual ~TeacherStage() = default;

    /// Issues and collects until everything was delivered, stop() was called or a micro-batch cannot be had. Every
    /// request has ended when it returns or throws, which it does with operation_aborted when it is cancelled. Run it
    /// once.
    virtual boost::asio::awaitable<void> run() = 0;
    /// The next micro-batch in order; nullopt at the end, after stop() or after a failure (see failure()).
    virtual boost::asio::awaitable<std::optional<MicroBatch>> next() = 0;
    /// Ends run() and next(); requests under way are cancelled.
    virtual void stop() = 0;
    [[nodiscard]] virtual const std::optional<Error>& failure() const = 0;

    // What the student does, for window, stall and adaptive limit (see PrefetchScheduler).
    virtual void on_wanted() = 0;
    virtual void on_taken(std::uint64_t n) = 0;
    virtual void on_trained(std::uint64_t n) = 0;
    virtual void on_released(std::uint64_t n) = 0;
    virtual void set_ceiling(std::uint32_t ceiling) = 0;
    /// While it is held it begins no request. Those under way go on, and what was answered is handed on.
    virtual void set_held(bool held) = 0;
    /// Until none of its requests is under way. Of a stage that is held: until it is at rest.
    virtual boost::asio::awaitable<void> requests_ended() = 0;
    /// Of a stage whose scheduler.growing is set: there are micro-batches up to `end`, and with `last` no others.
    virtual void set_end(std::uint64_t end, bool last) = 0;
    /// More are wanted soon (PrefetchScheduler::short_of_batches()).
    [[nodiscard]] virtual bool short_of_batches() const = 0;

    [[nodiscard]] virtual FetchCounters counters() const = 0;
    /// Time for which the student has waited for this teacher.
    [[nodiscard]] virtual Nanos waited() const = 0;
    /// Of that, in outages that were told of and are over, which no rate is about.
    [[nodiscard]] virtual Nanos lost() const = 0;
    /// Of the requests that were sent and have ended, by endpoint and outcome.
    [[nodiscard]] virtual std::vector<RequestDurations> durations() const = 0;
    /// Answers before decode and staging, and how many there may be.
    [[nodiscard]] virtual std::vector<StageQueue> queues() const = 0;
    /// busy: at least one request on the wire; wait_output: none, because the window is full or answers wait to be
    /// decoded; wait_input: none to issue.
    [[nodiscard]] virtual StageTimes times() const = 0;
};

/// `source` may be null (plain training: batches without targets, and no second requests for what is late). `trace` may
/// be null.
std::unique_ptr<TeacherStage> make_teacher_stage(boost::asio::any_io_executor executor, MicroBatchPlan& plan,
                                                 DecodeStage& decode, TeacherSource* source,
                                                 TeacherStageOptions options, TraceWriter* trace);

}  // namespace distilld
