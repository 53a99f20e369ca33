#pragma once

#include "base/describes.hpp"
#include "pipeline/core/worker_events.hpp"

/// The fields of each event and order, by name: for the worker protocol, the records of a job and the REST API.
namespace distilld {

BOOST_DESCRIBE_STRUCT(StageTimes, (), (stage, busy_seconds, wait_input_seconds, wait_output_seconds))

BOOST_DESCRIBE_STRUCT(EndpointCounters, (),
                      (endpoint, in_flight, limit, open, outcomes, retries, hedges, hedge_wins, breaker_openings,
                       tokens, tokens_per_second, bytes_sent, bytes_received, latency_seconds))

BOOST_DESCRIBE_STRUCT(RankCounters, (),
                      (rank, host, tokens, tokens_per_second, wait_input_seconds, wait_ranks_seconds, busy_seconds))

BOOST_DESCRIBE_STRUCT(DurationCounts, (), (counts, sum_seconds))

BOOST_DESCRIBE_STRUCT(RequestDurations, (), (endpoint, outcome, seconds))

BOOST_DESCRIBE_STRUCT(RunDurations, (), (steps, requests))

BOOST_DESCRIBE_STRUCT(StageQueue, (), (stage, items, capacity))

BOOST_DESCRIBE_STRUCT(DiskUsage, (), (of, free_bytes, size_bytes))

BOOST_DESCRIBE_STRUCT(WorkerUsage, (),
                      (resident_bytes, peak_resident_bytes, cpu_seconds, open_files, device, device_allocated_bytes,
                       device_reserved_bytes, device_peak_bytes, device_total_bytes, disks))

BOOST_DESCRIBE_STRUCT(SinkCounters, (), (sink, written, dropped))

BOOST_DESCRIBE_STRUCT(RunMeasures, (), (queues, usage, sinks))

BOOST_DESCRIBE_STRUCT(StoreCounters, (), (rows, held_rows, sealed_rows, sealed_bytes))

BOOST_DESCRIBE_STRUCT(TeacherCounters, (),
                      (teacher, wait_seconds, tokens, requests, completed, failures, bytes_received, concurrency,
                       window, in_flight, buffered, open_endpoints, latency_p50_seconds, latency_p95_seconds, store))

BOOST_DESCRIBE_STRUCT(HeadFetchCounters, (), (bytes, seconds))

BOOST_DESCRIBE_STRUCT(AnswersOfLength, (), (up_to, answers))

BOOST_DESCRIBE_STRUCT(RolloutCounters, (), (answers, tokens, cut, mean_length, entropy, lengths, reverse_kl))

BOOST_DESCRIBE_STRUCT(AlignmentCounters, (), (positions, aligned, mapped_mass))

BOOST_DESCRIBE_STRUCT(FetchCounters, (),
                      (requests, completed, retries, hedges, hedge_wins, failures, breaker_openings, bytes_received,
                       open_endpoints, concurrency, window, in_flight, buffered, decode_threads, latency_p50_seconds,
                       latency_p95_seconds, endpoints, store, teachers, head, alignment))

BOOST_DESCRIBE_STRUCT(ProgressEvent, (),
                      (generates, of_samples, step, total_steps, seconds_remaining, seconds_elapsed, tokens,
                       padding_tokens, tokens_per_second, loss, kd_loss, ce_loss, grad_norm, learning_rate,
                       stall_fraction, teacher_hidden_fraction, bottleneck, stages, fetch, rollout, nonfinite_steps,
                       durations, measures, ranks))

BOOST_DESCRIBE_STRUCT(StartedEvent, (),
                      (total_steps, first_step, parameters, dataset_rows, dataset_tokens, dataset_tokens_read, dtype,
                       teacher, batch_size, micro_batches, tokenizer, store, of_samples, replicas, ranks))

BOOST_DESCRIBE_STRUCT(SampledText, (), (prompt, text))

BOOST_DESCRIBE_STRUCT(EvaluationEvent, (),
                      (step, loss, tokens, kl, top1_agreement, acceptance_rate, samples, of_samples))

BOOST_DESCRIBE_STRUCT(SampledAnswer, (), (prompt, text, tokens, cut, log_probability))

BOOST_DESCRIBE_STRUCT(RolloutEvent, (), (step, version, samples))

BOOST_DESCRIBE_STRUCT(FiguresEvent, (), (step, figures, seconds, problem))

BOOST_DESCRIBE_STRUCT(CheckpointEvent, (), (step, folder, seconds, bytes))

BOOST_DESCRIBE_STRUCT(LogEvent, (), (level, message))

BOOST_DESCRIBE_STRUCT(WaitingEvent, (), (code, message, since))

BOOST_DESCRIBE_STRUCT(FinishedEvent, (), (last, output, eval_loss, weights_sha256, exported_eval_loss))

BOOST_DESCRIBE_STRUCT(CancelledEvent, (), (step, checkpoint))

BOOST_DESCRIBE_STRUCT(FailedEvent, (), (kind, message))

BOOST_DESCRIBE_STRUCT(CancelCommand, (), (checkpoint))

BOOST_DESCRIBE_STRUCT(CheckpointCommand, (), ())

BOOST_DESCRIBE_STRUCT(SetLimitCommand, (), (max_concurrent))

}  // namespace distilld
