#include "server/sinks/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <string>

#include "server/sinks/tensorboard_records.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/server/sinks/sink_probe.hpp"

namespace distilld::sinks {
namespace {

using test::item;
using test::started;
using test::step;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string hex(std::string_view bytes) {
    std::string text;
    for (const char byte : bytes) {
        constexpr const char* kDigits = "0123456789abcdef";
        text += kDigits[static_cast<unsigned char>(byte) >> 4];
        text += kDigits[static_cast<unsigned char>(byte) & 15];
    }
    return text;
}

// Golden values: what TensorBoard 2.21 wrote for the same events (tensorboard.summary.writer.record_writer and
// tensorboard.compat.proto), which tests/e2e/test_sinks.py reads back as well.
TEST(TensorboardRecords, AreThoseThatTensorboardWrites) {
    const TensorboardTime at{std::chrono::milliseconds(1'500)};
    EXPECT_EQ(hex(tfrecord(tensorboard_version(at))),
              "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
    EXPECT_EQ(hex(tensorboard_start(at, 300)), "09000000000000f83f10ac023a020801");
    EXPECT_EQ(hex(tfrecord(
                  tensorboard_scalars(at, 7, {{"train/loss", 0.1}, {"b", std::numeric_limits<double>::infinity()}}))),
              "2a00000000000000ae8d91f509000000000000f83f10072a1d0a110a0a747261696e2f6c6f737315"
              "cdcccc3d0a080a0162150000807fd7846def");
    EXPECT_EQ(hex(tensorboard_text(at, 1, "spec", "{}")),
              "09000000000000f83f10012a200a1e0a0473706563420c080712041202080142027b7d4a080a060a"
              "0474657874");
}

TEST(TensorboardSink, EachAttemptHasAFileThatIsReadAfterTheEarlierOnes) {
    const test::TemporaryFolder folder;
    SinkContext context = test::context_of("/out");
    context.spec.metrics.tensorboard_dir = (folder / "board").string();
    std::set<std::string> names;
    for (std::uint64_t attempt = 0; attempt < 3; ++attempt) {
        context.first_step = 2 * attempt;
        test::SinkProbe sink(make_tensorboard_sink, context);
        EXPECT_EQ(test::file_count(folder / "board"), attempt) << "nothing is written before the run begins";
        sink.write({item(started()), item(step(2 * attempt + 1))}).value();
        sink.write({item(step(2 * attempt + 2)), item(EvaluationEvent{1, 2, 3}),
                    item(test::ended(EndRecord::Status::finished, 2))})
            .value();
        std::set<std::string> now;
        for (const auto& entry : std::filesystem::directory_iterator(folder / "board")) {
            now.insert(entry.path().filename().string());
        }
        ASSERT_EQ(now.size(), attempt + 1);
        EXPECT_TRUE(std::ranges::includes(now, names));
        EXPECT_FALSE(names.contains(*now.rbegin())) << "the newest file is the last";
        names = now;
    }
}

TEST(TensorboardSink, FiguresOfAProgramAreScalarsByTheirNames) {
    const test::TemporaryFolder folder;
    SinkContext context = test::context_of("/out");
    context.spec.metrics.tensorboard_dir = (folder / "board").string();
    const std::string name = "results/a_task_with_a_long_name/acc_none";
    test::SinkProbe sink(make_tensorboard_sink, context);
    sink.write({item(started()), item(FiguresEvent{7, {{name, 0.5}, {"b", 1}}, 2}),
                item(FiguresEvent{8, {}, 2, "it failed"})})
        .value();
    const auto entry = *std::filesystem::directory_iterator(folder / "board");
    EXPECT_THAT(test::read_bytes(entry.path()), AllOf(HasSubstr("figures/" + name), HasSubstr("figures/b")));
}

TEST(TensorboardSink, AnswersOfTheStudentAreTexts) {
    const test::TemporaryFolder folder;
    SinkContext context = test::context_of("/out");
    context.spec.metrics.tensorboard_dir = (folder / "board").string();
    test::SinkProbe sink(make_tensorboard_sink, context);
    sink.write({item(started()), item(RolloutEvent{7, 6, {{"Once", " upon"}, {"The", " end"}}})}).value();
    const auto entry = *std::filesystem::directory_iterator(folder / "board");
    EXPECT_THAT(test::read_bytes(entry.path()),
                AllOf(HasSubstr("rollouts/0"), HasSubstr("Once →  upon"), HasSubstr("rollouts/1")));
}

TEST(TensorboardSink, AFolderThatCannotBeIsAnErrorThatNamesTheField) {
    const test::TemporaryFolder folder;
    SinkContext context = test::context_of("/out");
    boost::asio::io_context io;
    EXPECT_EQ(make_tensorboard_sink(context, io.get_executor()).value(), nullptr);
    context.spec.metrics.tensorboard_dir = folder.write("file", "").string();
    EXPECT_THAT(make_tensorboard_sink(context, io.get_executor()).error().message,
                AllOf(StartsWith("/metrics/tensorboard_dir: "), HasSubstr("cannot create folder")));
}

}  // namespace
}  // namespace distilld::sinks
