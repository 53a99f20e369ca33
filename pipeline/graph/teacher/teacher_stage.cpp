#include "pipeline/graph/teacher/teacher_stage.hpp"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "pipeline/async/run_on.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/core/teacher_name.hpp"
#include "pipeline/graph/teacher/fetch_counters.hpp"
#include "pipeline/graph/teacher/teacher_join.hpp"
#include "pipeline/graph/teacher/teacher_lane.hpp"

namespace distilld {

namespace asio = boost::asio;

struct TeacherStage::Lane {
    std::string name;
    std::unique_ptr<TeacherLane> teacher;
    StageClock::State state = StageClock::State::idle;
    std::optional<WaitingEvent> waiting;  // what it waits for
};

TeacherStage::TeacherStage(asio::any_io_executor executor, PlanStage& plan, DecodeStage& decode,
                           std::vector<GraphTeacher> teachers, TraceWriter* trace)
    : executor_(std::move(executor)), plan_(plan), decode_(decode), lanes_(teachers.size()) {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
        GraphTeacher& teacher = teachers[i];
        Lane& lane = lanes_[i];
        next_ = teacher.options.scheduler.first;
        lane.name = teacher.name;
        teacher.options.scheduler.one_of_several = lanes_.size() > 1;
        if (teacher.options.on_event) {
            teacher.options.on_event = [this, &lane, emit = teacher.options.on_event](const WorkerEvent& event) {
                tell(lane, event, emit);
            };
        }
        lane.teacher = std::make_unique<TeacherLane>(
            executor_, plan_, decode_, std::move(teacher), static_cast<std::uint32_t>(i),
            [this, &lane](StageClock::State state) { on_state(lane, state); }, trace);
    }
}

TeacherStage::~TeacherStage() = default;

template <class... Arguments>
void TeacherStage::all(void (TeacherLane::*change)(Arguments...), Arguments... arguments) {
    for (const Lane& lane : lanes_) {
        (lane.teacher.get()->*change)(arguments...);
    }
}

asio::awaitable<void> TeacherStage::run() {
    TaskGroup running(executor_);
    for (Lane& lane : lanes_) {
        if (!running.spawn(run_lane(lane))) {
            throw std::logic_error("teacher stage: its task group is closed");
        }
    }
    co_await running.join();
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) {
        throw boost::system::system_error(asio::error::operation_aborted);
    }
}

asio::awaitable<void> TeacherStage::run_lane(Lane& lane) {
    co_await lane.teacher->run();
    if (const std::optional<Error>& failure = lane.teacher->failure()) {
        fail(Error{failure->kind, said_of_teacher(lane.name, failure->message)}, &lane);
    }
}

/// Only what a lane that failed alone has delivered is still useful.
void TeacherStage::fail(Error error, const Lane* by) {
    if (!failure_) {
        failure_ = std::move(error);
    }
    for (const Lane& lane : lanes_) {
        if (&lane != by) {
            lane.teacher->stop();
        }
    }
}

asio::awaitable<std::optional<MicroBatch>> TeacherStage::next() {
    std::vector<std::optional<TeacherTargets>> answers;
    for (const Lane& lane : lanes_) {
        std::optional<TeacherLane::Answer> answer = co_await lane.teacher->next();
        if (!answer) {
            co_return std::nullopt;
        }
        answers.push_back(std::move(answer->targets));
    }
    const PlannedBatch planned = plan_.kept(next_);
    std::optional<TeacherTargets> targets;
    if (answers.size() == 1) {
        targets = std::move(answers.front());
    } else {
        auto work = [planned, moved = std::make_shared<decltype(answers)>(std::move(answers))] {
            return join_teachers(planned, std::move(*moved));
        };
        Result<TeacherTargets> joined = co_await run_on(decode_.executor(), std::move(work));
        if (!joined) {
            fail(Error{joined.error().kind, "micro-batch " + std::to_string(next_) + ": " + joined.error().message});
            co_return std::nullopt;
        }
        targets = std::move(*joined);
    }
    ++next_;
    co_return MicroBatch{planned.tokens, std::move(targets), planned.step_target_tokens,
                         planned.index,  planned.number,     planned.ends_step};
}

void TeacherStage::stop() {
    all(&TeacherLane::stop);
}

