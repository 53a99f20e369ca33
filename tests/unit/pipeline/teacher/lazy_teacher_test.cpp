#include "pipeline/teacher/lazy_teacher.hpp"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <optional>

#include "tests/support/topk_teacher.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

class LazyTeacherTest : public ::testing::Test {
  protected:
    asio::awaitable<Result<std::unique_ptr<TeacherSource>>> connect() {
        ++connections_;
        co_await asio::post(io_, asio::use_awaitable);
        if (refuses_) {
            co_return teacher_error("nobody is there");
        }
        auto teacher = std::make_unique<test::TopkTeacher>(2);
        teacher_ = teacher.get();
        co_return std::unique_ptr<TeacherSource>(std::move(teacher));
    }

    void fetch(std::size_t endpoint) {
        auto tokens = std::make_shared<const TokenBatch>(rows_.batch(0, {1, 2}));
        asio::co_spawn(io_, lazy_->fetch(endpoint, tokens, std::chrono::seconds(1)),
                       [this](const std::exception_ptr&, FetchResult<EncodedAnswer> answer) {
                           answers_.push_back(std::move(answer));
                       });
    }
    void run() {
        io_.restart();
        io_.run();
    }

    test::NumberedRows rows_{8};
    asio::io_context io_{1};
    int connections_ = 0;
    bool refuses_ = false;
    test::TopkTeacher* teacher_ = nullptr;
    std::vector<FetchResult<EncodedAnswer>> answers_;
    std::unique_ptr<TeacherSource> lazy_ =
        make_lazy_teacher(io_.get_executor(), {"one", "two"}, [this] { return connect(); });
};

TEST_F(LazyTeacherTest, IsConnectedByTheFirstFetchAndOnce) {
    EXPECT_EQ(lazy_->endpoint_count(), 2U);
    EXPECT_EQ(lazy_->endpoint_name(1), "two");
    EXPECT_EQ(lazy_->bytes_received(), 0U);
    lazy_->close();
    EXPECT_EQ(connections_, 0);
    fetch(0);
    fetch(1);
    run();
    fetch(1);
    run();
    EXPECT_EQ(connections_, 1);
    ASSERT_EQ(answers_.size(), 3U);
    for (auto& answer : answers_) {
        EXPECT_TRUE(answer);
    }
    EXPECT_EQ(teacher_->fetches, 3U);
    lazy_->close();
    EXPECT_TRUE(teacher_->closed);
}

TEST_F(LazyTeacherTest, WhenThatFailsTheNextTriesAgain) {
    refuses_ = true;
    fetch(0);
    run();
    ASSERT_EQ(answers_.size(), 1U);
    ASSERT_FALSE(answers_[0]);
    EXPECT_EQ(answers_[0].error().kind, FailureKind::rejected);
    EXPECT_EQ(answers_[0].error().message, "nobody is there");
    refuses_ = false;
    fetch(0);
    run();
    EXPECT_TRUE(answers_.back());
    EXPECT_EQ(connections_, 2);
}

}  // namespace
}  // namespace distilld
