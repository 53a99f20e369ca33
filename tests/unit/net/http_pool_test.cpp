#include "net/http_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <exception>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/http_connector.hpp"
#include "net/tls_context.hpp"
#include "pipeline/async/tuple.hpp"
#include "tests/support/scripted_http_server.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ::testing::HasSubstr;

const std::string kGood = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";

std::string repeated(std::size_t times, const std::string& text) {
    std::string all;
    for (std::size_t i = 0; i < times; ++i) {
        all += text;
    }
    return all;
}

std::string with_trailer(const std::string& trailer) {
    return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n" + trailer + "\r\n";
}

std::vector<std::string> large_trailers() {
    return {"X: " + std::string(70'000, 'a') + "\r\n", std::string(70'000, 'a') + ": x\r\n",
            repeated(20'000, "a:b\r\n"), repeated(10'000, "X-Trailer: 1\r\n")};
}

/// Until the other end's kernel has all that was written.
void wait_until_received(tcp::socket& socket) {
    int unsent = 1;
    while (unsent > 0) {
        ASSERT_EQ(::ioctl(socket.native_handle(), SIOCOUTQ, &unsent), 0);
    }
}

/// A pool, and the server that it asks: to each request the next of the answers is written as it stands, to further
/// ones the last. Connections stay open. One thread.
class HttpPoolTest : public ::testing::Test {
  protected:
    void serve(std::vector<std::string> answers) {
        answers_ = std::move(answers);
        asio::co_spawn(io_, accept(), asio::detached);
        const auto url = "http://127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
        pool_ = make_pool(url, nullptr);
    }

    std::unique_ptr<HttpPool> make_pool(const std::string& url, std::shared_ptr<asio::ssl::context> tls) {
        return std::make_unique<HttpPool>(io_.get_executor(), resolver_, parse_endpoint_url(url, "/").value(),
                                          std::move(tls), std::make_shared<BufferPool>(), traffic_, HttpPoolOptions{});
    }

    FetchResult<HttpResponse> ask(std::uint64_t limit = 1000) {
        HttpRequest request = make_get("/");
        request.response_limit = limit;
        std::optional<FetchResult<HttpResponse>> result;
        std::exception_ptr thrown;
        asio::co_spawn(io_, pool_->request(std::move(request)),
                       [&](const std::exception_ptr& failure, FetchResult<HttpResponse> answer) {
                           thrown = failure;
                           result.emplace(std::move(answer));
                       });
        io_.restart();
        while (!result) {
            io_.run_one();
        }
        if (thrown) {
            std::rethrow_exception(thrown);
        }
        return std::move(*result);
    }

    void expect_good() {
        const auto answer = ask();
        ASSERT_TRUE(answer) << answer.error().message;
        EXPECT_EQ(body_text(*answer), "good");
    }

    void expect_bad(const std::string& words) {
        const auto answer = ask();
        ASSERT_FALSE(answer);
        EXPECT_EQ(answer.error().kind, FailureKind::bad_response);
        EXPECT_THAT(answer.error().message, HasSubstr(words));
    }

    asio::io_context io_{1};
    std::shared_ptr<TrafficCounters> traffic_ = std::make_shared<TrafficCounters>();
    HostResolver resolver_{io_.get_executor()};
    std::list<tcp::socket> peers_;  ///< the server's ends
    std::unique_ptr<HttpPool> pool_;

  private:
    asio::awaitable<void> accept() {
        for (;;) {
            auto accepted = co_await acceptor_.async_accept(kTuple);
            if (std::get<0>(accepted)) {
                co_return;
            }
            peers_.push_back(std::move(std::get<1>(accepted)));
            asio::co_spawn(io_, talk(peers_.back()), asio::detached);
        }
    }

    asio::awaitable<void> talk(tcp::socket& peer) {
        std::string received;
        for (;;) {
            auto into = asio::dynamic_buffer(received);
            const auto read = co_await asio::async_read_until(peer, into, "\r\n\r\n", kTuple);
            if (std::get<0>(read)) {
                co_return;
            }
            received.erase(0, std::get<1>(read));
            const std::string answer = answers_[std::min(next_++, answers_.size() - 1)];
            const auto bytes = asio::buffer(answer);
            co_await asio::async_write(peer, bytes, kTuple);
        }
    }

