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

TEST(WorkerProtocol, CarriesNumbersToTheLastBit) {
    ProgressEvent event;
    event.total_steps = std::numeric_limits<std::uint64_t>::max();
    event.loss = 0.1;
    event.grad_norm = 1e-300;
    event.learning_rate = 3.0000000000000003e-4;
    const auto got = through(event);
    EXPECT_EQ(got.total_steps, event.total_steps);
    EXPECT_EQ(got.loss, event.loss);
    EXPECT_EQ(got.grad_norm, event.grad_norm);
    EXPECT_EQ(got.learning_rate, event.learning_rate);
}

TEST(WorkerProtocol, WhatIsNotFiniteComesBackAsNoNumber) {
    ProgressEvent event;
    event.kd_loss = std::numeric_limits<double>::quiet_NaN();
    event.ce_loss = std::numeric_limits<double>::infinity();
    EXPECT_TRUE(std::isnan(through(event).kd_loss));
    EXPECT_TRUE(std::isnan(through(event).ce_loss));
    FinishedEvent finished;
    EXPECT_FALSE(through(finished).eval_loss.has_value());
}

TEST(WorkerProtocol, CarriesTheHello) {
    const auto hello = through(HelloMessage{kWorkerProtocolVersion, 4711});
    EXPECT_EQ(hello.pid, 4711);
    EXPECT_EQ(hello.version, kWorkerProtocolVersion);
}

TEST(WorkerProtocol, CarriesTheSpecWithItsDigits) {
    WorkerStart start;
    start.spec_json =
        "{\n  \"training\": {\"learning_rate\": 3.0000000000000003e-4, \"seed\": 18446744073709551615},\n"
        "  \"name\": \"two\\nlines\"\n}";
    start.resume = true;
    start.trace_file = "trace.json";
    const auto got = down(start);
    EXPECT_EQ(got.spec_json,
              "{\"training\":{\"learning_rate\":0.00030000000000000003,\"seed\":18446744073709551615},"
              "\"name\":\"two\\nlines\"}");
    EXPECT_EQ(0.00030000000000000003, 3.0000000000000003e-4);
    EXPECT_EQ(down(got).spec_json, got.spec_json);
    EXPECT_TRUE(got.resume);
    EXPECT_EQ(got.trace_file, "trace.json");
    start.spec_json = "no JSON";
    EXPECT_THROW(static_cast<void>(encode(DownMessage(start))), std::invalid_argument);
}

TEST(WorkerProtocol, F3CarriesWhichFilesMayBeOpened) {
    WorkerStart start;
    start.spec_json = "{}";
    EXPECT_FALSE(down(start).files);
    start.files = FileRule{{"/roots/a", "/roots/b"}, "/service", {"keys."}, {"/service/outputs/job-1"}};
    const FileRule got = down(start).files.value();
    EXPECT_EQ(got.roots, start.files->roots);
    EXPECT_EQ(got.own_folder, "/service");
    EXPECT_EQ(got.own_names, start.files->own_names);
    EXPECT_EQ(got.given, start.files->given);
}

TEST(WorkerProtocol, CarriesKeys) {
    WorkerStart start;
    start.spec_json = "{}";
    EXPECT_TRUE(down(start).keys.empty());
    start.keys = {{"DISTILLD_KEY_A", "one\"two"}, {"DISTILLD_KEY_B", ""}};
    EXPECT_EQ(down(start).keys, start.keys);
}

TEST(WorkerProtocol, CarriesCommands) {
    EXPECT_TRUE(down(CancelCommand{}).checkpoint);
    EXPECT_FALSE(down(CancelCommand{false}).checkpoint);
    EXPECT_TRUE(std::get<CancelCommand>(decode_down("{\"type\":\"cancel\"}").value()).checkpoint);
    down(CheckpointCommand{});
    EXPECT_EQ(down(SetLimitCommand{8}).max_concurrent, 8U);
}

TEST(WorkerProtocol, RefusesWhatIsNoMessage) {
    for (const char* line : {"", "x", "[]", "{}", "{\"type\":7}", "{\"type\":\"dance\"}", "{\"type\":\"hello\"}",
                             "{\"type\":\"hello\",\"version\":99,\"pid\":1}", "{\"type\":\"hello\",\"version\":2}",
                             "{\"type\":\"hello\",\"pid\":1}", "{\"type\":\"progress\",\"step\":-1}",
                             "{\"type\":\"progress\",\"loss\":\"much\"}", "{\"type\":\"progress\",\"stages\":[7]}",
                             "{\"type\":\"progress\",\"fetch\":{\"failures\":{\"timeout\":\"x\"}}}"}) {
        EXPECT_FALSE(decode_up(line).has_value()) << line;
    }
    for (const char* line :
         {"", "x", "{\"type\":\"start\"}", "{\"type\":\"start\",\"version\":3,\"spec\":{}}",
          "{\"type\":\"start\",\"version\":2,\"spec\":\"{}\"}", "{\"type\":\"set_limit\"}",
          "{\"type\":\"set_limit\",\"max_concurrent\":4294967296}", "{\"type\":\"set_limit\",\"max_concurrent\":0}",
          "{\"type\":\"start\",\"spec\":{}}", "{\"type\":\"hello\"}"}) {
        EXPECT_FALSE(decode_down(line).has_value()) << line;
    }
    EXPECT_THAT(decode_up("{\"type\":\"progress\",\"fetch\":{\"retries\":-3}}").error().message,
                HasSubstr("/fetch/retries"));
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
