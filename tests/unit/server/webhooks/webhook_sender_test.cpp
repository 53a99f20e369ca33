#include "server/webhooks/webhook_sender.hpp"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unix_time.hpp"

namespace distilld::webhooks {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

/// Has one event, which is due as soon as it is to be tried again, whatever the wait.
class ImpatientOutbox final : public WebhookOutbox {
  public:
    /// What the sender decided, for the test's thread.
    struct Notes {
        std::mutex mutex;
        std::condition_variable changed;
        std::vector<double> waits;  ///< seconds
        bool removed = false;
    };

    explicit ImpatientOutbox(std::shared_ptr<Notes> notes) : notes_(std::move(notes)) {}

    void set_receivers(const std::vector<std::string>&) override {}
    std::optional<WebhookEvent> due(const std::string&, double) override {
        const std::lock_guard guard(notes_->mutex);
        return notes_->removed ? std::nullopt : std::optional(event_);
    }
    void set_body(std::int64_t, const std::string& body) override { event_.body = body; }
    void try_again(std::int64_t, std::uint32_t attempts, double at) override {
        const std::lock_guard guard(notes_->mutex);
        notes_->waits.push_back(at - unix_now());
        event_.attempts = attempts;
    }
    void remove(std::int64_t) override {
        const std::lock_guard guard(notes_->mutex);
        notes_->removed = true;
        notes_->changed.notify_all();
    }

  private:
    const std::shared_ptr<Notes> notes_;
    WebhookEvent event_{1, "evt-1", "job-1", "job.failed", "2026-01-01T00:00:00.000Z", "{}"};
};

class WebhookSenderTest : public ::testing::Test {
  protected:
    /// How often the receiver at `port` was tried, once the sender has given up.
    std::size_t tries_until_given_up(unsigned port, std::uint32_t tries,
                                     std::chrono::milliseconds timeout = std::chrono::seconds(15)) {
        WebhookOptions options;
        options.tries = tries;
        options.timeout = timeout;
        options.urls = {"http://127.0.0.1:" + std::to_string(port) + "/"};
        options.secrets = {"0123456789abcdef01234567"};
        options.pause = std::chrono::milliseconds(1);
        std::vector<std::string> results;
        auto sender = make_webhook_sender(
            std::move(options), std::make_unique<ImpatientOutbox>(notes_),
            [](std::string) -> asio::awaitable<std::optional<api::Job>> { co_return std::nullopt; },
            [&results](const char* result) { results.emplace_back(result); });
        EXPECT_TRUE(sender.has_value());
        {
            std::unique_lock lock(notes_->mutex);
            EXPECT_TRUE(notes_->changed.wait_for(lock, std::chrono::seconds(30), [this] { return notes_->removed; }));
        }
        sender->reset();  // its thread has ended
        EXPECT_EQ(results.back(), "given_up");
        return results.size();
    }

    std::shared_ptr<ImpatientOutbox::Notes> notes_ = std::make_shared<ImpatientOutbox::Notes>();
    asio::io_context context_;
    tcp::acceptor acceptor_{context_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
    unsigned port_ = acceptor_.local_endpoint().port();
};

TEST_F(WebhookSenderTest, GivesUpAfterTheTries) {
    acceptor_.close();  // nobody listens
    EXPECT_EQ(tries_until_given_up(port_, 3), 3U);
    EXPECT_EQ(notes_->waits.size(), 2U);
}

TEST_F(WebhookSenderTest, OneTryIsOne) {
    acceptor_.close();
    EXPECT_EQ(tries_until_given_up(port_, 1), 1U);
}

TEST_F(WebhookSenderTest, MoreTriesThanWaitsWaitAsTheLast) {
    acceptor_.close();
    EXPECT_EQ(tries_until_given_up(port_, 14), 14U);
    ASSERT_EQ(notes_->waits.size(), 13U);
    const auto last = std::chrono::duration<double>(kWebhookDelays.back()).count();
    EXPECT_LT(notes_->waits[0], last);
    for (const std::size_t i : {10, 11, 12}) {
        EXPECT_GE(notes_->waits[i], last - 1);
        EXPECT_LE(notes_->waits[i], 1.1 * last);
    }
}

TEST_F(WebhookSenderTest, F1AnAnswerWithALargeTrailerIsATryThatFailed) {
    const std::string answer =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + std::string(70'000, 'a') + "\r\n\r\n";
    std::thread receiver([this, &answer] {
        for (int i = 0; i < 3; ++i) {
            tcp::socket peer = acceptor_.accept();
            std::string request;
            asio::read_until(peer, asio::dynamic_buffer(request), "\r\n\r\n{}");
            boost::system::error_code ignored;
            asio::write(peer, asio::buffer(answer), ignored);
            while (!ignored) {  // until the sender has closed
                peer.read_some(asio::buffer(request), ignored);
            }
        }
    });
    EXPECT_EQ(tries_until_given_up(port_, 3), 3U);
    receiver.join();
}

TEST_F(WebhookSenderTest, ATryEndsWithTheTimeout) {
    // The kernel takes the connection, and nobody answers.
    EXPECT_EQ(tries_until_given_up(port_, 2, std::chrono::milliseconds(50)), 2U);
}

}  // namespace
}  // namespace distilld::webhooks
