#include "server/worker/teacher/held_out_teacher.hpp"

#include <gmock/gmock.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/support/temporary_folder.hpp"
#include "tests/support/topk_teacher.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HeldOutTeacherTest : public ::testing::Test {
  protected:
    HeldOutTeacherTest() {
        wish_.info.kind = TeacherTargets::Kind::topk;
        wish_.info.top_k = 2;
        wish_.info.width = 2;
        wish_.info.vocabulary_size = 7;
        wish_.info.fingerprint = "[[[3,-0.5]]]";
        wish_.asked = &teacher_;
        wish_.data = {&rows_, test::NumberedRows::kColumns, "", 7};
        wish_.tokens = 6 * test::NumberedRows::kColumns;
        wish_.folder = folder_.path() / "kept";
        wish_.rows = [] { return std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}; };
    }

    template <class T>
    T wait_for(asio::awaitable<T> awaited) {
        std::optional<T> result;
        asio::co_spawn(io_, std::move(awaited), [&result](const std::exception_ptr& thrown, T value) {
            ASSERT_EQ(thrown, nullptr);
            result.emplace(std::move(value));
        });
        io_.restart();
        io_.run();
        return std::move(*result);
    }

    /// As a run begins.
    std::unique_ptr<TeacherSource> make() {
        said_.clear();
        GraphExecutors executors;
        executors.io = io_.get_executor();
        executors.disk = disk_.get_executor();
        const EmitEvent emit = [this](const WorkerEvent& event) { said_.push_back(std::get<LogEvent>(event).message); };
        return wait_for(make_held_out_teacher(wish_, turn_, executors, emit));
    }

    FetchResult<TeacherTargets> ask(TeacherSource& source, const std::vector<std::uint64_t>& rows) {
        const auto tokens = std::make_shared<const TokenBatch>(rows_.batch(0, rows));
        FetchResult<EncodedAnswer> answer = wait_for(source.fetch(0, tokens, std::chrono::seconds(9)));
        return answer ? answer->decode() : FetchResult<TeacherTargets>(answer.error());
    }

    asio::io_context io_;
    asio::thread_pool disk_{1};
    test::TemporaryFolder folder_;
    test::NumberedRows rows_{6};
    test::TopkTeacher teacher_;
    TeacherTurn turn_;
    HeldOutWish wish_;
    std::vector<std::string> said_;
};

TEST_F(HeldOutTeacherTest, AsksOnceAndGivesTheSameBitsEverAfter) {
    auto source = make();
    ASSERT_THAT(said_, ElementsAre(HasSubstr("is asked about the held-out rows once")));
    const auto live = ask(*source, {0, 1, 2});
    ASSERT_TRUE(live);
    EXPECT_EQ(test::bytes_of(live->values).size(), 3U * 4 * 2 * sizeof(float)) << "as it was sent, or finer";
    const auto kept = ask(*source, {0, 1, 2});
    ASSERT_TRUE(kept);
    EXPECT_EQ(test::bytes_of(kept->values), test::bytes_of(live->values));
    EXPECT_EQ(teacher_.fetches, 1U);
    source.reset();
    source = make();
    EXPECT_THAT(said_, ElementsAre()) << "an earlier run has said so";
    ASSERT_TRUE(ask(*source, {2, 0}));
    EXPECT_EQ(teacher_.fetches, 1U) << "of the earlier run";
}

TEST_F(HeldOutTeacherTest, WhatIsOfOtherRowsOrOfAnotherTeacherIsAskedForAnew) {
    ASSERT_TRUE(ask(*make(), {0, 1}));
    wish_.info.fingerprint = "[[[4,-0.5]]]";
    ASSERT_TRUE(ask(*make(), {0, 1}));
    EXPECT_THAT(said_, ElementsAre(HasSubstr("are requested again"), HasSubstr("once")));
    EXPECT_THAT(said_.front(), HasSubstr("another teacher"));
    EXPECT_EQ(teacher_.fetches, 2U);
    const test::NumberedRows more(7);
    wish_.data.dataset = &more;
    ASSERT_TRUE(ask(*make(), {0, 1}));
    EXPECT_THAT(said_.front(), HasSubstr("rows is 6, 7 is expected"));
    EXPECT_EQ(teacher_.fetches, 3U);
}

TEST_F(HeldOutTeacherTest, WhatCannotBeKeptIsAskedForEachTime) {
    wish_.info.kind = TeacherTargets::Kind::hidden_states;
    auto source = make();
    EXPECT_THAT(said_, ElementsAre(HasSubstr("at each evaluation (hidden states are not kept)")));
    ASSERT_TRUE(ask(*source, {0}));
    ASSERT_TRUE(ask(*source, {0}));
    EXPECT_EQ(teacher_.fetches, 2U);
    wish_.info.kind = TeacherTargets::Kind::logits;
    wish_.info.top_k = 0;
    wish_.info.vocabulary_size = 150'000;
    wish_.tokens = 1'000'000;
    source = make();
    EXPECT_THAT(said_, ElementsAre(HasSubstr("at each evaluation (its answers take 600")));
    EXPECT_FALSE(store_exists(wish_.folder));
}

TEST_F(HeldOutTeacherTest, AnswersOfAnotherShapeArePassedOn) {
    wish_.info.width = 3;  // the probe's; of the rows the teacher gives two
    auto source = make();
    ASSERT_TRUE(ask(*source, {0}));
    ASSERT_TRUE(ask(*source, {0}));
    EXPECT_EQ(teacher_.fetches, 2U);
}

TEST_F(HeldOutTeacherTest, WithoutATeacherThereIsNobodyToAsk) {
    wish_.asked = nullptr;
    EXPECT_EQ(make(), nullptr);
    EXPECT_THAT(said_, ElementsAre(HasSubstr("there is no teacher to ask")));
}

TEST_F(HeldOutTeacherTest, OneThatIsNotToBeAskedGivesWhatAnEarlierRunHasKept) {
    wish_.asked_in_need = true;
    EXPECT_EQ(make(), nullptr);
    EXPECT_THAT(said_, ElementsAre(HasSubstr("the teacher is not asked")));
    wish_.asked_in_need = false;
    auto source = make();
    ASSERT_TRUE(ask(*source, {0, 1, 2, 3, 4}));
    source.reset();
    wish_.asked_in_need = true;
    EXPECT_EQ(make(), nullptr) << "row 5 lacks";
    EXPECT_THAT(said_, ElementsAre(HasSubstr("not all answers are kept")));
    wish_.asked_in_need = false;
    source = make();
    ASSERT_TRUE(ask(*source, {5}));
    source.reset();
    const std::size_t before = teacher_.fetches;
    wish_.asked_in_need = true;
    wish_.info.top_k = 64;  // as a store says it that keeps so many
    source = make();
    ASSERT_NE(source, nullptr);
    EXPECT_THAT(said_, ElementsAre());
    ASSERT_TRUE(ask(*source, {0, 5}));
    EXPECT_EQ(teacher_.fetches, before);
    wish_.info.fingerprint = "[[[4,-0.5]]]";
    source.reset();
    EXPECT_EQ(make(), nullptr);
}

}  // namespace
}  // namespace distilld
