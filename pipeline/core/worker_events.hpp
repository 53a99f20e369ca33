#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/type_table.hpp"
#include "pipeline/core/duration_counts.hpp"

namespace distilld {

/// Seconds one stage of the graph spent in each state since the run began (or was resumed).
struct StageTimes {
    std::string stage;  ///< a name of kStageNames
    double busy_seconds = 0;
    double wait_input_seconds = 0;
    double wait_output_seconds = 0;
};

/// One endpoint of the teacher: how it stands, and what came of its requests since the run began.
struct EndpointCounters {
    std::string endpoint;  ///< its URL, which holds no credentials
    std::uint32_t in_flight = 0;
    std::uint32_t limit = 0;                        ///< requests that it may get at a time, an open one its probe
    bool open = false;                              ///< left out now, but for probes
    std::map<std::string, std::uint64_t> outcomes;  ///< ended requests: success, or the FailureKind's name
    std::uint64_t retries = 0;
    std::uint64_t hedges = 0;
    std::uint64_t hedge_wins = 0;  ///< its answer to a hedge came first
    std::uint64_t breaker_openings = 0;
    std::uint64_t tokens = 0;          ///< input positions that it has answered for, unused answers among them
    double tokens_per_second = 0;      ///< of them, over the last micro-batches; generate jobs only
    std::uint64_t bytes_sent = 0;      ///< over the wire: heads and bodies of requests
    std::uint64_t bytes_received = 0;  ///< over the wire: bodies of answers
    double latency_seconds = 0;        ///< of its last answers, the latest most; 0: it has given none
};

/// The store of a run that writes or reads one.
struct StoreCounters {
    std::uint64_t rows = 0;         ///< of the dataset
    std::uint64_t held_rows = 0;    ///< that it has answers for, in sealed shards or not
    std::uint64_t sealed_rows = 0;  ///< in sealed shards, which others can read
    std::uint64_t sealed_bytes = 0;
};

/// One of several teachers: how it stands, and what came of its requests since the run began.
struct TeacherCounters {
    std::string teacher;       ///< its name
    double wait_seconds = 0;   ///< for which the student waited while rows of this teacher were missing
    std::uint64_t tokens = 0;  ///< input positions that it has answered for, unused answers among them
    std::uint64_t requests = 0;
    std::uint64_t completed = 0;
    std::uint64_t failures = 0;
    std::uint64_t bytes_received = 0;
    std::uint32_t concurrency = 0;  ///< limit now
    std::uint32_t window = 0;       ///< micro-batches asked for and not yet trained on, at most
    std::uint32_t in_flight = 0;
    std::uint32_t buffered = 0;  ///< micro-batches whose rows are there, or that have none, not yet consumed
    std::uint32_t open_endpoints = 0;
    double latency_p50_seconds = 0;
    double latency_p95_seconds = 0;
    std::optional<StoreCounters> store{};
};

/// What fetching the head for the teacher's hidden states took.
struct HeadFetchCounters {
    std::uint64_t bytes = 0;  ///< of the file that it comes in
    double seconds = 0;       ///< from the first request to the end of its checks
};

/// Counters of the teacher side since the run began. Of several teachers: sums, the smallest `buffered`, and of window
/// and latencies the largest.
struct FetchCounters {
    std::uint64_t requests = 0;
    std::uint64_t completed = 0;
    std::uint64_t retries = 0;
    std::uint64_t hedges = 0;
    std::uint64_t hedge_wins = 0;
    std::map<std::string, std::uint64_t> failures;  ///< by FailureKind name
    std::uint64_t breaker_openings = 0;
    std::uint64_t bytes_received = 0;  ///< over the wire: bodies of all answers, the probe's and unused ones among them
    std::uint32_t open_endpoints = 0;  ///< left out now, but for probes
    std::uint32_t concurrency = 0;     ///< limit now
    std::uint32_t window = 0;          ///< micro-batches asked for and not yet trained on, at most
    std::uint32_t in_flight = 0;
    std::uint32_t buffered = 0;        ///< answered, not yet consumed
    std::uint32_t decode_threads = 0;  ///< answers that are decoded at a time, at most
    double latency_p50_seconds = 0;
    double latency_p95_seconds = 0;
    std::vector<EndpointCounters> endpoints;
    std::optional<StoreCounters> store{};
    std::vector<TeacherCounters> teachers{};  ///< of several, one each
    HeadFetchCounters head{};
};

/// Requests to one endpoint that came to one end, by the time from sending to the answer's last byte.
struct RequestDurations {
    std::string endpoint;
    std::string outcome;  ///< success, failure, cancelled (by us: another answer was faster)
    DurationCounts seconds;
};

/// What a run has counted by size since it began: for the metrics, and kept nowhere else.
struct RunDurations {
    /// Of optimizer steps, each from the end of the one before it (the first from the run's start), so what the step
    /// waited for is in it, and an evaluation or a checkpoint's copy that came between.
    DurationCounts steps;
    std::vector<RequestDurations> requests;
};

/// A bounded place before a stage in which its input waits.
struct StageQueue {
    std::string stage;  ///< which takes from it
    std::uint64_t items = 0;
    std::uint64_t capacity = 0;
};

/// Of a file system that the run writes to.
struct DiskUsage {
    std::string of;  ///< output, checkpoints
    std::uint64_t free_bytes = 0;
    std::uint64_t size_bytes = 0;
};

/// What the worker's process takes of its machine.
struct WorkerUsage {
    std::uint64_t resident_bytes = 0;
    std::uint64_t peak_resident_bytes = 0;
    double cpu_seconds = 0;  ///< user and system, since the process began
    std::uint64_t open_files = 0;
    std::string device;                        ///< cpu, cuda:0; empty: not known
    std::uint64_t device_allocated_bytes = 0;  ///< in use; on the CPU the process's resident memory
    std::uint64_t device_reserved_bytes = 0;   ///< that, and what libtorch's allocator keeps for later
    std::uint64_t device_peak_bytes = 0;       ///< most that was allocated at once
    std::uint64_t device_total_bytes = 0;      ///< that there are, whoever holds them
    std::vector<DiskUsage> disks;
};

/// Records that a sink of the run was given, since the run began.
struct SinkCounters {
    std::string sink;  ///< jsonl, tensorboard, mlflow, otlp
    std::uint64_t written = 0;
    std::uint64_t dropped = 0;  ///< lost: no room in the queue, refused, or not written in time
};

/// How things stand, for the metrics, and kept nowhere else.
struct RunMeasures {
    std::vector<StageQueue> queues;
    WorkerUsage usage;
    std::vector<SinkCounters> sinks{};
};

/// Progress of a job after one optimizer step, or after a request of a generate job, whose steps are rows of the
/// dataset that its store holds; what it says of a student is 0 then.
struct ProgressEvent {
    bool generates = false;
    std::uint64_t step = 0;
    std::uint64_t total_steps = 0;
    double loss = 0;  ///< mean over the step's target tokens
    double kd_loss = 0;
    double ce_loss = 0;
    double grad_norm = 0;
    double learning_rate = 0;
    std::uint64_t tokens = 0;          ///< input positions trained on since the run began
    std::uint64_t padding_tokens = 0;  ///< positions that the student computed beside them, since the run began
    double tokens_per_second = 0;      ///< over the last steps
    double stall_fraction = 0;         ///< share of the wall time since start that the student waited for input
    double seconds_elapsed = 0;
    double seconds_remaining = 0;
    double teacher_hidden_fraction = 0;  ///< share of teacher request time during which the student was not waiting
    std::vector<StageTimes> stages;
    std::string bottleneck;  ///< the stage that sets the pace
    FetchCounters fetch;
    std::uint64_t nonfinite_steps = 0;
    RunDurations durations;
    RunMeasures measures;
};

struct StartedEvent {
    std::uint64_t total_steps = 0;
    std::uint64_t first_step = 0;  ///< above 0 after a resume
    std::uint64_t parameters = 0;
    std::uint64_t dataset_rows = 0;
    std::uint64_t dataset_tokens = 0;       ///< that the rows hold
    std::uint64_t dataset_tokens_read = 0;  ///< that the files held; 0: not known
    std::string dtype;
    std::string teacher;  ///< what the probe said; empty without a teacher
    std::uint32_t batch_size = 0;
    std::uint32_t micro_batches = 0;
    std::string tokenizer{};  ///< what read the data, in one line
    std::string store{};  ///< folder that a generate job writes; steps are rows of the dataset then. Empty: training
};

/// What the student says after a prompt.
struct SampledText {
    std::string prompt;
    std::string text;
};

struct EvaluationEvent {
    std::uint64_t step = 0;
    double loss = 0;  ///< mean cross entropy on the eval set
    std::uint64_t tokens = 0;
    std::optional<double> kl{};              ///< mean KL of the student from the teacher, of targets that it gave
    std::optional<double> top1_agreement{};  ///< share of those whose likeliest token is the teacher's
    std::vector<SampledText> samples{};      ///< of eval.sample_prompts
};

struct CheckpointEvent {
    std::uint64_t step = 0;
    std::string folder;
    double seconds = 0;
    std::uint64_t bytes = 0;  ///< of its files; 0: not known
};

struct LogEvent {
    std::string level;  ///< info, warn, error
    std::string message;
};

/// The run waits for something outside it (an outage is waited out, it does not end a job). Said when the wait begins
/// and whenever what is known of it changes; an empty code says that it is over.
struct WaitingEvent {
    std::string code;     ///< teacher_unavailable, disk_full; empty = the run goes on
    std::string message;  ///< what is waited for, and what was last answered
    double since = 0;     ///< seconds since the Unix epoch at which the wait began
};

/// Last event of a run that reached its end.
struct FinishedEvent {
    ProgressEvent last;
    std::string output;
    std::optional<double> eval_loss;
    std::string weights_sha256;  ///< over the exported model.safetensors
    /// Held-out loss of the weights as the export rounds them; nothing when it holds them as they were trained.
    std::optional<double> exported_eval_loss{};
};

/// Last event of a run that was stopped on request, after its checkpoint.
struct CancelledEvent {
    std::uint64_t step = 0;
    std::string checkpoint;  ///< empty when no step was done
};

struct FailedEvent {
    std::string kind;  ///< ErrorKind as text: invalid_input, io, teacher, internal
    std::string message;
};

/// A row of kWorkerEvents.
template <class Event>
struct EventRow {
    using type = Event;
    const char* name;
    bool ends_run = false;  ///< nothing follows it
};

/// The events under the names that they travel by. To add one: its struct above, its fields in event_fields.hpp, its
/// row here.
inline constexpr std::tuple kWorkerEvents{
    EventRow<StartedEvent>{"started"},
    EventRow<ProgressEvent>{"progress"},
    EventRow<EvaluationEvent>{"evaluation"},
    EventRow<CheckpointEvent>{"checkpoint"},
    EventRow<LogEvent>{"log"},
    EventRow<WaitingEvent>{"waiting"},
    EventRow<FinishedEvent>{"finished", true},
    EventRow<CancelledEvent>{"cancelled", true},
    EventRow<FailedEvent>{"failed", true},
};
using WorkerEvent = VariantOf<kWorkerEvents>;

/// Finished, cancelled or failed.
[[nodiscard]] inline bool ends_run(const WorkerEvent& event) {
    return std::visit(
        [](const auto& one) { return row_of<std::remove_cvref_t<decltype(one)>>(kWorkerEvents).ends_run; }, event);
}

/// Orders to a worker that trains.
/// End at the next step boundary.
struct CancelCommand {
    bool checkpoint = true;  ///< with a checkpoint of the last whole step; false: with those that there are
};
struct CheckpointCommand {};  ///< checkpoint at the next step boundary, go on
/// Ceiling of the requests to the teacher in flight, from now on.
struct SetLimitCommand {
    std::uint32_t max_concurrent = 0;  ///< at least 1
};

/// A row of kWorkerOrders.
template <class Order>
struct OrderRow {
    using type = Order;
    const char* name;
};

/// The orders under the names that they travel by.
inline constexpr std::tuple kWorkerOrders{
    OrderRow<CancelCommand>{"cancel"},
    OrderRow<CheckpointCommand>{"checkpoint"},
    OrderRow<SetLimitCommand>{"set_limit"},
};
using WorkerCommand = VariantOf<kWorkerOrders>;

}  // namespace distilld
