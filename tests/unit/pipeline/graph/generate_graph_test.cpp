#include "pipeline/graph/generate_graph.hpp"

#include <gmock/gmock.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <numeric>
#include <optional>

#include "pipeline/store/store_reader.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/topk_teacher.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr std::uint64_t kRows = 100;
constexpr std::uint32_t kShardRows = 16;

class GenerateGraphTest : public ::testing::Test {
  protected:
    GenerateGraphTest() {
        options_.batch_rows = 3;
        options_.progress_interval = std::chrono::nanoseconds(0);
        options_.teacher.scheduler.limit.ceiling = 8;
        options_.teacher.scheduler.retry.base = std::chrono::milliseconds(1);
        options_.teacher.scheduler.hedge.enabled = false;  // so that each question can be counted
        options_.teacher.deadline = std::chrono::seconds(5);
    }

    Result<GenerateOutcome> run() {
        asio::io_context io(1);
        asio::thread_pool staging(1);
        asio::thread_pool disk(1);
        asio::thread_pool decode(1);
        const GraphExecutors executors{
            io.get_executor(), {}, staging.get_executor(), disk.get_executor(), decode.get_executor()};
        options_.teacher.scheduler.endpoints = static_cast<std::uint32_t>(teacher_.endpoint_count());
        writer_.reset();  // of the run before
        writer_ = open_store_writer(folder_.path(), manifest_, writer_options_).value();
        events_.clear();
        const auto on_event = [this](const WorkerEvent& event) {
            events_.push_back(event);
            if (on_event_) {
                on_event_(event);
            }
        };
        const auto graph = make_generate_graph(executors, teacher_, std::make_shared<test::NumberedRows>(kRows),
                                               *writer_, options_, on_event, nullptr);
        graph_ = graph.get();
        std::optional<Result<GenerateOutcome>> outcome;
        auto ended = [&outcome](const std::exception_ptr& thrown, Result<GenerateOutcome> result) {
            if (thrown) {
                std::rethrow_exception(thrown);
            }
            outcome = std::move(result);
        };
        asio::co_spawn(io, graph->run(), ended);
        io.run();
        staging.join();
        disk.join();
        decode.join();
        return outcome.value();
    }

    /// All rows can be read, and are what the teacher says of them.
    void expect_whole_store() {
        const auto reader = open_store_reader(folder_.path()).value();
        EXPECT_EQ(reader->sealed_rows(), kRows);
        std::vector<std::uint64_t> rows(kRows);
        std::iota(rows.begin(), rows.end(), std::uint64_t{0});
        const TokenBatch batch = test::NumberedRows(kRows).batch(0, rows);
        const Result<TeacherTargets> stored = reader->read(batch);
        ASSERT_TRUE(stored) << stored.error().message;
        const TeacherTargets said = test::topk_targets(batch);
        const auto ids = test::bytes_of(stored->ids);
        const auto expected = test::bytes_of(said.ids);
        ASSERT_EQ(ids.size(), expected.size());
        for (std::size_t position = 0; position < kRows * 4; ++position) {
            if (position % 4 != 3) {  // the last has no target
                EXPECT_TRUE(std::equal(ids.begin() + static_cast<std::ptrdiff_t>(position * 8),
                                       ids.begin() + static_cast<std::ptrdiff_t>(position * 8 + 8),
                                       expected.begin() + static_cast<std::ptrdiff_t>(position * 8)))
                    << "position " << position;
            }
        }
    }

    test::TemporaryFolder folder_;
    StoreManifest manifest_ = test::topk_manifest(kRows, kShardRows);
    test::TopkTeacher teacher_{4};
    GenerateOptions options_;
    StoreWriterOptions writer_options_;
    std::unique_ptr<StoreWriter> writer_;
    GenerateGraph* graph_ = nullptr;
    std::vector<WorkerEvent> events_;
    std::function<void(const WorkerEvent&)> on_event_;
};

TEST_F(GenerateGraphTest, StoresEachRowOnce) {
    const auto outcome = run();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_FALSE(outcome->cancelled);
    EXPECT_TRUE(outcome->last.generates);
    EXPECT_EQ(outcome->last.step, kRows);
    EXPECT_EQ(outcome->last.total_steps, kRows);
    EXPECT_EQ(outcome->last.tokens, kRows * 4);
    ASSERT_TRUE(outcome->last.fetch.store);
    EXPECT_EQ(outcome->last.fetch.store->sealed_rows, kRows);
    EXPECT_EQ(teacher_.answered.size(), kRows);
    EXPECT_THAT(teacher_.answered, Each(Pair(::testing::_, 1)));
    expect_whole_store();
    std::uint64_t before = 0;
    for (const WorkerEvent& event : events_) {
        const auto* progress = std::get_if<ProgressEvent>(&event);
        ASSERT_NE(progress, nullptr);
        EXPECT_GT(progress->step, before);
        before = progress->step;
        EXPECT_EQ(progress->fetch.endpoints.size(), 4U);
    }
}

TEST_F(GenerateGraphTest, GoesOnWithWhatIsMissing) {
    on_event_ = [this](const WorkerEvent& event) {
        const auto* progress = std::get_if<ProgressEvent>(&event);
        if (progress != nullptr && progress->step >= 40) {
            graph_->cancel();
        }
    };
    const auto first = run();
    ASSERT_TRUE(first) << first.error().message;
    EXPECT_TRUE(first->cancelled);
    const std::uint64_t held = first->last.step;
    EXPECT_GE(held, 40U);
    EXPECT_LT(held, kRows);
    on_event_ = {};
    teacher_.answered.clear();
    const auto second = run();
    ASSERT_TRUE(second) << second.error().message;
    EXPECT_FALSE(second->cancelled);
    EXPECT_EQ(teacher_.answered.size(), kRows - held) << "what was in the store was not asked for again";
    expect_whole_store();
    teacher_.answered.clear();
    const auto third = run();
    ASSERT_TRUE(third) << third.error().message;
    EXPECT_TRUE(teacher_.answered.empty());
    EXPECT_EQ(third->last.step, kRows);
}