    std::vector<std::string> answers_;
    std::size_t next_ = 0;
    tcp::acceptor acceptor_{io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
};

TEST_F(HttpPoolTest, F1AnAnswerWithALargeTrailerIsABadResponse) {
    std::vector<std::string> answers;
    for (const auto& trailer : large_trailers()) {
        answers.push_back(with_trailer(trailer));
    }
    answers.push_back(kGood);
    serve(answers);
    for (std::size_t i = 1; i < answers.size(); ++i) {
        expect_bad("the answer is not HTTP: ");
    }
    expect_good();
    EXPECT_EQ(peers_.size(), answers.size()) << "no connection with a bad answer is used again";
}

TEST_F(HttpPoolTest, F1AnAnswerWithALargeTrailerIsABadResponseOverTls) {
    const auto identity = test::make_self_signed_identity("localhost");
    test::ScriptedReply reply;
    test::ScriptedHttpServer server([&reply](const test::SeenRequest&) { return reply; }, identity);
    const test::TemporaryFolder folder;
    const auto ca = folder.write("ca.pem", identity.certificate_pem);
    pool_ = make_pool(server.url(), make_tls_client_context({.ca = ca.string()}).value());
    for (const auto& trailer : large_trailers()) {
        reply.raw = with_trailer(trailer);
        expect_bad("the answer is not HTTP: ");
    }
    reply.raw = kGood;
    expect_good();
}

TEST_F(HttpPoolTest, F1TrailersAreDropped) {
    serve({with_trailer("X-Extra: 1\r\n")});
    expect_good();
    expect_good();
    EXPECT_EQ(peers_.size(), 1U);
}

TEST_F(HttpPoolTest, F1AnExceptionInAnExchangeIsAFailureOfItsRequestOnly) {
    // More than an address space has: the memory for it cannot be had, which throws in the middle of an exchange.
    const std::uint64_t huge = std::uint64_t{1} << 61U;
    serve({"HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(huge) + "\r\n\r\n", kGood});
    const auto answer = ask(huge);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().kind, FailureKind::bad_response);
    EXPECT_THAT(answer.error().message, HasSubstr("bad_alloc"));
    expect_good();
    EXPECT_EQ(peers_.size(), 2U);
}

TEST_F(HttpPoolTest, F8AnUnknownTransferCodingIsABadResponse) {
    const std::vector<std::string> codings{"identity",
                                           "xchunked",
                                           "gzip",
                                           "chunked, identity",
                                           "gzip, chunked",
                                           "\"chunked\"",
                                           "chunked\r\nTransfer-Encoding: chunked",
                                           ""};
    std::vector<std::string> answers;
    for (const auto& coding : codings) {
        answers.push_back("HTTP/1.1 200 OK\r\nTransfer-Encoding: " + coding + "\r\n\r\n4\r\ngood\r\n0\r\n\r\n");
    }
    answers.push_back("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n");
    answers.push_back(kGood);
    serve(answers);
    for (std::size_t i = 1; i < answers.size(); ++i) {
        expect_bad("Transfer-Encoding");
    }
    expect_good();
    EXPECT_EQ(peers_.size(), answers.size());
}

TEST_F(HttpPoolTest, F10InterimAnswersAreReadOver) {
    serve({"HTTP/1.1 100 Continue\r\n\r\n" + kGood,
           "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 7\r\n\r\n" + kGood,
           repeated(100, "HTTP/1.1 103 Early Hints\r\n\r\n") + kGood});
    expect_good();
    expect_good();
    expect_good();
    EXPECT_EQ(peers_.size(), 1U) << "the connection is kept";
}

TEST_F(HttpPoolTest, F10TooManyInterimAnswersAreABadResponse) {
    serve({repeated(101, "HTTP/1.1 103 Early Hints\r\n\r\n") + kGood});
    expect_bad("too many interim answers");
}

TEST_F(HttpPoolTest, F10ASwitchOfProtocolsIsABadResponse) {
    serve({"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n" + kGood});
    expect_bad("HTTP 101");
}

TEST_F(HttpPoolTest, F12BytesBehindAnAnswerAreABadResponse) {
    const std::string forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    const std::string large = "HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n" + std::string(30'000, 'x');
    serve(
        {kGood + forged, with_trailer("") + forged, large + forged, "HTTP/1.1 204 No Content\r\n\r\n" + forged, kGood});
    expect_bad("bytes follow its end");
    expect_bad("bytes follow its end");
    const auto answer = ask(1'000'000);
    ASSERT_FALSE(answer);
    EXPECT_THAT(answer.error().message, HasSubstr("bytes follow its end"));
    expect_bad("bytes follow its end");
    expect_good();
    EXPECT_EQ(peers_.size(), 5U);
}

TEST_F(HttpPoolTest, F12BytesThatComeWhileAConnectionIsIdleAreNoAnswer) {
    serve({kGood});
    expect_good();
    expect_good();
    ASSERT_EQ(peers_.size(), 1U);
    asio::write(peers_.front(), asio::buffer("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", 44));
    wait_until_received(peers_.front());
    expect_good();
    EXPECT_EQ(peers_.size(), 2U);
    EXPECT_EQ(traffic_->stale_connections.load(), 1U);
}

TEST_F(HttpPoolTest, F12TheMessageNamesAHostThatACertificateIsNotFor) {
    const auto identity = test::make_self_signed_identity("teacher.example", false);
    test::ScriptedHttpServer server([](const test::SeenRequest&) { return test::ScriptedReply{}; }, identity);
    const test::TemporaryFolder folder;
    const auto ca = folder.write("ca.pem", identity.certificate_pem);
    const auto tls = make_tls_client_context({.ca = ca.string()}).value();
    const auto expect_refused = [&](const std::string& host) {
        pool_ = make_pool("https://" + host + ":" + std::to_string(server.port()), tls);
        const auto answer = ask();
        ASSERT_FALSE(answer);
        EXPECT_EQ(answer.error().kind, FailureKind::rejected);
        EXPECT_THAT(answer.error().message, HasSubstr("the certificate is not for " + host));
    };
    expect_refused("127.0.0.1");
    expect_refused("localhost");
}

}  // namespace
}  // namespace distilld
