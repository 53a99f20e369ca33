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
#include "pipeline/core/rollout/answer_lengths.hpp"

namespace distilld {

/// Seconds one stage of the graph spent in each state since the run began (or was resumed).
struct StageTimes {
    std::string stage;  ///< a name of kStageNames
    double busy_seconds = 0;
    double wait_input_seconds = 0;
    double wait_output_seconds = 0;
};

/// One endpoint of the teacher: its state, and the results of its requests since the run began.
struct EndpointCounters {
    std::string endpoint;  ///< its URL, which holds no credentials
    std::uint32_t in_flight = 0;
    std::uint32_t limit = 0;                        ///< limit of requests in flight; with an open breaker, its probe
    bool open = false;                              ///< circuit breaker open
    std::map<std::string, std::uint64_t> outcomes;  ///< ended requests by success or the FailureKind's name
    std::uint64_t retries = 0;
    std::uint64_t hedges = 0;
    std::uint64_t hedge_wins = 0;  ///< its answer to a hedge came first
    std::uint64_t breaker_openings = 0;
    std::uint64_t tokens = 0;          ///< input positions answered for, including unused answers
    double tokens_per_second = 0;      ///< of them, over the last micro-batches; generate jobs only
    std::uint64_t bytes_sent = 0;      ///< over the wire: heads and bodies of requests
    std::uint64_t bytes_received = 0;  ///< over the wire: bodies of answers
    double latency_seconds = 0;        ///< mean of its answers, weighted towards the latest; 0: none
};

/// The store of a run that writes or reads one.
struct StoreCounters {
    std::uint64_t rows = 0;         ///< of the dataset
    std::uint64_t held_rows = 0;    ///< with answers, in sealed shards or not
    std::uint64_t sealed_rows = 0;  ///< in sealed shards, which others can read
    std::uint64_t sealed_bytes = 0;
};

/// One of several teachers: its state, and the results of its requests since the run began.
struct TeacherCounters {
    std::string teacher;       ///< its name
    double wait_seconds = 0;   ///< time that the student waited for rows of this teacher
    std::uint64_t tokens = 0;  ///< input positions answered for, including unused answers
    std::uint64_t requests = 0;
    std::uint64_t completed = 0;
    std::uint64_t failures = 0;
    std::uint64_t bytes_received = 0;
    std::uint32_t concurrency = 0;  ///< limit now
    std::uint32_t window = 0;       ///< limit of micro-batches requested and not yet trained on
    std::uint32_t in_flight = 0;
    std::uint32_t buffered = 0;  ///< micro-batches with all its rows, not yet consumed
    std::uint32_t open_endpoints = 0;
    double latency_p50_seconds = 0;
    double latency_p95_seconds = 0;
    std::optional<StoreCounters> store{};
};

/// Cost of fetching the head for the teacher's hidden states.
struct HeadFetchCounters {
    std::uint64_t bytes = 0;  ///< of its file
    double seconds = 0;       ///< from the first request to the end of its checks
};

/// How the answers of a teacher with another tokenizer fit the student's positions.
struct AlignmentCounters {
    std::uint64_t positions = 0;  ///< of the student, from the first with loss of each document on
    std::uint64_t aligned = 0;    ///< of them, those that learn from the teacher
    double mapped_mass = 0;       ///< mean probability of the named tokens that the student has, over the aligned ones
};

/// Counters of the teacher side since the run began. With several teachers: sums, the smallest `buffered`, and the
/// largest window and latencies.
struct FetchCounters {
    std::uint64_t requests = 0;
    std::uint64_t completed = 0;
    std::uint64_t retries = 0;
    std::uint64_t hedges = 0;
    std::uint64_t hedge_wins = 0;
    std::map<std::string, std::uint64_t> failures;  ///< by FailureKind name
    std::uint64_t breaker_openings = 0;
    std::uint64_t bytes_received = 0;  ///< over the wire: bodies of all answers, including the probe's and unused ones
    std::uint32_t open_endpoints = 0;  ///< circuit breaker open
    std::uint32_t concurrency = 0;     ///< limit now
    std::uint32_t window = 0;          ///< limit of micro-batches requested and not yet trained on
    std::uint32_t in_flight = 0;
    std::uint32_t buffered = 0;        ///< answered, not yet consumed
    std::uint32_t decode_threads = 0;  ///< limit of answers decoded at a time
    double latency_p50_seconds = 0;
    double latency_p95_seconds = 0;
    std::vector<EndpointCounters> endpoints;
    std::optional<StoreCounters> store{};
    std::vector<TeacherCounters> teachers{};  ///< one each, if there are several
    HeadFetchCounters head{};
    std::optional<AlignmentCounters> alignment{};  ///< with teacher.tokenizer
};

/// What the student has written to the prompts of a job with rollouts, since the run began.
struct RolloutCounters {
    std::uint64_t answers = 0;
    std::uint64_t tokens = 0;
    std::uint64_t cut = 0;   ///< answers that ended at rollout.max_tokens
    double mean_length = 0;  ///< tokens of an answer
    double entropy = 0;      ///< mean −log p of the tokens that it drew, in nats
    std::vector<AnswersOfLength> lengths{};
    /// Of the step: mean KL(student ‖ teacher) at its answers' tokens, in nats. Only where the loss is that, at
    /// training.beta 1 and temperature 1; with a top-k teacher, over its k tokens and all others as one.
    std::optional<double> reverse_kl{};
};

/// Requests to one endpoint with one result, by the time from sending to the last byte of the answer.
struct RequestDurations {
    std::string endpoint;
    std::string outcome;  ///< success, failure, cancelled (by us: another answer was faster)
    DurationCounts seconds;
};

/// One of several ranks, since the run began.
struct RankCounters {
    std::uint32_t rank = 0;
    std::string host;               ///< name of its machine
    std::uint64_t tokens = 0;       ///< input positions that it has trained on
    double tokens_per_second = 0;   ///< its share of the job's
    double wait_input_seconds = 0;  ///< its student waited for micro-batches: for the teacher or for data
    double wait_ranks_seconds = 0;  ///< it waited for the other ranks, or for bytes on their way, to end its steps
    std::map<std::string, double> busy_seconds;  ///< by stage, without those waits; only of those that were at work
};

/// Histograms since the run began: only for the metrics.
struct RunDurations {
    /// Optimizer steps, each from the end of the previous one (the first from the run's start), including waits,
    /// evaluations and copies for checkpoints.
    DurationCounts steps;
    std::vector<RequestDurations> requests;
};

/// The bounded queue in front of a stage.
struct StageQueue {
    std::string stage;  ///< the stage that takes from it
    std::uint64_t items = 0;
    std::uint64_t capacity = 0;
};

/// Space on a file system that the run writes to.
struct DiskUsage {
    std::string of;  ///< output, checkpoints
    std::uint64_t free_bytes = 0;
    std::uint64_t size_bytes = 0;
};

/// Resources that the worker's process uses.
struct WorkerUsage {
    std::uint64_t resident_bytes = 0;
    std::uint64_t peak_resident_bytes = 0;
    double cpu_seconds = 0;  ///< user and system, since the process began
    std::uint64_t open_files = 0;
    std::string device;                        ///< cpu, cuda:0; empty: unknown
    std::uint64_t device_allocated_bytes = 0;  ///< in use; on the CPU the process's resident memory
    std::uint64_t device_reserved_bytes = 0;   ///< that, and memory cached by libtorch's allocator
    std::uint64_t device_peak_bytes = 0;       ///< maximum allocated at once
    std::uint64_t device_total_bytes = 0;      ///< in total
    std::vector<DiskUsage> disks;
};

/// Records passed to a sink of the run, since the run began.
struct SinkCounters {
    std::string sink;  ///< jsonl, tensorboard, mlflow, otlp
    std::uint64_t written = 0;
    std::uint64_t dropped = 0;  ///< lost: queue full, refused, or not written in time
};

/// Gauges: only for the metrics.
struct RunMeasures {
    std::vector<StageQueue> queues;
    WorkerUsage usage;
    std::vector<SinkCounters> sinks{};
};

/// Progress of a job after one optimizer step, or after a request of a generate job. Steps of a generate job are rows
/// of the dataset in its store, and its student values are 0.
struct ProgressEvent {
    bool generates = false;
    bool of_samples = false;  ///< a token is a sample of tensors, and the loss is that of training.losses
    std::uint64_t step = 0;
    std::uint64_t total_steps = 0;
    double loss = 0;  ///< mean over the step's target tokens
    double kd_loss = 0;
    double ce_loss = 0;
    double grad_norm = 0;
    double learning_rate = 0;
    std::uint64_t tokens = 0;          ///< input positions trained on since the run began
    std::uint64_t padding_tokens = 0;  ///< padding positions that the student computed, since the run began
    double tokens_per_second = 0;      ///< over the last steps
    double stall_fraction = 0;         ///< share of the wall time since start that the student waited for input
    double seconds_elapsed = 0;
    double seconds_remaining = 0;
    double teacher_hidden_fraction = 0;  ///< share of teacher request time during which the student was not waiting
    std::vector<StageTimes> stages;
    std::string bottleneck;  ///< the stage that sets the pace
    FetchCounters fetch;
    std::optional<RolloutCounters> rollout{};  ///< of a job with rollouts
    std::uint64_t nonfinite_steps = 0;
    RunDurations durations;
    RunMeasures measures;
    std::vector<RankCounters> ranks{};  ///< in their order; empty: there is one
};

struct StartedEvent {
    std::uint64_t total_steps = 0;
    std::uint64_t first_step = 0;  ///< above 0 after a resume
    std::uint64_t parameters = 0;
    std::uint64_t dataset_rows = 0;
    std::uint64_t dataset_tokens = 0;       ///< in the rows
    std::uint64_t dataset_tokens_read = 0;  ///< in the files; 0: unknown
    std::string dtype;
    std::string teacher;  ///< description from the probe; empty without a teacher
    std::uint32_t batch_size = 0;
    std::uint32_t micro_batches = 0;
    std::string tokenizer{};  ///< the tokenizer that read the data, in one line
    std::string store{};  ///< folder that a generate job writes; steps are rows of the dataset then. Empty: training
    bool of_samples = false;     ///< as ProgressEvent::of_samples
    std::uint32_t replicas = 0;  ///< micro-batches that train at once; 0: none trains
    std::uint32_t ranks = 0;     ///< workers that train together; 0: none trains
};

/// The student's continuation of a prompt.
struct SampledText {
    std::string prompt;
    std::string text;
};

struct EvaluationEvent {
    std::uint64_t step = 0;
    double loss = 0;  ///< mean cross entropy on the eval set; of samples: mean of training.losses
    std::uint64_t tokens = 0;
    std::optional<double> kl{};              ///< mean KL of the student from the teacher, over its targets
    std::optional<double> top1_agreement{};  ///< share of positions with the teacher's likeliest token
    /// Mean Σ min(p, q): share of the student's drafted tokens that the teacher would accept; with top-k answers a
    /// bound from below.
    std::optional<double> acceptance_rate{};
    std::vector<SampledText> samples{};  ///< for eval.sample_prompts
    bool of_samples = false;             ///< as ProgressEvent::of_samples
};

/// One of the student's answers to the prompts of a job with rollouts.
struct SampledAnswer {
    std::string prompt;
    std::string text;
    std::uint64_t tokens = 0;
    bool cut = false;            ///< ended at rollout.max_tokens
    double log_probability = 0;  ///< mean of its tokens' at temperature 1, in nats
};

/// Some of the answers that the student trains on in a step.
struct RolloutEvent {
    std::uint64_t step = 0;     ///< ProgressEvent::step once it has
    std::uint64_t version = 0;  ///< steps after which the weights wrote them
    std::vector<SampledAnswer> samples{};
};

/// What eval.command says about the student after a step.
struct FiguresEvent {
    std::uint64_t step = 0;
    std::map<std::string, double> figures{};  ///< finite; empty if there is a problem
    double seconds = 0;                       ///< that the program ran
    std::string problem{};                    ///< why there are none
};

struct CheckpointEvent {
    std::uint64_t step = 0;
    std::string folder;
    double seconds = 0;
    std::uint64_t bytes = 0;  ///< of its files; 0: unknown
};

struct LogEvent {
    std::string level;  ///< info, warn, error
    std::string message;
};

/// The run waits for something outside of it; an outage is waited out and does not end a job. Sent when the wait begins
/// and whenever its message changes; an empty code means that the wait is over.
struct WaitingEvent {
    std::string code;     ///< teacher_unavailable, disk_full, cluster_queue; empty = the run continues
    std::string message;  ///< what the run waits for, and the last answer
    double since = 0;     ///< seconds since the Unix epoch at which the wait began
};

/// Last event of a run that reached its end.
struct FinishedEvent {
    ProgressEvent last;
    std::string output;
    std::optional<double> eval_loss;
    std::string weights_sha256;  ///< over the exported model.safetensors
    /// Held-out loss of the weights as rounded by the export; nullopt if the export does not round.
    std::optional<double> exported_eval_loss{};
};

/// Last event of a run that was stopped on request, after its checkpoint.
struct CancelledEvent {
    std::uint64_t step = 0;
    std::string checkpoint;  ///< empty if no step was done
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

/// The events by name. To add one: its struct above, its fields in event_fields.hpp, its row here.
inline constexpr std::tuple kWorkerEvents{
    EventRow<StartedEvent>{"started"},
    EventRow<ProgressEvent>{"progress"},
    EventRow<EvaluationEvent>{"evaluation"},
    EventRow<FiguresEvent>{"figures"},
    EventRow<RolloutEvent>{"rollout"},
    EventRow<CheckpointEvent>{"checkpoint"},
    EventRow<LogEvent>{"log"},
    EventRow<WaitingEvent>{"waiting"},
    EventRow<FinishedEvent>{"finished", true},
    EventRow<CancelledEvent>{"cancelled", true},
    EventRow<FailedEvent>{"failed", true},
};
using WorkerEvent = VariantOf<kWorkerEvents>;

/// Whether the event is finished, cancelled or failed.
[[nodiscard]] inline bool ends_run(const WorkerEvent& event) {
    return std::visit(
        [](const auto& one) { return row_of<std::remove_cvref_t<decltype(one)>>(kWorkerEvents).ends_run; }, event);
}

/// Orders to a worker that trains.
/// End at the next step boundary.
struct CancelCommand {
    bool checkpoint = true;  ///< with a checkpoint of the last whole step; false: without
};
struct CheckpointCommand {};  ///< checkpoint at the next step boundary, then continue
/// Limits the requests in flight to the teacher from now on.
struct SetLimitCommand {
    std::uint32_t max_concurrent = 0;  ///< at least 1
};

/// A row of kWorkerOrders.
template <class Order>
struct OrderRow {
    using type = Order;
    const char* name;
};

/// The orders by name.
inline constexpr std::tuple kWorkerOrders{
    OrderRow<CancelCommand>{"cancel"},
    OrderRow<CheckpointCommand>{"checkpoint"},
    OrderRow<SetLimitCommand>{"set_limit"},
};
using WorkerCommand = VariantOf<kWorkerOrders>;

}  // namespace distilld
