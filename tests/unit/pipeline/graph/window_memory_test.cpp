#include <gtest/gtest.h>
#include <malloc.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "pipeline/graph/training_graph.hpp"
#include "pipeline/teacher/remote_teacher.hpp"
#include "tests/support/big_answer_server.hpp"
#include "tests/support/fake_student.hpp"

// The whole way of real answers, from sockets to the student, with as many requests in flight as the window lets. A
// program of its own: it looks at the memory of its process.

namespace distilld {
namespace {

namespace asio = boost::asio;

constexpr std::uint32_t kVocabulary = 4096;
constexpr std::uint32_t kRows = 4;
constexpr std::uint64_t kWindowBytes = 100'000'000;
constexpr std::uint32_t kConcurrency = 32;
constexpr std::uint32_t kDecodeThreads = 2;

/// A line of /proc/self/status, in bytes.
std::uint64_t status_bytes(const std::string& name) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with(name + ":")) {
            return std::stoull(line.substr(name.size() + 1)) * 1024;
        }
    }
    throw std::runtime_error("no " + name + " in /proc/self/status");
}

/// The peak counts from now on.
void forget_peak() {
    ::malloc_trim(0);
    std::ofstream("/proc/self/clear_refs") << "5";
}

class WideDataset final : public Dataset {
  public:
    WideDataset(std::uint64_t rows, std::uint32_t columns) : rows_(rows), columns_(columns) {}
    std::uint64_t row_count() const override { return rows_; }
    std::uint64_t token_count() const override { return rows_ * columns_; }
    const std::string& hash() const override { return hash_; }
    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch made;
        made.number = number;
        made.rows = static_cast<std::uint32_t>(rows.size());
        made.columns = columns_;
        made.input_ids.assign(rows.size() * columns_, 1);
        made.labels.assign(rows.size() * columns_, 1);
        made.lengths.assign(rows.size(), static_cast<std::int32_t>(columns_));
        made.row_ids = rows;
        made.target_tokens = rows.size() * columns_;
        return made;
    }
    std::uint64_t target_tokens(std::uint64_t) const override { return columns_; }

  private:
    std::uint64_t rows_;
    std::uint32_t columns_;
    std::string hash_ = "wide";
};

