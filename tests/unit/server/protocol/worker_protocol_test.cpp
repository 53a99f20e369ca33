#include "server/protocol/worker_protocol.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace distilld {
namespace {

using ::testing::HasSubstr;

template <class T>
T through(const T& message) {
    const std::string line = encode(UpMessage(message));
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    return std::get<T>(decode_up(std::string_view(line).substr(0, line.size() - 1)).value());
}

template <class T>
T down(const T& message) {
    const std::string line = encode(DownMessage(message));
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    return std::get<T>(decode_down(std::string_view(line).substr(0, line.size() - 1)).value());
}

ProgressEvent sample() {
    ProgressEvent event;
    event.step = 7;
    event.total_steps = std::numeric_limits<std::uint64_t>::max();
    event.loss = 0.1;
    event.kd_loss = std::numeric_limits<double>::quiet_NaN();
    event.ce_loss = std::numeric_limits<double>::infinity();
    event.grad_norm = 1e-300;
    event.learning_rate = 3.0000000000000003e-4;
    event.tokens = 123456789;
    event.tokens_per_second = 5000.25;
    event.stall_fraction = 0.01;
    event.seconds_elapsed = 12;
    event.seconds_remaining = 13;
    event.teacher_hidden_fraction = 0.98;
    event.stages = {{"teacher", 1.5, 2.5, 3.5}, {"student", 4, 5, 6}};
    event.bottleneck = "student";
    event.fetch = {1, 2, 3, 4, 5, {{"timeout", 6}, {"connection", 7}}, 8, 9, 10, 11, 12, 0.1, 0.2};
    event.nonfinite_steps = 3;
    return event;
}

void expect_sample(const ProgressEvent& got) {
    const ProgressEvent want = sample();
    EXPECT_EQ(got.step, want.step);
    EXPECT_EQ(got.total_steps, want.total_steps);
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_TRUE(std::isnan(got.kd_loss));
    EXPECT_TRUE(std::isnan(got.ce_loss));
    EXPECT_EQ(got.grad_norm, want.grad_norm);
    EXPECT_EQ(got.learning_rate, want.learning_rate);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.tokens_per_second, want.tokens_per_second);
    EXPECT_EQ(got.stall_fraction, want.stall_fraction);
    EXPECT_EQ(got.seconds_elapsed, want.seconds_elapsed);
    EXPECT_EQ(got.seconds_remaining, want.seconds_remaining);
    EXPECT_EQ(got.teacher_hidden_fraction, want.teacher_hidden_fraction);
    ASSERT_EQ(got.stages.size(), 2U);
    EXPECT_EQ(got.stages[0].stage, "teacher");
    EXPECT_EQ(got.stages[0].busy_seconds, 1.5);
    EXPECT_EQ(got.stages[0].wait_input_seconds, 2.5);
    EXPECT_EQ(got.stages[0].wait_output_seconds, 3.5);
    EXPECT_EQ(got.bottleneck, want.bottleneck);
    EXPECT_EQ(got.fetch.requests, 1U);
    EXPECT_EQ(got.fetch.completed, 2U);
    EXPECT_EQ(got.fetch.retries, 3U);
    EXPECT_EQ(got.fetch.hedges, 4U);
    EXPECT_EQ(got.fetch.hedge_wins, 5U);
    EXPECT_EQ(got.fetch.failures, want.fetch.failures);
    EXPECT_EQ(got.fetch.breaker_openings, 8U);
    EXPECT_EQ(got.fetch.bytes_received, 9U);
    EXPECT_EQ(got.fetch.concurrency, 10U);
    EXPECT_EQ(got.fetch.in_flight, 11U);
    EXPECT_EQ(got.fetch.buffered, 12U);
    EXPECT_EQ(got.fetch.latency_p50_seconds, 0.1);
    EXPECT_EQ(got.fetch.latency_p95_seconds, 0.2);
    EXPECT_EQ(got.nonfinite_steps, 3U);
}

TEST(WorkerProtocol, CarriesEveryFieldOfProgress) {
    expect_sample(through(sample()));
}

