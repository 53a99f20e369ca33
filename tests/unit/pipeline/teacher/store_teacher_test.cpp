#include "pipeline/teacher/store_teacher.hpp"

#include <gmock/gmock.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <optional>

#include "pipeline/store/store_writer.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/topk_teacher.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StoreTeacherTest : public ::testing::Test {
  protected:
    StoreTeacherTest() {
        writer_ = open_store_writer(folder_.path(), test::topk_manifest(8, 4)).value();
        options_.poll = std::chrono::milliseconds(1);
        options_.quiet = std::chrono::milliseconds(20);
        options_.outage_timeout = std::chrono::seconds(30);
        options_.on_waiting = [this](const std::string& text) { waits_.push_back(text); };
    }

    void add(const std::vector<std::uint64_t>& rows) {
        const TokenBatch batch = rows_.batch(0, rows);
        ASSERT_TRUE(writer_->add(batch, test::topk_targets(batch)));
    }

    std::unique_ptr<TeacherSource> make() {
        return make_store_teacher(io_.get_executor(), disk_.get_executor(),
                                  std::shared_ptr<StoreReader>(open_store_reader(folder_.path()).value()), options_);
    }

    FetchResult<EncodedAnswer> fetch(TeacherSource& teacher, const std::vector<std::uint64_t>& rows) {
        auto tokens = std::make_shared<const TokenBatch>(rows_.batch(0, rows));
        std::optional<FetchResult<EncodedAnswer>> answer;
        // A deadline that is over already: nobody is asked, so it does not count.
        asio::co_spawn(io_, teacher.fetch(0, tokens, std::chrono::nanoseconds(0)),
                       asio::bind_cancellation_slot(
                           cancel_.slot(), [&answer](const std::exception_ptr&, FetchResult<EncodedAnswer> result) {
                               answer.emplace(std::move(result));
                           }));
        io_.restart();
        io_.run();
        return std::move(answer).value();
    }

    test::TemporaryFolder folder_;
    test::NumberedRows rows_{8};
    std::unique_ptr<StoreWriter> writer_;
    asio::io_context io_{1};
    asio::thread_pool disk_{1};
    asio::cancellation_signal cancel_;
    StoreTeacherOptions options_;
    std::vector<std::string> waits_;
};

TEST_F(StoreTeacherTest, AnswersFromWhatIsSealed) {
    add({0, 1, 2, 3});
    const auto teacher = make();
    auto answer = fetch(*teacher, {2, 0});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->wire_bytes(), 0U);
    const auto targets = answer->decode();
    ASSERT_TRUE(targets) << targets.error().message;
    const TeacherTargets said = test::topk_targets(rows_.batch(0, {2, 0}));
    const auto first_three = static_cast<std::ptrdiff_t>(3 * 2 * sizeof(std::int32_t));
    const auto ids = test::bytes_of(targets->ids);
    const auto expected = test::bytes_of(said.ids);
    EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + first_three, expected.begin()));
    EXPECT_TRUE(waits_.empty());
    EXPECT_EQ(teacher->store()->sealed_rows, 4U);
    EXPECT_FALSE(teacher->is_slow_by_chance()) << "a second request for what is not written is of no use";
}

TEST_F(StoreTeacherTest, FollowsAWriter) {
    const auto teacher = make();
    asio::steady_timer later(io_, std::chrono::milliseconds(60));
    later.async_wait([this](const boost::system::error_code&) {
        add({4, 5, 6});
        add({7});
    });
    auto answer = fetch(*teacher, {5, 7});
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_TRUE(answer->decode());
    EXPECT_THAT(waits_, ElementsAre(AllOf(HasSubstr("row 5 is not there yet"), HasSubstr("0 of 8 rows sealed")), ""));
}

TEST_F(StoreTeacherTest, F6AWaitIsToldOfOnceHoweverManyRowsAreWaitedFor) {
    options_.quiet = std::chrono::milliseconds(1);
    const auto teacher = make();
    int ended = 0;
    for (const std::uint64_t row : {4, 5, 6, 7}) {
        asio::co_spawn(io_, teacher->fetch(0, std::make_shared<const TokenBatch>(rows_.batch(0, {row})), {}),
                       [&ended](const std::exception_ptr&, const FetchResult<EncodedAnswer>&) { ++ended; });
    }
    asio::steady_timer later(io_, std::chrono::milliseconds(60));
    later.async_wait([this](const boost::system::error_code&) { add({4, 5, 6, 7}); });
    io_.run();
    EXPECT_EQ(ended, 4);
    EXPECT_THAT(waits_, ElementsAre(HasSubstr("is not there yet (0 of 8 rows sealed)"), ""));
}

TEST_F(StoreTeacherTest, F6AWriterThatComesAndGoesIsToldOfOnceInAWhile) {
    options_.repeat = std::chrono::hours(1);
    const auto teacher = make();
    asio::steady_timer later(io_, std::chrono::milliseconds(60));
    later.async_wait([this](const boost::system::error_code&) { add({0, 1, 2, 3}); });
    ASSERT_TRUE(fetch(*teacher, {0}));
    later.expires_after(std::chrono::milliseconds(60));
    later.async_wait([this](const boost::system::error_code&) { add({4, 5, 6, 7}); });
    ASSERT_TRUE(fetch(*teacher, {4}));
    EXPECT_THAT(waits_, ElementsAre(HasSubstr("row 0 is not there yet"), "")) << "the second wait began too soon";
}