// A request is a lease: that of a teacher that has died goes to another.
TEST_F(GenerateGraphTest, ATeacherThatDiesLeavesItsRowsToTheOthers) {
    teacher_.latency = std::chrono::microseconds(300);
    teacher_.fails = [this](std::size_t endpoint) { return endpoint == 2 && teacher_.by_endpoint[2] >= 9; };
    const auto outcome = run();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_EQ(outcome->last.step, kRows);
    EXPECT_GT(outcome->last.fetch.retries, 0U);
    EXPECT_EQ(teacher_.answered.size(), kRows);
    EXPECT_GE(teacher_.by_endpoint[2], 9U);
    EXPECT_LE(teacher_.by_endpoint[2], 9U + 3 * 8) << "what was under way when it died";
    expect_whole_store();
}

// As two nodes do: shards are claimed when they are wanted, so that the slower one takes fewer.
TEST_F(GenerateGraphTest, TwoShareAStore) {
    asio::io_context io(1);
    asio::thread_pool staging(1);
    asio::thread_pool disk(1);
    asio::thread_pool decode(1);
    const GraphExecutors executors{
        io.get_executor(), {}, staging.get_executor(), disk.get_executor(), decode.get_executor()};
    StoreWriterOptions shared;
    shared.shared = true;
    options_.teacher.scheduler.endpoints = 1;
    options_.teacher.scheduler.limit.ceiling = 2;
    options_.batch_rows = 2;
    options_.poll = std::chrono::milliseconds(5);
    struct Node {
        test::TopkTeacher teacher;
        std::unique_ptr<StoreWriter> writer;
        std::unique_ptr<GenerateGraph> graph;
        std::optional<Result<GenerateOutcome>> outcome;
    };
    std::array<Node, 2> nodes;
    nodes[0].teacher.latency = std::chrono::milliseconds(2);
    nodes[1].teacher.latency = std::chrono::milliseconds(12);
    for (Node& node : nodes) {
        node.writer = open_store_writer(folder_.path(), manifest_, shared).value();
        node.graph = make_generate_graph(executors, node.teacher, std::make_shared<test::NumberedRows>(kRows),
                                         *node.writer, options_, {}, nullptr);
        auto ended = [&node](const std::exception_ptr& thrown, Result<GenerateOutcome> result) {
            if (thrown) {
                std::rethrow_exception(thrown);
            }
            node.outcome = std::move(result);
        };
        asio::co_spawn(io, node.graph->run(), ended);
    }
    io.run();
    staging.join();
    disk.join();
    decode.join();
    std::map<std::uint64_t, int> answered = nodes[0].teacher.answered;
    for (const auto& [row, times] : nodes[1].teacher.answered) {
        answered[row] += times;
    }
    EXPECT_EQ(answered.size(), kRows);
    EXPECT_THAT(answered, Each(Pair(::testing::_, 1)));
    EXPECT_GT(nodes[0].teacher.answered.size(), nodes[1].teacher.answered.size());
    EXPECT_FALSE(nodes[1].teacher.answered.empty());
    for (Node& node : nodes) {
        ASSERT_TRUE(node.outcome && *node.outcome);
        EXPECT_FALSE((*node.outcome)->cancelled);
        EXPECT_EQ((*node.outcome)->last.step, kRows) << "of both";
        node.graph.reset();
        node.writer.reset();
    }
    expect_whole_store();
}

TEST_F(GenerateGraphTest, ATaskLeavesWhatOthersHaveLeased) {
    writer_options_.shared = true;
    auto other = open_store_writer(folder_.path(), manifest_, writer_options_).value();
    const StoreClaim held = other->claim(true).value();
    ASSERT_EQ(held.rows.size(), kShardRows);
    options_.poll = std::chrono::milliseconds(5);
    options_.waits_for_all = false;
    const auto outcome = run();
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_FALSE(outcome->cancelled);
    EXPECT_EQ(outcome->last.step, kRows - kShardRows);
    EXPECT_EQ(outcome->last.fetch.store->sealed_rows, kRows - kShardRows) << "it leaves nothing half done";
    other.reset();
    ASSERT_TRUE(run()) << "what the other gave up is free";
    expect_whole_store();
}

TEST_F(GenerateGraphTest, TheFirstSealedShardIsToldAtOnce) {
    options_.progress_interval = std::chrono::hours(1);
    ASSERT_TRUE(run());
    std::vector<std::uint64_t> sealed;
    for (const WorkerEvent& event : events_) {
        if (const auto* progress = std::get_if<ProgressEvent>(&event)) {
            sealed.push_back(progress->fetch.store->sealed_rows);
        }
    }
    ASSERT_EQ(sealed.size(), 2U) << "the first answers, and the first shard";
    EXPECT_EQ(sealed.front(), 0U);
    EXPECT_GE(sealed.back(), kShardRows);
    EXPECT_LT(sealed.back(), kRows);
}

TEST_F(GenerateGraphTest, WhatTheFormatCannotKeepEndsTheJobWithItsReason) {
    manifest_.k = 5;  // the teacher gives two
    const auto outcome = run();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(outcome.error().message, HasSubstr("the teacher gives 2 entries per position, the store has 5"));
}

}  // namespace
}  // namespace distilld
