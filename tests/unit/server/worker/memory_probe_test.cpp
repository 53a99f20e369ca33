#include "server/worker/machine/memory_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace distilld {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FakeMemory final : public models::DeviceMemory {
  public:
    void reset_peak() override { peak = 0; }
    std::uint64_t peak_bytes() override { return peak; }
    std::uint64_t total_bytes() override { return 0; }
    std::uint64_t allocated_bytes() override { return 0; }
    std::uint64_t reserved_bytes() override { return 0; }
    std::uint64_t available_bytes() override { return available; }

    std::uint64_t peak = 0;
    std::uint64_t available = 0;
};

/// Takes `base` bytes and `each` more for a row; on its first batch twice as much, as thread pools and gradients do.
class FakeStudent final : public Student {
  public:
    FakeStudent(FakeMemory& memory, std::uint64_t base, std::uint64_t each)
        : memory_(memory), base_(base), each_(each) {}

    std::unique_ptr<StagedBatch> stage(MicroBatch batch) override {
        auto staged = std::make_unique<Staged>();
        staged->batch = std::move(batch);
        return staged;
    }
    MicroBatchStats train(StagedBatch& staged) override {
        const MicroBatch& batch = dynamic_cast<Staged&>(staged).batch;
        rows.push_back(batch.tokens->rows);
        with_targets = batch.targets.has_value();
        targets = batch.targets;
        const std::uint64_t needed = base_ + each_ * batch.tokens->rows;
        if (max_rows > 0 && batch.tokens->rows > max_rows) {
            throw OutOfDeviceMemory(invalid_input("no memory"));
        }
        memory_.peak = std::max(memory_.peak, rows.size() == 1 ? 2 * needed : needed);
        return {};
    }
    void discard_gradients() override { ++discarded; }
    StepStats finish_step(double) override { throw std::logic_error("the probe changes no weights"); }
    bool apply_one_pending_update() override { return false; }
    EvalStats evaluate(const MicroBatch&) override { return {}; }
    std::shared_ptr<const StudentSnapshot> snapshot(const RunState&) override { return nullptr; }
    Result<RunState> restore(const std::filesystem::path&) override { return RunState{}; }
    std::uint64_t parameter_count() const override { return 0; }
    std::uint32_t vocabulary_size() const override { return 100; }
    std::uint32_t max_positions() const override { return 1U << 20U; }

    std::vector<std::uint32_t> rows;
    bool with_targets = false;
    std::optional<TeacherTargets> targets;
    int discarded = 0;
    std::uint32_t max_rows = 0;  ///< more do not fit; 0: all do

  private:
    struct Staged final : StagedBatch {
        MicroBatch batch;
    };
    FakeMemory& memory_;
    std::uint64_t base_;
    std::uint64_t each_;
};

MemoryProbeOptions options_of(std::uint32_t sequence_length) {
    MemoryProbeOptions options;
    options.sequence_length = sequence_length;
    return options;
}

TEST(MemoryProbe, TakesTheLargestPowerOfTwoThatFits) {
    FakeMemory memory;
    memory.available = 1'000'000;
    FakeStudent student(memory, 500'000, 50'000);  // 60% of what is left holds 12 rows
    const BatchAdvice advice = advise_batch_size(student, memory, options_of(16)).value();
    EXPECT_EQ(advice.batch_size, 8U);
    EXPECT_EQ(advice.bytes_per_sequence, 50'000U);
    EXPECT_EQ(advice.base_bytes, 500'000U);
    EXPECT_EQ(advice.available_bytes, 1'000'000U);
    EXPECT_THAT(advice.description, HasSubstr("memory for 12"));
    EXPECT_THAT(student.rows, ElementsAre(1, 1, 4));
    EXPECT_EQ(student.discarded, 3);
}

TEST(MemoryProbe, TakesOneRowWhereFourDoNotFit) {
    FakeMemory memory;
    memory.available = 1'000'000;
    FakeStudent student(memory, 500'000, 50'000);
    student.max_rows = 3;
    const BatchAdvice advice = advise_batch_size(student, memory, options_of(16)).value();
    EXPECT_EQ(advice.batch_size, 1U);
    EXPECT_THAT(advice.description, HasSubstr("4 sequences at once do not fit"));
    EXPECT_EQ(student.discarded, 3);
}

TEST(MemoryProbe, SetsTheWindowAside) {
    FakeMemory memory;
    memory.available = 1'000'000;
    FakeStudent student(memory, 500'000, 50'000);
    MemoryProbeOptions options = options_of(16);
    options.with_teacher = true;
    options.window_bytes = 450'000;
    EXPECT_EQ(advise_batch_size(student, memory, options).value().batch_size, 2U);
    EXPECT_TRUE(student.with_targets);
    options.window_bytes = 5'000'000;
    EXPECT_EQ(advise_batch_size(student, memory, options).value().batch_size, 1U) << "one at least";
}

TEST(MemoryProbe, AsksForWhatTheTeacherWillSend) {
    FakeMemory memory;
    memory.available = 1'000'000;
    FakeStudent student(memory, 500'000, 50'000);
    MemoryProbeOptions options = options_of(16);
    options.with_teacher = true;
    ASSERT_TRUE(advise_batch_size(student, memory, options));
    EXPECT_EQ(student.targets->kind, TeacherTargets::Kind::logits);
    EXPECT_EQ(student.targets->width, 100U);
    options.hidden_size = 24;
    ASSERT_TRUE(advise_batch_size(student, memory, options));
    EXPECT_EQ(student.targets->kind, TeacherTargets::Kind::hidden_states);
    EXPECT_EQ(student.targets->width, 24U);
    EXPECT_EQ(student.targets->values.bytes.size(), 4U * 16U * 24U * sizeof(float));
}

TEST(MemoryProbe, StopsWhereMoreRowsBringNothing) {
    FakeMemory memory;
    memory.available = 1ULL << 40U;
    FakeStudent student(memory, 1000, 1000);
    EXPECT_EQ(advise_batch_size(student, memory, options_of(16)).value().batch_size, 64U);
    EXPECT_EQ(advise_batch_size(student, memory, options_of(1024)).value().batch_size, 16U);
    MemoryProbeOptions few = options_of(16);
    few.max_batch_size = 2;
    EXPECT_EQ(advise_batch_size(student, memory, few).value().batch_size, 2U) << "the data have no more";
}

TEST(MemoryProbe, SaysThatItCannotWithoutAPeak) {
    FakeMemory memory;
    memory.available = 1'000'000;
    FakeStudent student(memory, 0, 0);
    const auto advice = advise_batch_size(student, memory, options_of(16));
    ASSERT_FALSE(advice);
    EXPECT_THAT(advice.error().message, HasSubstr("/training/batch_size"));
}

}  // namespace
}  // namespace distilld