TEST_F(StoreTeacherTest, GivesUpAWriterThatSealsNothing) {
    add({0, 1, 2, 3});
    options_.outage_timeout = std::chrono::milliseconds(50);
    const auto teacher = make();
    const auto answer = fetch(*teacher, {3, 4});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().kind, FailureKind::rejected);
    EXPECT_THAT(answer.error().message, AllOf(HasSubstr("row 4 is not there yet (4 of 8 rows sealed)"),
                                              HasSubstr("/teacher/patience_secs is over")));
}

TEST_F(StoreTeacherTest, ReadsWhatAWriterHasLeftAndNamesWhatToRunForTheRest) {
    add({4, 5});
    writer_.reset();
    options_.outage_timeout = std::chrono::milliseconds(60);
    const auto teacher = make();
    EXPECT_TRUE(fetch(*teacher, {5, 4}));
    EXPECT_TRUE(waits_.empty());
    EXPECT_EQ(teacher->store()->held_rows, 2U);
    EXPECT_EQ(teacher->store()->sealed_rows, 0U);
    const auto answer = fetch(*teacher, {5, 6});
    ASSERT_FALSE(answer);
    const std::string said =
        folder_.path().string() +
        ": row 6 is missing, and no process writes this store; 2 of 8 rows are there: run distilld "
        "generate SPEC --store " +
        folder_.path().string() + " for the other 6";
    EXPECT_THAT(waits_, ElementsAre(said));
    EXPECT_THAT(answer.error().message, AllOf(HasSubstr(said), HasSubstr("/teacher/patience_secs is over")));
}

TEST_F(StoreTeacherTest, AWaitCanBeCancelled) {
    const auto teacher = make();
    asio::steady_timer later(io_, std::chrono::milliseconds(10));
    later.async_wait([this](const boost::system::error_code&) { cancel_.emit(asio::cancellation_type::terminal); });
    const auto answer = fetch(*teacher, {0});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().kind, FailureKind::cancelled);
}

TEST_F(StoreTeacherTest, F12AShardOfTheWrongSizeIsNotWaitedFor) {
    add({0, 1, 2, 3});
    const auto file = folder_ / "shard-000000.safetensors";
    const auto size = std::filesystem::file_size(file);
    std::filesystem::resize_file(file, size - 1);
    const auto teacher = make();
    const auto answer = fetch(*teacher, {1});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().kind, FailureKind::rejected);
    EXPECT_THAT(answer.error().message,
                AllOf(HasSubstr(file.string() + " is damaged"), HasSubstr("has " + std::to_string(size - 1) + " bytes"),
                      HasSubstr(std::to_string(size) + " were sealed"), HasSubstr("remove it")));
    EXPECT_TRUE(waits_.empty());
}

TEST_F(StoreTeacherTest, ADamagedRowIsNamed) {
    add({0, 1, 2, 3});
    const auto file = folder_ / "shard-000000.safetensors";
    ASSERT_TRUE(std::filesystem::exists(file));
    {
        std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
        stream.seekp(-5, std::ios::end);
        stream.put('\x7f');
        stream.put('\x7f');
    }
    const auto teacher = make();
    bool named = false;
    for (const std::uint64_t row : {0, 1, 2, 3}) {
        auto answer = fetch(*teacher, {row});
        ASSERT_TRUE(answer);
        const auto targets = answer->decode();
        if (!targets) {
            named = true;
            EXPECT_EQ(targets.error().kind, FailureKind::rejected) << "it stays damaged";
            EXPECT_THAT(targets.error().message, HasSubstr("shard-000000.safetensors"));
        }
    }
    EXPECT_TRUE(named);
}

TEST(CheckStore, NamesWhatDiffersAndBothValues) {
    const StoreManifest manifest = test::topk_manifest(8, 4);
    StoreWish wish{"numbered", 8, 4, 7, 2, ""};
    EXPECT_TRUE(check_store(manifest, wish));
    const auto complaint = [&](auto change) {
        StoreWish changed = wish;
        change(changed);
        return check_store(manifest, changed).error().message;
    };
    EXPECT_EQ(complaint([](StoreWish& w) { w.dataset_hash = "other"; }),
              "/teacher/store: the store's dataset is numbered, not other as /dataset/train has it");
    EXPECT_EQ(complaint([](StoreWish& w) { w.rows = 9; }),
              "/teacher/store: the store's number of rows is 8, not 9 as /dataset/train has it");
    EXPECT_EQ(complaint([](StoreWish& w) { w.sequence_length = 5; }),
              "/teacher/store: the store's sequence length is 4, not 5 as /dataset/sequence_length has it");
    EXPECT_EQ(complaint([](StoreWish& w) { w.top_k = 3; }),
              "/teacher/store: the store's number of entries per token is 2, not 3 as /teacher/top_k has it");
    wish.top_k = 0;
    EXPECT_TRUE(check_store(manifest, wish)) << "as the store has it";
    StoreManifest full = manifest;
    full.format = StoreFormat::full;
    wish.vocabulary = 9;
    EXPECT_TRUE(check_store(manifest, wish)) << "a vocabulary may be padded";
    EXPECT_TRUE(check_store(full, wish)) << "its rows are fitted";
    full.vocabulary = 9;
    full.tokenizer_hash = "a";
    wish.tokenizer_hash = "b";
    EXPECT_THAT(check_store(full, wish).error().message, HasSubstr("tokenizer is a, not b"));
}

}  // namespace
}  // namespace distilld
