#include "pipeline/teacher/caching_teacher.hpp"

#include <gmock/gmock.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <optional>
#include <thread>

#include "tests/support/temporary_folder.hpp"
#include "tests/support/topk_teacher.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A writer whose disk is full when the test says so, in front of a real one.
class TroubledWriter final : public StoreWriter {
  public:
    explicit TroubledWriter(std::unique_ptr<StoreWriter> real) : real_(std::move(real)) {}
    const StoreManifest& manifest() const override { return real_->manifest(); }
    const RowCodec& codec() const override { return real_->codec(); }
    bool needs(std::uint64_t row) const override { return real_->needs(row); }
    StoreProgress progress() const override { return real_->progress(); }
    Result<void> add(std::span<const StoredRow> rows) override {
        return full ? Result<void>(Error{ErrorKind::disk_full, "store: no space"}) : real_->add(rows);
    }
    Result<TeacherTargets> read(const TokenBatch& batch) override {
        return damaged ? Result<TeacherTargets>(io_error("shard-000000: row 0 is damaged")) : real_->read(batch);
    }
    Result<void> sync() override {
        synced_on = std::this_thread::get_id();
        return real_->sync();
    }
    Result<StoreClaim> claim(bool more) override { return real_->claim(more); }

    bool full = false;
    bool damaged = false;
    std::optional<std::thread::id> synced_on;

  private:
    std::unique_ptr<StoreWriter> real_;
};

class CachingTeacherTest : public ::testing::Test {
  protected:
    CachingTeacherTest() {
        writer_ =
            std::make_shared<TroubledWriter>(open_store_writer(folder_.path(), test::topk_manifest(8, 4)).value());
        options_.writer = writer_;
        options_.on_warning = [this](const std::string& text) { warnings_.push_back(text); };
        make();
    }

    void make() {
        auto teacher = std::make_unique<test::TopkTeacher>();
        teacher_ = teacher.get();
        caching_ = make_caching_teacher(io_.get_executor(), std::move(teacher), options_);
    }

    FetchResult<TeacherTargets> ask(const std::vector<std::uint64_t>& rows) {
        auto tokens = std::make_shared<const TokenBatch>(rows_.batch(0, rows));
        std::optional<FetchResult<EncodedAnswer>> answer;
        asio::co_spawn(io_, caching_->fetch(0, tokens, std::chrono::seconds(1)),
                       [&answer](const std::exception_ptr&, FetchResult<EncodedAnswer> result) {
                           answer.emplace(std::move(result));
                       });
        run();
        FetchResult<TeacherTargets> targets = answer.value()->decode();
        run();  // warnings
        return targets;
    }

    void run() {
        io_.restart();
        io_.run();
    }

    test::TemporaryFolder folder_;
    test::NumberedRows rows_{8};
    std::shared_ptr<TroubledWriter> writer_;
    asio::io_context io_{1};
    CachingTeacherOptions options_;
    test::TopkTeacher* teacher_ = nullptr;
    std::unique_ptr<TeacherSource> caching_;
    std::vector<std::string> warnings_;
};

TEST_F(CachingTeacherTest, TheTeacherIsAskedOnceAndBothTimesTheBitsAreThoseOfTheStore) {
    const auto live = ask({3, 1});
    ASSERT_TRUE(live) << live.error().message;
    EXPECT_EQ(teacher_->fetches, 1U);
    const auto again = ask({3, 1});
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(teacher_->fetches, 1U);
    EXPECT_EQ(test::bytes_of(again->ids), test::bytes_of(live->ids));
    EXPECT_EQ(test::bytes_of(again->values), test::bytes_of(live->values));
    EXPECT_EQ(test::bytes_of(again->tail), test::bytes_of(live->tail));
    EXPECT_EQ(test::bytes_of(again->loss_mask), test::bytes_of(live->loss_mask));
    EXPECT_EQ(caching_->store()->held_rows, 2U);
}