TEST(WorkerProtocol, CarriesTheOtherEvents) {
    EXPECT_EQ(through(HelloMessage{1, 4711}).pid, 4711);
    const auto started = through(StartedEvent{1, 2, 3, 4, 5, "bf16", "a \"teacher\"\nin two lines", 6, 7});
    EXPECT_EQ(started.total_steps, 1U);
    EXPECT_EQ(started.first_step, 2U);
    EXPECT_EQ(started.parameters, 3U);
    EXPECT_EQ(started.dataset_rows, 4U);
    EXPECT_EQ(started.dataset_tokens, 5U);
    EXPECT_EQ(started.dtype, "bf16");
    EXPECT_EQ(started.teacher, "a \"teacher\"\nin two lines");
    EXPECT_EQ(started.batch_size, 6U);
    EXPECT_EQ(started.micro_batches, 7U);
    EXPECT_EQ(through(EvaluationEvent{1, 2.5, 3}).loss, 2.5);
    EXPECT_EQ(through(CheckpointEvent{1, "folder", 2.5}).folder, "folder");
    EXPECT_EQ(through(LogEvent{"warn", "text"}).level, "warn");
    FinishedEvent finished{sample(), "out", std::nullopt, "abc"};
    expect_sample(through(finished).last);
    EXPECT_FALSE(through(finished).eval_loss.has_value());
    finished.eval_loss = 3.25;
    EXPECT_EQ(through(finished).eval_loss, 3.25);
    EXPECT_EQ(through(finished).weights_sha256, "abc");
    EXPECT_EQ(through(CancelledEvent{9, "cp"}).checkpoint, "cp");
    EXPECT_EQ(through(FailedEvent{"io", "disk full"}).message, "disk full");
}

TEST(WorkerProtocol, CarriesTheSpecWithItsDigits) {
    WorkerStart start;
    start.spec_json =
        "{\n  \"training\": {\"learning_rate\": 3.0000000000000003e-4, \"seed\": 18446744073709551615},\n"
        "  \"name\": \"two\\nlines\"\n}";
    start.resume = true;
    start.trace_file = "trace.json";
    const auto got = down(start);
    EXPECT_THAT(got.spec_json, HasSubstr("18446744073709551615"));
    EXPECT_THAT(got.spec_json, HasSubstr("3.0000000000000003E-4"));
    EXPECT_THAT(got.spec_json, HasSubstr("two\\nlines"));
    EXPECT_TRUE(got.resume);
    EXPECT_EQ(got.trace_file, "trace.json");
    start.spec_json = "no JSON";
    EXPECT_THROW(encode(DownMessage(start)), std::invalid_argument);
}

TEST(WorkerProtocol, CarriesCommands) {
    down(CancelCommand{});
    down(CheckpointCommand{});
    EXPECT_EQ(down(SetLimitCommand{8}).max_concurrent, 8U);
}

TEST(WorkerProtocol, RefusesWhatIsNoMessage) {
    for (const char* line : {"", "x", "[]", "{}", "{\"type\":7}", "{\"type\":\"dance\"}", "{\"type\":\"hello\"}",
                             "{\"type\":\"hello\",\"version\":2,\"pid\":1}", "{\"type\":\"progress\",\"step\":-1}",
                             "{\"type\":\"progress\",\"loss\":\"much\"}", "{\"type\":\"progress\",\"stages\":[7]}",
                             "{\"type\":\"progress\",\"fetch\":{\"failures\":{\"timeout\":\"x\"}}}"}) {
        EXPECT_FALSE(decode_up(line).has_value()) << line;
    }
    for (const char* line : {"", "x", "{\"type\":\"start\"}", "{\"type\":\"start\",\"version\":2,\"spec\":{}}",
                             "{\"type\":\"start\",\"version\":1,\"spec\":\"{}\"}", "{\"type\":\"set_limit\"}",
                             "{\"type\":\"set_limit\",\"max_concurrent\":4294967296}", "{\"type\":\"hello\"}"}) {
        EXPECT_FALSE(decode_down(line).has_value()) << line;
    }
    EXPECT_THAT(decode_up("{\"type\":\"progress\",\"fetch\":{\"retries\":-3}}").error().message,
                HasSubstr("fetch.retries"));
    EXPECT_FALSE(
        decode_up("{\"type\":\"log\",\"message\":\"" + std::string(kWorkerMessageLimit, 'x') + "\"}").has_value());
}

TEST(WorkerProtocol, IgnoresUnknownFieldsAndKeepsDefaults) {
    const auto message = decode_up("{\"type\":\"progress\",\"step\":3,\"colour\":\"red\"}").value();
    EXPECT_EQ(std::get<ProgressEvent>(message).step, 3U);
    EXPECT_EQ(std::get<ProgressEvent>(message).loss, 0);
}

}  // namespace
}  // namespace distilld
