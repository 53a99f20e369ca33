#include "net/http_reader.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "net/http_error.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kBound = 1000;

/// What is written at one end of a socket pair is read as a message at the other.
class HttpReaderTest : public ::testing::Test {
  protected:
    HttpReaderTest() {
        std::array<int, 2> pair{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.data()), 0);
        asio::ip::tcp::socket socket(io_);
        socket.assign(asio::ip::tcp::v4(), pair[0]);
        peer_ = pair[1];
        stream_ = std::make_unique<ByteStream>(std::move(socket));
    }
    ~HttpReaderTest() override { ::close(peer_); }

    void begin_head(HttpReader& reader) {
        asio::co_spawn(io_, reader.read_head(*stream_, buffer_),
                       [this](const std::exception_ptr&, error_code failed) { outcome_ = failed; });
        io_.poll();
    }
    void send(std::string_view text) {
        EXPECT_EQ(::send(peer_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
        io_.restart();
        io_.poll();
    }
    HttpReader::Piece read_body(HttpReader& reader, std::span<char> space) {
        std::optional<HttpReader::Piece> piece;
        asio::co_spawn(io_, reader.read_body(*stream_, buffer_, space),
                       [&piece](const std::exception_ptr&, HttpReader::Piece read) { piece = read; });
        io_.restart();
        io_.poll();
        return piece.value();
    }

    asio::io_context io_{1};
    std::unique_ptr<ByteStream> stream_;
    boost::beast::flat_buffer buffer_;
    int peer_ = -1;
    std::optional<error_code> outcome_;
};

TEST_F(HttpReaderTest, F1AHeaderThatComesFieldByFieldIsBounded) {
    const auto reader = make_request_reader(kBound);
    begin_head(*reader);
    send("GET / HTTP/1.1\r\n");
    const std::string field = "X-Field: " + std::string(80, 'a') + "\r\n";
    std::size_t sent = 0;
    while (!outcome_ && sent < 100 * kBound) {
        send(field);
        sent += field.size();
    }
    ASSERT_TRUE(outcome_) << "still reading after " << sent << " bytes";
    EXPECT_TRUE(is_header_limit(*outcome_)) << outcome_->message();
    EXPECT_LE(sent, kBound + field.size());
}

TEST_F(HttpReaderTest, HandsOverPiecesOfABodyAsTheyComeAndKeepsWhatIsBehind) {
    const auto reader = make_answer_reader(kBound);
    begin_head(*reader);
    send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\nde");
    ASSERT_TRUE(outcome_ && !*outcome_);
    EXPECT_EQ(reader->head().status, 200U);
    EXPECT_EQ(reader->head().value("transfer-encoding"), "chunked");
    std::array<char, 4> space{};
    const auto first = read_body(*reader, space);
    EXPECT_EQ(std::string_view(space.data(), first.bytes), "abcd");
    const auto second = read_body(*reader, space);
    EXPECT_EQ(std::string_view(space.data(), second.bytes), "e");
    EXPECT_FALSE(reader->done());
    send("fg\r\n0\r\nX: 1\r\n\r\nbehind");
    const auto third = read_body(*reader, space);
    EXPECT_EQ(std::string_view(space.data(), third.bytes), "fg");
    while (!reader->done()) {
        EXPECT_EQ(read_body(*reader, space).bytes, 0U);
    }
    EXPECT_EQ(reader->head().count("X"), 0U) << "trailer fields are no header fields";
    EXPECT_TRUE(reader->keep_alive());
    EXPECT_EQ(buffer_.size(), 6U);
}

TEST_F(HttpReaderTest, ABodyWithoutALengthEndsWithTheConnection) {
    const auto reader = make_answer_reader(kBound);
    begin_head(*reader);
    send("HTTP/1.1 200 OK\r\n\r\nabc");
    ASSERT_TRUE(outcome_ && !*outcome_);
    std::array<char, 8> space{};
    EXPECT_EQ(read_body(*reader, space).bytes, 3U);
    ::shutdown(peer_, SHUT_WR);
    const auto end = read_body(*reader, space);
    EXPECT_FALSE(end.failure) << end.failure.message();
    EXPECT_EQ(end.bytes, 0U);
    EXPECT_TRUE(reader->done());
    EXPECT_FALSE(reader->keep_alive());
}

TEST_F(HttpReaderTest, AMessageThatIsCutIsNotMalformed) {
    const auto reader = make_answer_reader(kBound);
    begin_head(*reader);
    send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc");
    std::array<char, 8> space{};
    EXPECT_EQ(read_body(*reader, space).bytes, 3U);
    ::shutdown(peer_, SHUT_WR);
    const auto end = read_body(*reader, space);
    EXPECT_TRUE(end.failure);
    EXPECT_FALSE(is_malformed(end.failure)) << end.failure.message();
}

}  // namespace
}  // namespace distilld