/// Until nothing has come for a second: the window is full then, of answers that wait for the student.
void wait_until_full(const TeacherSource& teacher) {
    for (std::uint64_t before = 0; before != teacher.bytes_received();) {
        before = teacher.bytes_received();
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
}

/// Trains on answers of kRows × `columns` positions and checks that memory grew by no more than `max_growth`.
void expect_bounded_growth(std::uint32_t columns, std::uint64_t micro_batches, std::uint64_t max_growth,
                           bool student_waits = false) {
    const auto server = test::make_big_answer_server(kVocabulary);
    const std::uint64_t answer = server->answer_bytes(kRows, columns);
    asio::io_context io(1);
    asio::thread_pool compute(1);
    asio::thread_pool staging(1);
    asio::thread_pool disk(1);
    asio::thread_pool decode(kDecodeThreads);
    TeacherSpec spec;
    spec.endpoints = {server->url()};
    spec.protocol = TeacherProtocol::seed;
    spec.top_k = 0;
    spec.window_bytes = kWindowBytes;
    const auto teacher = make_remote_teacher(io.get_executor(), decode.get_executor(), spec).value();
    test::FakeStudent student;
    std::uint64_t when_full = 0;
    if (student_waits) {
        student.on_train = [&teacher, &when_full](std::uint64_t number) {
            if (number == 0) {
                wait_until_full(*teacher);
                when_full = status_bytes("VmRSS");
            }
        };
    }
    GraphOptions options;
    TeacherStageOptions asking;
    options.training.micro_batches = 1;
    options.training.batch_size = kRows;
    options.total_steps = micro_batches;
    asking.scheduler.limit.adaptive = false;
    asking.scheduler.limit.ceiling = kConcurrency;
    asking.scheduler.hedge.enabled = false;
    GraphHooks hooks;
    hooks.on_event = [](const WorkerEvent&) {};
    hooks.commit_checkpoint = [](std::uint64_t, const StudentSnapshot&) { return Result<std::string>("none"); };
    const GraphExecutors executors{io.get_executor(),   compute.get_executor(), staging.get_executor(),
                                   disk.get_executor(), decode.get_executor(),  kDecodeThreads};
    std::optional<Result<TeacherInfo>> probed;
    asio::co_spawn(io, teacher->probe(kVocabulary), [&](const std::exception_ptr& thrown, Result<TeacherInfo> info) {
        ASSERT_FALSE(thrown);
        probed = std::move(info);
    });
    io.run();
    ASSERT_TRUE(probed && *probed);
    const AnswerSize size = teacher->answer_size(kRows, columns);
    ASSERT_TRUE(size.max_wire_bytes);
    EXPECT_GE(*size.max_wire_bytes, answer);
    EXPECT_LE(static_cast<double>(*size.max_wire_bytes), 1.25 * static_cast<double>(answer));
    asking.scheduler.window.max_bytes = kWindowBytes;
    asking.scheduler.window.expected = {size.held_bytes, *size.max_wire_bytes};
    asking.scheduler.window.decoders = kDecodeThreads;
    asking.scheduler.window.decode_bytes = size.decode_bytes;
    auto batches = std::make_shared<BatchSource>(std::make_shared<WideDataset>(kRows * micro_batches, columns),
                                                 BatchPlan(kRows * micro_batches, kRows, 1), 1);
    options.teachers.push_back({"", teacher.get(), asking});
    auto graph = make_training_graph(executors, student, batches, {}, options, hooks, nullptr);

    forget_peak();
    const std::uint64_t before = status_bytes("VmRSS");
    ASSERT_LT(status_bytes("VmHWM"), before + kWindowBytes / 20) << "the kernel does not let the peak be reset";
    std::optional<Result<GraphOutcome>> outcome;
    asio::co_spawn(io, graph->run(), [&](const std::exception_ptr& thrown, Result<GraphOutcome> ended) {
        ASSERT_FALSE(thrown);
        outcome = std::move(ended);
    });
    io.restart();
    io.run();
    const std::uint64_t growth = status_bytes("VmHWM") - before;
    teacher->close();
    for (asio::thread_pool* threads : {&compute, &staging, &disk, &decode}) {
        threads->join();
    }
    ASSERT_TRUE(outcome && *outcome) << (outcome ? outcome->error().message : "");
    EXPECT_EQ((*outcome)->last.fetch.bytes_received / answer, micro_batches);
    std::cout << "answers of " << answer / 1'000'000 << " MB, window_bytes " << kWindowBytes / 1'000'000
              << " MB, C = " << kConcurrency << ": memory grew by " << growth / 1'000'000 << " MB\n";
    EXPECT_LE(growth, max_growth);
    if (student_waits) {
        std::cout << "with the window full of answers: " << (when_full - before) / 1'000'000 << " MB\n";
        EXPECT_GE(when_full - before, kWindowBytes / 10 * 8) << "what the window may hold is not used";
        EXPECT_LE(when_full - before, kWindowBytes / 10 * 12);
    }
}

TEST(WindowMemory, AnswersNearlyAsLargeAsTheWindowTakeWhatItAllows) {
    // One is let through whatever it takes: its text, its numbers, and the parser's index of them.
    expect_bounded_growth(240, 10, kWindowBytes / 10 * 12 + kWindowBytes / 2);
}

TEST(WindowMemory, ManyLargeAnswersTakeWhatTheWindowAllows) {
    expect_bounded_growth(24, 60, kWindowBytes / 10 * 12);
}

TEST(WindowMemory, AWindowThatIsFullHoldsWhatItMay) {
    expect_bounded_growth(24, 90, kWindowBytes / 10 * 12, true);
}

}  // namespace
}  // namespace distilld