void TeacherStage::on_wanted() {
    all(&TeacherLane::on_wanted);
}

void TeacherStage::on_taken(std::uint64_t n) {
    all(&TeacherLane::on_taken, n);
}

void TeacherStage::on_trained(std::uint64_t n) {
    all(&TeacherLane::on_trained, n);
}

void TeacherStage::on_released(std::uint64_t n) {
    all(&TeacherLane::on_released, n);
    plan_.release(n);
}

void TeacherStage::set_ceiling(std::uint32_t ceiling) {
    all(&TeacherLane::set_ceiling, ceiling);
}

void TeacherStage::set_held(bool held) {
    all(&TeacherLane::set_held, held);
}

asio::awaitable<void> TeacherStage::requests_ended() {
    for (const Lane& lane : lanes_) {
        co_await lane.teacher->requests_ended();
    }
}

void TeacherStage::set_end(std::uint64_t end, bool last) {
    all(&TeacherLane::set_end, end, last);
}

bool TeacherStage::short_of_batches() const {
    return std::ranges::any_of(lanes_, [](const Lane& lane) { return lane.teacher->short_of_batches(); });
}

FetchCounters TeacherStage::counters() const {
    FetchCounters sum;
    for (const Lane& lane : lanes_) {
        FetchCounters one = lane.teacher->counters();
        if (!lane.name.empty()) {
            sum.teachers.push_back(teacher_counters(lane.name, one, lane.teacher->waited()));
        }
        add(sum, std::move(one), &lane == &lanes_.front());
    }
    return sum;
}

bool TeacherStage::asks() const {
    return std::ranges::any_of(lanes_, [](const Lane& lane) { return lane.teacher->asks(); });
}

Nanos TeacherStage::lost() const {
    Nanos most{0};
    for (const Lane& lane : lanes_) {
        most = std::max(most, lane.teacher->lost());
    }
    return most;
}

std::vector<RequestDurations> TeacherStage::durations() const {
    std::vector<RequestDurations> all;
    for (const Lane& lane : lanes_) {
        std::ranges::move(lane.teacher->durations(), std::back_inserter(all));
    }
    return all;
}

std::vector<StageQueue> TeacherStage::queues() const {
    const FetchCounters sum = counters();
    std::vector<StageQueue> queues;
    if (asks()) {
        // Each is still a request in flight.
        queues.push_back({std::string(stage_name(Stage::decode)), decode_.waiting(), sum.concurrency});
    }
    std::uint64_t answers = decode_.kept();
    for (const Lane& lane : lanes_) {
        answers += lane.teacher->delivered();
    }
    queues.push_back({std::string(stage_name(Stage::staging)), answers, std::uint64_t{sum.window} * lanes_.size()});
    return queues;
}

/// Forwards its events, which name it. If several wait, one of them is shown until its wait ends.
void TeacherStage::tell(Lane& lane, const WorkerEvent& event, const std::function<void(const WorkerEvent&)>& emit) {
    if (const auto* log = std::get_if<LogEvent>(&event)) {
        emit(LogEvent{log->level, said_of_teacher(lane.name, log->message)});
        return;
    }
    const auto* waiting = std::get_if<WaitingEvent>(&event);
    if (waiting == nullptr) {
        emit(event);
        return;
    }
    lane.waiting.reset();
    if (!waiting->code.empty()) {
        lane.waiting = WaitingEvent{waiting->code, said_of_teacher(lane.name, waiting->message), waiting->since};
        emit(*lane.waiting);
        return;
    }
    const auto other = std::ranges::find_if(lanes_, [](const Lane& one) { return one.waiting.has_value(); });
    const std::string end = waiting->message.empty() ? std::string() : said_of_teacher(lane.name, waiting->message);
    emit(other != lanes_.end() ? *other->waiting : WaitingEvent{"", end, 0});
}

/// The busiest lane decides.
void TeacherStage::on_state(Lane& lane, StageClock::State state) {
    lane.state = state;
    using enum StageClock::State;
    for (const StageClock::State first : {busy, wait_output, wait_input}) {
        if (std::ranges::any_of(lanes_, [first](const Lane& one) { return one.state == first; })) {
            clock_.enter(first);
            return;
        }
    }
    clock_.enter(idle);
}

}  // namespace distilld
