#pragma once

#include "base/describes.hpp"
#include "pipeline/core/worker_events.hpp"

/// The fields of each event and order, by the names under which they are sent, stored and shown: the worker protocol,
/// the records of a job and the REST API all take them from here.
namespace distilld {

template <class Visitor, Describes<StageTimes> T>
void describe(Visitor& v, T& e) {
    v("stage", e.stage);
    v("busy_seconds", e.busy_seconds);
    v("wait_input_seconds", e.wait_input_seconds);
    v("wait_output_seconds", e.wait_output_seconds);
}

template <class Visitor, Describes<EndpointCounters> T>
void describe(Visitor& v, T& e) {
    v("endpoint", e.endpoint);
    v("in_flight", e.in_flight);
    v("limit", e.limit);
    v("open", e.open);
    v("outcomes", e.outcomes);
    v("retries", e.retries);
    v("hedges", e.hedges);
    v("hedge_wins", e.hedge_wins);
    v("breaker_openings", e.breaker_openings);
    v("tokens", e.tokens);
    v("tokens_per_second", e.tokens_per_second);
    v("bytes_sent", e.bytes_sent);
    v("bytes_received", e.bytes_received);
    v("latency_seconds", e.latency_seconds);
}

template <class Visitor, Describes<DurationCounts> T>
void describe(Visitor& v, T& e) {
    v("counts", e.counts);
    v("sum_seconds", e.sum_seconds);
}

template <class Visitor, Describes<RequestDurations> T>
void describe(Visitor& v, T& e) {
    v("endpoint", e.endpoint);
    v("outcome", e.outcome);
    v("seconds", e.seconds);
}

template <class Visitor, Describes<RunDurations> T>
void describe(Visitor& v, T& e) {
    v("steps", e.steps);
    v("requests", e.requests);
}

template <class Visitor, Describes<StageQueue> T>
void describe(Visitor& v, T& e) {
    v("stage", e.stage);
    v("items", e.items);
    v("capacity", e.capacity);
}

template <class Visitor, Describes<DiskUsage> T>
void describe(Visitor& v, T& e) {
    v("of", e.of);
    v("free_bytes", e.free_bytes);
    v("size_bytes", e.size_bytes);
}

template <class Visitor, Describes<WorkerUsage> T>
void describe(Visitor& v, T& e) {
    v("resident_bytes", e.resident_bytes);
    v("peak_resident_bytes", e.peak_resident_bytes);
    v("cpu_seconds", e.cpu_seconds);
    v("open_files", e.open_files);
    v("device", e.device);
    v("device_allocated_bytes", e.device_allocated_bytes);
    v("device_reserved_bytes", e.device_reserved_bytes);
    v("device_peak_bytes", e.device_peak_bytes);
    v("device_total_bytes", e.device_total_bytes);
    v("disks", e.disks);
}

template <class Visitor, Describes<SinkCounters> T>
void describe(Visitor& v, T& e) {
    v("sink", e.sink);
    v("written", e.written);
    v("dropped", e.dropped);
}

template <class Visitor, Describes<RunMeasures> T>
void describe(Visitor& v, T& e) {
    v("queues", e.queues);
    v("usage", e.usage);
    v("sinks", e.sinks);
}

template <class Visitor, Describes<StoreCounters> T>
void describe(Visitor& v, T& e) {
    v("rows", e.rows);
    v("held_rows", e.held_rows);
    v("sealed_rows", e.sealed_rows);
    v("sealed_bytes", e.sealed_bytes);
}

template <class Visitor, Describes<TeacherCounters> T>
void describe(Visitor& v, T& e) {
    v("teacher", e.teacher);
    v("wait_seconds", e.wait_seconds);
    v("tokens", e.tokens);
    v("requests", e.requests);
    v("completed", e.completed);
    v("failures", e.failures);
    v("bytes_received", e.bytes_received);
    v("concurrency", e.concurrency);
    v("window", e.window);
    v("in_flight", e.in_flight);
    v("buffered", e.buffered);
    v("open_endpoints", e.open_endpoints);
    v("latency_p50_seconds", e.latency_p50_seconds);
    v("latency_p95_seconds", e.latency_p95_seconds);
    v("store", e.store);
}

template <class Visitor, Describes<HeadFetchCounters> T>
void describe(Visitor& v, T& e) {
    v("bytes", e.bytes);
    v("seconds", e.seconds);
}

template <class Visitor, Describes<FetchCounters> T>
void describe(Visitor& v, T& e) {
    v("requests", e.requests);
    v("completed", e.completed);
    v("retries", e.retries);
    v("hedges", e.hedges);
    v("hedge_wins", e.hedge_wins);
    v("failures", e.failures);
    v("breaker_openings", e.breaker_openings);
    v("bytes_received", e.bytes_received);
    v("open_endpoints", e.open_endpoints);
    v("concurrency", e.concurrency);
    v("window", e.window);
    v("in_flight", e.in_flight);
    v("buffered", e.buffered);
    v("decode_threads", e.decode_threads);
    v("latency_p50_seconds", e.latency_p50_seconds);
    v("latency_p95_seconds", e.latency_p95_seconds);
    v("endpoints", e.endpoints);
    v("store", e.store);
    v("teachers", e.teachers);
    v("head", e.head);
}

template <class Visitor, Describes<ProgressEvent> T>
void describe(Visitor& v, T& e) {
    v("generates", e.generates);
    v("step", e.step);
    v("total_steps", e.total_steps);
    v("seconds_remaining", e.seconds_remaining);
    v("seconds_elapsed", e.seconds_elapsed);
    v("tokens", e.tokens);
    v("padding_tokens", e.padding_tokens);
    v("tokens_per_second", e.tokens_per_second);
    v("loss", e.loss);
    v("kd_loss", e.kd_loss);
    v("ce_loss", e.ce_loss);
    v("grad_norm", e.grad_norm);
    v("learning_rate", e.learning_rate);
    v("stall_fraction", e.stall_fraction);
    v("teacher_hidden_fraction", e.teacher_hidden_fraction);
    v("bottleneck", e.bottleneck);
    v("stages", e.stages);
    v("fetch", e.fetch);
    v("nonfinite_steps", e.nonfinite_steps);
    v("durations", e.durations);
    v("measures", e.measures);
}

template <class Visitor, Describes<StartedEvent> T>
void describe(Visitor& v, T& e) {
    v("total_steps", e.total_steps);
    v("first_step", e.first_step);
    v("parameters", e.parameters);
    v("dataset_rows", e.dataset_rows);
    v("dataset_tokens", e.dataset_tokens);
    v("dataset_tokens_read", e.dataset_tokens_read);
    v("dtype", e.dtype);
    v("teacher", e.teacher);
    v("batch_size", e.batch_size);
    v("micro_batches", e.micro_batches);
    v("tokenizer", e.tokenizer);
    v("store", e.store);
}

template <class Visitor, Describes<SampledText> T>
void describe(Visitor& v, T& e) {
    v("prompt", e.prompt);
    v("text", e.text);
}

template <class Visitor, Describes<EvaluationEvent> T>
void describe(Visitor& v, T& e) {
    v("step", e.step);
    v("loss", e.loss);
    v("tokens", e.tokens);
    v("kl", e.kl);
    v("top1_agreement", e.top1_agreement);
    v("samples", e.samples);
}

template <class Visitor, Describes<CheckpointEvent> T>
void describe(Visitor& v, T& e) {
    v("step", e.step);
    v("folder", e.folder);
    v("seconds", e.seconds);
    v("bytes", e.bytes);
}

template <class Visitor, Describes<LogEvent> T>
void describe(Visitor& v, T& e) {
    v("level", e.level);
    v("message", e.message);
}

template <class Visitor, Describes<WaitingEvent> T>
void describe(Visitor& v, T& e) {
    v("code", e.code);
    v("message", e.message);
    v("since", e.since);
}

template <class Visitor, Describes<FinishedEvent> T>
void describe(Visitor& v, T& e) {
    v("last", e.last);
    v("output", e.output);
    v("eval_loss", e.eval_loss);
    v("weights_sha256", e.weights_sha256);
    v("exported_eval_loss", e.exported_eval_loss);
}

template <class Visitor, Describes<CancelledEvent> T>
void describe(Visitor& v, T& e) {
    v("step", e.step);
    v("checkpoint", e.checkpoint);
}

template <class Visitor, Describes<FailedEvent> T>
void describe(Visitor& v, T& e) {
    v("kind", e.kind);
    v("message", e.message);
}

template <class Visitor, Describes<CancelCommand> T>
void describe(Visitor& v, T& e) {
    v("checkpoint", e.checkpoint);
}

template <class Visitor, Describes<CheckpointCommand> T>
void describe(Visitor& /*v*/, T& /*order*/) {}

template <class Visitor, Describes<SetLimitCommand> T>
void describe(Visitor& v, T& e) {
    v("max_concurrent", e.max_concurrent);
}

}  // namespace distilld
