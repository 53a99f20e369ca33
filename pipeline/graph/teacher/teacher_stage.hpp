#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/time.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/scheduling/prefetch_scheduler.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/decode_stage.hpp"
#include "pipeline/graph/plan_stage.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/teacher/teacher_watch.hpp"
#include "pipeline/graph/trace_writer.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// How one teacher is asked.
struct TeacherStageOptions {
    SchedulerOptions scheduler;                 ///< one_of_several is set by the stage
    std::uint32_t sharers = 1;                  ///< ranks of which each takes an equal part of set_ceiling()'s limit
    Nanos deadline = std::chrono::seconds(60);  ///< of one request
    std::vector<std::size_t> absent_endpoints;  ///< were down when the teacher was probed
    /// Receives warnings and outages (see TeacherWatch). May be empty; the graph gives its own.
    std::function<void(const WorkerEvent&)> on_event;
    TeacherWatchOptions watch;  ///< max_hold is the scheduler's, deadline and asked are set by the lane
    /// Report long silence of the teacher; false if the teacher itself reports what it waits for.
    bool names_silence = true;
    /// Called when short_of_batches() and something has changed. May be empty.
    std::function<void()> on_short;
};

/// One teacher of a graph.
struct GraphTeacher {
    std::string name{};               ///< empty: the only teacher of a job that names none
    TeacherSource* source = nullptr;  ///< outlives the graph; null: plain training, batches without targets
    TeacherStageOptions options{};    ///< the graph sets scheduler.first and .end, and on_event
};

class TeacherLane;

/// The teacher stage: one lane per teacher, with its own requests, window, limits and counters. A lane asks about its
/// teacher's rows of each micro-batch (PlannedBatch::parts, in the order of the teachers), and is skipped if it has
/// none. Micro-batches are handed on in order, with the targets of all lanes. Targets of several lanes are joined on
/// the executor of `decode`; those of a single lane are handed on unchanged. Errors and events name the teacher if it
/// has a name. All calls on the executor it was made with (single-threaded).
class TeacherStage {
  public:
    /// At least one teacher. `plan`, `decode`, `trace` (which may be null) and the sources must outlive it.
    TeacherStage(boost::asio::any_io_executor executor, PlanStage& plan, DecodeStage& decode,
                 std::vector<GraphTeacher> teachers, TraceWriter* trace);
    ~TeacherStage();
    TeacherStage(const TeacherStage&) = delete;
    TeacherStage& operator=(const TeacherStage&) = delete;

    /// Requests and collects until everything was delivered, stop() was called or a micro-batch is unobtainable. The
    /// first lane to fail ends the others. All requests have ended when it returns or throws; it throws
    /// operation_aborted when cancelled. Run it once.
    boost::asio::awaitable<void> run();
    /// The next micro-batch in order; nullopt at the end, after stop() or after a failure (see failure()).
    boost::asio::awaitable<std::optional<MicroBatch>> next();
    /// Ends run() and next(); requests under way are cancelled.
    void stop();
    /// Valid once run() has ended.
    [[nodiscard]] const std::optional<Error>& failure() const { return failure_; }

    // Reports what the student does, for window, stall and adaptive limit (see PrefetchScheduler).
    void on_wanted();
    void on_taken(std::uint64_t n);
    void on_trained(std::uint64_t n);
    void on_released(std::uint64_t n);
    /// For each lane; of a job on several ranks, the whole job's.
    void set_ceiling(std::uint32_t ceiling);
    /// While held, it starts no requests. Those in flight go on, and answers are handed on.
    void set_held(bool held);
    /// Waits until no request is in flight. A held stage is then at rest.
    boost::asio::awaitable<void> requests_ended();
    /// With scheduler.growing: there are micro-batches up to `end`; with `last`, no others will follow.
    void set_end(std::uint64_t end, bool last);
    /// More are needed soon (PrefetchScheduler::short_of_batches()).
    [[nodiscard]] bool short_of_batches() const;

    /// As FetchCounters describes for several teachers; `teachers` has the named ones.
    [[nodiscard]] FetchCounters counters() const;
    /// Whether there is a teacher; otherwise it is plain training.
    [[nodiscard]] bool asks() const;
    /// How long the student waited in reported outages that are over; rates leave it out.
    [[nodiscard]] Nanos lost() const;
    /// Durations of requests that were sent and have ended, by endpoint and outcome.
    [[nodiscard]] std::vector<RequestDurations> durations() const;
    /// Answers waiting before decode and staging, with the bounds.
    [[nodiscard]] std::vector<StageQueue> queues() const;
    /// busy: at least one request on the wire; wait_output: none, because the window is full or answers wait to be
    /// decoded; wait_input: none to issue.
    [[nodiscard]] StageTimes times() const { return clock_.times(); }

  private:
    struct Lane;

    template <class... Arguments>
    void all(void (TeacherLane::*change)(Arguments...), Arguments... arguments);
    void tell(Lane& lane, const WorkerEvent& event, const std::function<void(const WorkerEvent&)>& emit);
    void on_state(Lane& lane, StageClock::State state);
    boost::asio::awaitable<void> run_lane(Lane& lane);
    void fail(Error error, const Lane* by = nullptr);

    boost::asio::any_io_executor executor_;
    PlanStage& plan_;
    DecodeStage& decode_;
    std::vector<Lane> lanes_;
    StageClock clock_{Stage::teacher};
    std::uint64_t next_ = 0;
    std::optional<Error> failure_;
};

}  // namespace distilld