TEST_F(CachingTeacherTest, ABatchOfWhichTheStoreLacksARowIsAskedFor) {
    ASSERT_TRUE(ask({0, 1}));
    ASSERT_TRUE(ask({1, 2}));
    EXPECT_EQ(teacher_->fetches, 2U);
    EXPECT_EQ(caching_->store()->held_rows, 3U);
}

TEST_F(CachingTeacherTest, WriteOnlyAsksForWhatTheStoreHas) {
    ASSERT_TRUE(ask({0, 1}));
    options_.reads = false;
    make();
    ASSERT_TRUE(ask({0, 1}));
    EXPECT_EQ(teacher_->fetches, 1U);
}

TEST_F(CachingTeacherTest, AFullDiskHoldsNothingUpAndIsToldOfOnce) {
    writer_->full = true;
    const auto live = ask({0, 1});
    ASSERT_TRUE(live) << live.error().message;
    ASSERT_TRUE(ask({2, 3}));
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("no space; training continues")));
    EXPECT_EQ(caching_->store()->held_rows, 0U);
    writer_->full = false;
    const auto kept = ask({0, 1});
    ASSERT_TRUE(kept);
    EXPECT_EQ(test::bytes_of(kept->values), test::bytes_of(live->values)) << "the bits do not depend on the disk";
    EXPECT_EQ(warnings_.size(), 2U);
    EXPECT_THAT(warnings_.back(), HasSubstr("can be written again"));
    EXPECT_EQ(caching_->store()->held_rows, 2U);
}

TEST_F(CachingTeacherTest, SettlesOnTheDisksThread) {
    asio::thread_pool disk(1);
    options_.disk = disk.get_executor();
    make();
    ASSERT_TRUE(ask({0, 1}));
    caching_->close();
    EXPECT_FALSE(writer_->synced_on) << "closing waits for no disk";
    bool settled = false;
    asio::co_spawn(io_, caching_->settle(), [&settled](const std::exception_ptr& thrown) { settled = !thrown; });
    run();
    EXPECT_TRUE(settled);
    ASSERT_TRUE(writer_->synced_on);
    EXPECT_NE(*writer_->synced_on, std::this_thread::get_id());
}

TEST_F(CachingTeacherTest, OfADamagedFileIsToldOnce) {
    ASSERT_TRUE(ask({0, 1}));
    ASSERT_TRUE(ask({2, 3}));
    writer_->damaged = true;
    EXPECT_FALSE(ask({0, 1}));
    EXPECT_FALSE(ask({2, 3}));
    EXPECT_EQ(warnings_.size(), 1U);
}

TEST_F(CachingTeacherTest, OfADamagedRowTheTeacherIsAsked) {
    ASSERT_TRUE(ask({0, 1}));
    writer_->damaged = true;
    const auto damaged = ask({0, 1});
    ASSERT_FALSE(damaged);
    EXPECT_EQ(damaged.error().kind, FailureKind::bad_response) << "the scheduler asks again";
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("row 0 is damaged; asking the teacher instead")));
    EXPECT_TRUE(ask({0, 1}));
    EXPECT_EQ(teacher_->fetches, 2U);
}

TEST_F(CachingTeacherTest, AReaderAloneGivesTheStoresBitsOfWhatItLacksToo) {
    for (std::uint64_t row = 0; row < 4; ++row) {
        ASSERT_TRUE(ask({row}));
    }
    options_.writer.reset();
    options_.reader = std::shared_ptr<StoreReader>(open_store_reader(folder_.path()).value());
    make();
    ASSERT_TRUE(ask({2}));
    EXPECT_EQ(teacher_->fetches, 0U);
    const auto lacking = ask({6});
    ASSERT_TRUE(lacking);
    EXPECT_EQ(teacher_->fetches, 1U);
    EXPECT_EQ(test::bytes_of(lacking->loss_mask).size(), 4U) << "as a store marks rows without loss";
    EXPECT_EQ(writer_->progress().held_rows, 4U);
}

}  // namespace
}  // namespace distilld
